// SPDX-License-Identifier: MIT
/// \file
/// A row has the same bits whatever rows are computed beside it, on any device.
///
///     batch_invariance::check_ids(12, 33, vocabulary, splits, [&](const ht::const_view<std::int32_t, 2>& tokens) {
///         return ht::to_host(device, model.logits(eval, tokens));
///     });
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/tensor/host_tensor.hpp>

#include "support/random.hpp"

namespace batch_invariance {

namespace ht = halftone;
using ht::extent;

/// Divides the rows 0 to count - 1 at random: into batches of random sizes, each row in one of them. run(rows) returns host
/// results, of which the first axis is `rows`; those of each row have the bits that it has in a batch of its own.
template <class Run>
void check(int count, int splits, const Run& run) {
    using row = std::vector<int>;
    std::vector<decltype(run(row{}))> alone;
    for (int i = 0; i < count; ++i) alone.push_back(run(row{i}));
    support::random data(7);
    row order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    int different = 0;
    for (int split = 0; split < splits; ++split) {
        for (int i = count - 1; i > 0; --i)
            std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(data.below(i + 1))]);
        for (int first = 0, size = 0; first < count; first += size) {
            size = 1 + data.below(count - first);
            const row batch(order.begin() + first, order.begin() + first + size);
            const auto all = run(batch);
            REQUIRE(all.shape()[0] == size);
            const extent each = all.shape().size() / size;
            for (int i = 0; i < size; ++i) {
                const auto& own = alone[static_cast<std::size_t>(batch[static_cast<std::size_t>(i)])];
                REQUIRE(own.shape().size() == each);
                different += std::memcmp(all.data() + i * each, own.data(), static_cast<std::size_t>(each) * sizeof *own.data()) != 0;
            }
        }
    }
    CHECK(different == 0);
}

/// Rows of `length` numbers each, made by the rows' numbers.
template <class T>
std::vector<T> gather(const std::vector<T>& all, const std::vector<int>& rows, extent length) {
    std::vector<T> chosen;
    for (const int row : rows) chosen.insert(chosen.end(), all.begin() + row * length, all.begin() + (row + 1) * length);
    return chosen;
}

/// Rows of tokens at random: run(tokens) of (rows, length).
template <class Run>
void check_ids(int count, extent length, int vocabulary, int splits, const Run& run) {
    const std::vector<std::int32_t> all = support::random(11).indices(count * length, vocabulary);
    check(count, splits, [&](const std::vector<int>& rows) {
        const std::vector<std::int32_t> tokens = gather(all, rows, length);
        return run(ht::const_view<std::int32_t, 2>(tokens.data(), {static_cast<extent>(rows.size()), length}));
    });
}

/// Images of three channels at random: run(images) of (rows, 3, size, size).
template <class Run>
void check_images(int count, extent size, int splits, const Run& run) {
    const std::vector<float> all = support::random(13).normals<float>(count * 3 * size * size);
    check(count, splits, [&](const std::vector<int>& rows) {
        const std::vector<float> pixels = gather(all, rows, 3 * size * size);
        return run(ht::const_view<float, 4>(pixels.data(), {static_cast<extent>(rows.size()), 3, size, size}));
    });
}

}  // namespace batch_invariance
