// SPDX-License-Identifier: MIT
/// \file
/// Tests of topk and multinomial, for every device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/autodiff/op/sampling.hpp>
#include <halftone/autodiff/op/softmax.hpp>
#include <halftone/kernel/multinomial/multinomial.hpp>
#include <halftone/kernel/topk/topk.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace sampling_checks {

namespace ht = halftone;
using ht::extent;
using support::guarded;

/// The places in the order that a stable sort by the numbers gives, NaN before all.
template <class X>
std::vector<std::int32_t> sorted(const X* x, extent width) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(width));
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](std::int32_t i) { return static_cast<double>(x[i]); };
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return std::isnan(value(a)) != std::isnan(value(b)) ? std::isnan(value(a)) : value(a) > value(b);
    });
    return order;
}

template <class X, class Device>
void is_sorted(Device& device, extent rows, extent width, extent padding, extent k) {
    CAPTURE(width);
    CAPTURE(k);
    const extent stride = width + padding;
    support::random data(static_cast<std::uint64_t>(width + k));
    const guarded<X> x(data.integers<X>(rows * stride, width > 40 ? 40 : 3));  // many are equal
    if (width > 6) {
        x[1] = X(std::numeric_limits<float>::infinity()), x[3] = X(-std::numeric_limits<float>::infinity());
        x[5] = X(std::numeric_limits<float>::quiet_NaN()), x[2] = x[4] = X(-0.0f), x[0] = X(0.0f);
        if (rows > 1) x[stride + 6] = X(-std::numeric_limits<float>::quiet_NaN());
    }
    const guarded<std::int32_t> indices(rows * k);
    ht::topk(device, ht::const_view<X, 2>(x.data(), {rows, width}, {stride, 1}), indices.view(ht::shape<2>{rows, k}));
    for (extent i = 0; i < rows; ++i) {
        const auto want = sorted(x.data() + i * stride, width);
        for (extent j = 0; j < k; ++j) CHECK(indices[i * k + j] == want[static_cast<std::size_t>(j)]);
    }
    CHECK(indices.intact());
}

template <class Device>
void all(Device& device) {
    for (const extent width : {1, 2, 7, 33, 256, 300}) {
        for (const extent k : {extent{0}, extent{1}, std::min<extent>(width, 5), width}) {
            if (k > 40) continue;
            is_sorted<float>(device, 3, width, 0, k);
            is_sorted<ht::bfloat16>(device, 2, width, 3, k);
            is_sorted<ht::float16>(device, 1, width, 0, k);
        }
        is_sorted<double>(device, 2, width, 1, std::min<extent>(width, 4));
    }
    is_sorted<float>(device, 0, 5, 0, 2);
    const guarded<float> x(6);
    const guarded<std::int32_t> indices(8);
    CHECK_THROWS_WITH_AS(ht::topk(device, x.const_view(ht::shape<2>{2, 3}), indices.view(ht::shape<2>{2, 4})),
                         "topk: the 4 largest of 3 numbers; expected 0 to 3", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::topk(device, x.const_view(ht::shape<2>{2, 3}), indices.view(ht::shape<2>{1, 3})),
                         "topk: indices is (1, 3); expected (2, 3)", ht::shape_error);
}

/// Of weights 1, 0, 2 and 5: as often as these say, within five deviations; the same draws again, others in another step;
/// a part of a batch draws what it draws whole.
template <class Device>
void draws(Device& device, extent rows) {
    std::vector<float> weights;
    for (extent i = 0; i < rows; ++i)
        for (const float w : {1.0f, 0.0f, 2.0f, 5.0f}) weights.push_back(w);
    const guarded<float> w(weights);
    const auto run = [&](extent first, extent count, extent samples, const ht::multinomial_options& o) {
        const guarded<std::int32_t> drawn(count * samples);
        ht::multinomial(device, ht::const_view<float, 2>(w.data() + 4 * first, {count, 4}),
                        drawn.view(ht::shape<2>{count, samples}), o);
        CHECK(drawn.intact());
        return std::vector<std::int32_t>(drawn.data(), drawn.data() + drawn.size());
    };
    const auto once = run(0, rows, 1, {.seed = 7, .step = 3});
    double counts[4] = {};
    for (const std::int32_t i : once) {
        REQUIRE((i >= 0 && i < 4));
        ++counts[i];
    }
    CHECK(counts[1] == 0);
    for (const int i : {0, 2, 3}) {
        const double p = static_cast<double>(weights[static_cast<std::size_t>(i)]) / 8, n = static_cast<double>(rows);
        CHECK(std::fabs(counts[i] - n * p) <= 5 * std::sqrt(n * p * (1 - p)));
    }
    CHECK(run(0, rows, 1, {.seed = 7, .step = 3}) == once);
    CHECK(run(0, rows, 1, {.seed = 7, .step = 4}) != once);
    CHECK(run(0, rows, 1, {.seed = 8, .step = 3}) != once);
    const auto part = run(5, rows - 5, 1, {.seed = 7, .step = 3, .first_row = 5});
    CHECK(std::equal(part.begin(), part.end(), once.begin() + 5));
    const auto several = run(0, rows, 3, {.seed = 7});
    bool repeats = false;
    for (std::size_t i = 0; i < several.size(); i += 3) {
        std::vector<std::int32_t> row(several.begin() + static_cast<std::ptrdiff_t>(i),
                                      several.begin() + static_cast<std::ptrdiff_t>(i) + 3);
        std::sort(row.begin(), row.end());
        CHECK(row == std::vector<std::int32_t>{0, 2, 3});
    }
    const auto again = run(0, rows, 3, {.seed = 7, .replacement = true});
    for (std::size_t i = 0; i < again.size(); i += 3)
        repeats = repeats || again[i] == again[i + 1] || again[i + 1] == again[i + 2];
    CHECK(repeats);
}

/// A top-k sampler as generation has it.
template <class Device>
void samples(Device& device) {
    support::random data(4);
    const std::vector<float> x = data.normals<float>(3 * 50);
    ht::inference eval{device};
    const auto logits = eval.to_device(ht::const_view<float, 2>(x.data(), {3, 50}));
    const auto best = ht::topk(eval, logits, 4);
    const auto drawn = ht::multinomial(eval, ht::softmax(eval, best.values), 1, {.seed = 1, .step = 2});
    const auto token = ht::gather(eval, best.indices, ht::axes<-1>, drawn);
    std::vector<std::int32_t> tokens(3);
    device.memory().read(tokens.data(), token.view().data(), 12);
    for (std::size_t i = 0; i < 3; ++i) {
        const auto want = sorted(x.data() + 50 * i, 50);
        CHECK(std::find(want.begin(), want.begin() + 4, tokens[i]) != want.begin() + 4);
    }
}

/// The gradient of the largest numbers goes where they came from.
template <class Device>
void gradient(Device& device) {
    std::vector<float> x{1, 5, 3, 2, 2, 2};
    ht::tape tape{device};
    const auto leaf = tape.leaf(ht::view<float, 2>(x.data(), {2, 3}));
    const auto best = ht::topk(tape, leaf, 2);
    tape.backward(ht::sum(tape, ht::mul(tape, best.values, best.values)));
    std::vector<float> dx(6);
    device.memory().read(dx.data(), tape.gradient(leaf).data(), 24);
    CHECK(dx == std::vector<float>{0, 10, 6, 4, 4, 0});
}

}  // namespace sampling_checks
