// SPDX-License-Identifier: MIT
/// \file
/// Functions of attention's scores on a GPU: the tests of tests/kernel, with a tensor that is looked up, and dropout.
// compile: joined, at most 40 kernels.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/attention/mods.hpp"

namespace {

using namespace support;
constexpr auto causal = ht::attention_mask::causal;

/// Within its bounds, and the same bits a second time.
template <class Compute, class T, class... F>
void check(const attention_sizes& sizes, layout way, const F&... functions) {
    const auto run = [](const problem<T>& p, const auto& mod, const auto& compare_with_definition) {
        waiting_cuda device;
        const outcome<T> got = modified_outcome<Compute>(p, device, mod);
        compare_with_definition(got);
        CHECK(got.same_bits(modified_outcome<Compute>(p, device, mod)));
    };
    check_mod<Compute, T>(sizes, way, bounds::may_hide, run, functions...);
}

TEST_CASE("functions of attention's scores on cuda: o and gradients are within bounds") {
    const guarded<float> slopes(std::vector<float>{0.5f, 0.25f});
    const auto slope = ht::lookup(slopes.const_view());
    const auto alibi = [=](auto score, auto head, auto query, auto key) { return score + slope(head) * (key - query); };
    check<float, float>({2, 19, 37, 2, 1, 24, causal}, layout::heads_first, alibi, ht::soft_cap{3}, ht::sliding_window{9},
                        ht::attention_dropout{0.25f});
}

}  // namespace
