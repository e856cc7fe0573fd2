// SPDX-License-Identifier: MIT
/// \file
/// Attention on a GPU for floats whose products compute in tfloat32: the tests of tests/kernel, for every head size
/// that has its own kernel.
// compile: with --full, at most 150 kernels. The kernels of attention.cu for other numbers.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/attention/checks.hpp"

namespace {

using namespace support;
using ht::tfloat32;
constexpr auto causal = ht::attention_mask::causal;
constexpr auto full = ht::attention_mask::full;

/// Within its bounds, and the same bits a second time.
void check(const attention_sizes& sizes, layout way, bounds kind = bounds::telling) {
    check_problem<tfloat32, float>(sizes, way, kind, 1, [](const problem<float>& p, const auto& compare) {
        waiting_cuda device;
        const outcome<float> got = outcome_of<tfloat32>(p, device);
        compare(got);
        CHECK(got.same_bits(outcome_of<tfloat32>(p, device)));
    });
}

TEST_CASE("attention on cuda in tfloat32: it and its gradients are within bounds") {
    for (const extent head_size : {8, 64, 96, 128, 192, 256}) {
        check({1, 150, 200, 2, 1, head_size, causal}, layout::heads_first_chunks, bounds::may_hide);
        check({2, 70, 70, 1, 1, head_size, full}, layout::fused_chunks, bounds::may_hide);
    }
    check({1, 512, 512, 2, 1, 64, causal}, layout::heads_first_chunks);
    check({1, 63, 63, 3, 3, 24, causal}, layout::fused);
}

TEST_CASE("attention on cuda in tfloat32: operands are rounded, not truncated") {
    waiting_cuda device;
    for (const extent head_size : {64, 128, 256})
        check_operands_are_rounded({1, 70, 90, 2, 1, head_size, causal}, layout::heads_first_chunks, device);
}

TEST_CASE("attention on cuda in tfloat32: packed sequences have the bits that each has alone") {
    const sequence_lengths long_and_short{{300, 7, 0, 129}, {300, 70, 5, 200}};
    for (const extent head_size : {64, 128, 256}) {
        check_packed<tfloat32, float>(long_and_short, {1, 0, 0, 2, 1, head_size, causal}, layout::heads_first_chunks,
                                      bounds::may_hide, [](const packed_problem<float>& p, const auto& compare) {
                                          waiting_cuda device;
                                          const outcome<float> got = p.template outcome_on<tfloat32>(device);
                                          compare(got);
                                          CHECK(got.same_bits(one_by_one<tfloat32>(p, device)));
                                      });
    }
}

}  // namespace
