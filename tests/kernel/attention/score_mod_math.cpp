// SPDX-License-Identifier: MIT
/// \file
/// Functions of attention's scores under the math strategy, and dropout of probabilities under both, on the CPU.
#include <doctest/doctest.h>

#include <halftone/kernel/attention/cpu.hpp>

#include "kernel/attention/mods.hpp"
#include "support/each_cpu.hpp"

namespace kernel_attention_score_mod_math_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using support::attention_sizes;
using support::bounds;
using support::layout;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;
using math = ht::kernel::modified_attention_math<ht::cpu>;

template <class Compute, class T, class Mod>
support::outcome<T> by_math(const support::problem<T>& p, ht::cpu& device, const Mod& mod) {
    return support::outcome<T>(p, [&](const auto& forward, const auto& backward) {
        math::forward<Compute>(device, forward, mod);
        math::backward<Compute>(device, backward, mod);
    });
}

/// Both strategies.
template <class Compute, class T, class... F>
void check(const attention_sizes& sizes, layout way, const F&... functions) {
    const auto by_strategy = [](const support::problem<T>& p, const auto& mod, const auto& within) {
        support::for_each_cpu([&](ht::cpu& device) {
            within(support::modified_outcome<Compute>(p, device, mod));
            within(by_math<Compute>(p, device, mod));
        });
    };
    support::check_mod<Compute, T>(sizes, way, bounds::may_hide, by_strategy, functions...);
}

TEST_CASE("functions of scores by both strategies, with dropout: o and gradients are within bounds") {
    check<float, float>({1, 70, 70, 2, 1, 16, causal}, layout::contiguous, ht::soft_cap{2}, ht::attention_dropout{0.25f});
    check<bfloat16, bfloat16>({2, 33, 300, 2, 2, 24, full}, layout::heads_first, ht::sliding_window{40},
                              ht::attention_dropout{0.5f});
    check<float, float>({1, 20, 30, 1, 1, 16, full}, layout::contiguous, ht::attention_dropout{1});
}

TEST_CASE("functions of scores by the math strategy: hidden values have no effect, NaNs of visible ones propagate") {
    support::problem<float> p({2, 33, 40, 4, 2, 8, full}, layout::heads_first);
    const auto some = [](auto, auto query, auto key) { return ht::abs(query - key) < 5 || key == 2 * query; };
    const auto mod = ht::detail::attention_mod_of(p.options, 33, 40, some);
    ht::cpu device{{.threads = 1}};
    support::check_hidden(p, support::seen_of(p.sizes, mod), {0, 1, 17, 31}, {0, 8, 20, 39},
                          [&](const support::problem<float>& now) { return by_math<float>(now, device, mod); });
}

}  // namespace kernel_attention_score_mod_math_tests
