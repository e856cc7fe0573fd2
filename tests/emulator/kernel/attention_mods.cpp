// SPDX-License-Identifier: MIT
/// \file
/// Functions of attention's scores on the emulated GPU, by both strategies; dropout.
#include <doctest/doctest.h>

#include <halftone/kernel/device.hpp>

#include "emulator/device.hpp"
#include "kernel/attention/mods.hpp"

namespace emulator_kernel_attention_mods_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
using ht::bfloat16;
using ht::extent;
using support::attention_sizes;
using support::bounds;
using support::layout;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

using ht::attention_strategy;

template <class Compute, class T, class Mod>
support::outcome<T> on_gpu(const support::problem<T>& p, const Mod& mod, attention_strategy strategy) {
    emulator::device device;
    return support::outcome<T>(p, [&](auto forward, auto backward) {
        forward.options.strategy = backward.options.strategy = strategy;
        ht::detail::run_attention<Compute>(device, forward, mod);
        ht::detail::run_attention<Compute>(device, backward, mod);
    });
}

/// By both strategies.
template <class Compute, class T, class... F>
void check(const attention_sizes& sizes, layout way, const F&... functions) {
    const auto run = [](const support::problem<T>& p, const auto& mod, const auto& within) {
        within(on_gpu<Compute>(p, mod, attention_strategy::flash));
        within(on_gpu<Compute>(p, mod, attention_strategy::math));
    };
    support::check_mod<Compute, T>(sizes, way, bounds::may_hide, run, functions...);
}

TEST_CASE("functions of scores on a GPU: o and gradients are within bounds") {
    const std::vector<float> slopes{0.5f, 0.25f};
    const auto slope = ht::lookup(ht::const_view<float, 1>(slopes.data(), {2}));
    const auto alibi = [=](auto score, auto head, auto query, auto key) { return score + slope(head) * (key - query); };
    check<float, float>({1, 9, 13, 2, 1, 16, causal}, layout::contiguous, alibi, ht::soft_cap{3});
    const std::vector<std::int32_t> lengths{0, 11};
    check<bfloat16, bfloat16>({2, 17, 17, 2, 2, 24, full}, layout::fused,
                              ht::key_lengths(ht::const_view<std::int32_t, 1>(lengths.data(), {2})),
                              ht::attention_dropout{0.25f});
    check<float, float>({1, 40, 70, 1, 1, 72, full}, layout::contiguous, ht::sliding_window{9});
}

TEST_CASE("functions of scores on a GPU: masked keys have no effect, NaNs of visible ones propagate") {
    support::problem<float> p({1, 9, 20, 2, 1, 8, full}, layout::heads_first);
    const auto some = [](auto, auto query, auto key) { return ht::abs(query - key) < 3 || key == 2 * query; };
    const auto mod = ht::detail::attention_mod_of(p.options, 9, 20, some);
    for (const auto strategy : {attention_strategy::flash, attention_strategy::math}) {
        support::check_hidden(p, support::seen_of(p.sizes, mod), {0, 5}, {2, 8},
                              [&](const support::problem<float>& now) { return on_gpu<float>(now, mod, strategy); }, 2);
    }
}

}  // namespace emulator_kernel_attention_mods_tests
