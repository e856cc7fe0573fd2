// SPDX-License-Identifier: MIT
/// \file
/// Thrust on halftone's memory: its order with a context's work, its memory, and the exponent counts computed with it.
// compile: read, at most 60 kernels.
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <halftone/kernel/exponent_counts/device/histogram.cuh>
#include <halftone/tensor/tensor.hpp>

#include "observe/statistics_checks.hpp"

namespace {

using namespace statistics_checks;

TEST_CASE("statistics on cuda: as on the CPU") {
    ht::cuda device;
    check(device);
}

TEST_CASE("statistics on cuda: in little memory") {
    ht::cuda device;
    constexpr ht::extent count = 1 << 18;
    const ht::tensor<float, 1> zeros(device.memory(), {count});
    device.fill(zeros.data(), count, 0.0f);
    CHECK(statistics_of(device, zeros.view()).zeros == count);
    CHECK(device.memory().usage().peak(ht::memory_kind::workspace) < count);  // a byte of each would be more
}

TEST_CASE("Thrust: in order with the context's kernels, in its memory, which is given back") {
    ht::cuda device;
    constexpr ht::extent count = 1 << 20;
    const ht::tensor<std::int32_t, 1> lengths(device.memory(), {count}), sequences(device.memory(), {count});
    const std::size_t held = device.memory().usage().live(ht::memory_kind::workspace);
    // Nothing waits: the fill, the sequence and the sort run in order on the stream.
    device.fill(lengths.data(), count, std::int32_t{7});
    device.fill(lengths.data() + 5, 1, std::int32_t{3});
    const auto policy = ht::thrust_policy(device);
    const auto first = ht::begin(lengths.view());
    thrust::sequence(policy, ht::begin(sequences.view()), ht::end(sequences.view()));
    thrust::stable_sort_by_key(policy, first, ht::end(lengths.view()), ht::begin(sequences.view()));
    std::vector<std::int32_t> order(count);
    device.memory().read(order.data(), sequences.data(), count * sizeof order[0]);
    CHECK(order[0] == 5);
    CHECK(order[1] == 0);
    CHECK(order[6] == 6);
    CHECK(order[count - 1] == count - 1);
    CHECK(device.memory().usage().live(ht::memory_kind::workspace) == held);
    CHECK(device.memory().usage().allocations() > 2);  // the sort has taken some of it
    CHECK_THROWS_AS(ht::begin(ht::view<std::int32_t, 2>(lengths.data(), {2, 2}, {4, 1})), ht::shape_error);
}

}  // namespace
