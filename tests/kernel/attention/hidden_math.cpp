// SPDX-License-Identifier: MIT
/// \file
/// NaNs, infinities and the largest numbers that a mask hides, and scores of 2^20: the math strategy on every instruction set.
#include <doctest/doctest.h>

#include <halftone/kernel/attention/cpu.hpp>

#include "kernel/attention/hidden.hpp"
#include "kernel/attention/shifted.hpp"
#include "support/each_cpu.hpp"

namespace kernel_attention_hidden_math_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_sizes;
using support::layout;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

template <class Compute, class T>
void check_math(const attention_sizes& sizes, layout way, const std::vector<extent>& queries,
                const std::vector<extent>& keys) {
    support::problem<T> p(sizes, way);
    support::for_each_cpu([&](ht::cpu& device) {
        support::check_hidden(p, support::seen_of(sizes), queries, keys, [&](const support::problem<T>& now) {
            return support::math_outcome_of<Compute>(now, device);
        });
    });
}

template <class Compute, class T>
void check_all_math() {
    check_math<Compute, T>({2, 5, 5, 2, 2, 8, causal}, layout::fused, {0, 2, 4}, {0, 1, 3, 4});
    check_math<Compute, T>({1, 33, 40, 4, 2, 24, causal}, layout::heads_first, {0, 1, 17, 31}, {0, 8, 20, 39});
    check_math<Compute, T>({1, 20, 20, 1, 1, 300, causal}, layout::contiguous, {0, 19}, {3, 19});
}

TEST_CASE("attention by products and softmax: hidden values have no effect, NaNs of visible ones propagate") {
    SUBCASE("float") { check_all_math<float, float>(); }
    SUBCASE("bfloat16") { check_all_math<bfloat16, bfloat16>(); }
    SUBCASE("float16") { check_all_math<float16, float16>(); }
    SUBCASE("float, products of float16") { check_all_math<float16, float>(); }
    SUBCASE("float, products of tfloat32") { check_all_math<ht::tfloat32, float>(); }
    SUBCASE("float, products of pieces") { check_all_math<ht::split<bfloat16, 3>, float>(); }
    SUBCASE("float16, products of pieces") { check_all_math<ht::split<bfloat16, 2>, float16>(); }
}

TEST_CASE("attention by products and softmax: no finite score") {
    support::for_each_cpu([](ht::cpu& device) {
        support::check_lowest_score<float>({1, 9, 12, 2, 1, 16, causal}, layout::contiguous,
                                           [&](const auto& p) { return support::math_outcome_of<float>(p, device); });
        support::check_lowest_score<bfloat16>({1, 9, 9, 2, 2, 8, causal}, layout::fused, [&](const auto& p) {
            return support::math_outcome_of<bfloat16>(p, device);
        });
    });
}

template <class Compute, class T, class Run>
void check_packed(const support::sequence_lengths& lengths, attention_sizes heads, layout way, const Run& run) {
    support::packed_problem<T> p(lengths, heads, way);
    const support::seen_pairs seen = support::seen_of(lengths, heads.mask);
    support::for_each_cpu([&](ht::cpu& device) {
        // One sequence after the other, its first and its last time.
        std::vector<extent> queries, keys;
        for (const extent t : support::sequence_lengths::offsets(lengths.queries)) {
            for (const extent at : {t - 1, t}) {
                if (at >= 0 && at < p.whole.sizes.queries) queries.push_back(at);
            }
        }
        for (const extent t : support::sequence_lengths::offsets(lengths.keys)) {
            for (const extent at : {t - 1, t}) {
                if (at >= 0 && at < p.whole.sizes.keys) keys.push_back(at);
            }
        }
        support::check_hidden(p.whole, seen, queries, keys, [&](const support::problem<T>&) { return run(p, device); });
    });
}

template <class Compute, class T>
void check_packs() {
    const auto math = [](const auto& p, ht::cpu& device) { return p.template math_outcome_on<Compute>(device); };
    for (const auto mask : {causal, full}) {
        const support::sequence_lengths same{{1, 17, 5, 33}, {1, 17, 5, 33}}, cached{{2, 1, 9, 0}, {30, 70, 9, 3}},
            holes{{0, 3, 4, 0, 20, 0}, {0, 0, 9, 5, 20, 0}};
        check_packed<Compute, T>(same, {1, 0, 0, 2, 2, 16, mask}, layout::fused, math);
        check_packed<Compute, T>(cached, {1, 0, 0, 2, 1, 20, mask}, layout::heads_first, math);
        if (mask == full) check_packed<Compute, T>(holes, {1, 0, 0, 2, 1, 8, mask}, layout::heads_first, math);
    }
}

TEST_CASE("packed sequences by products and softmax: values of other sequences have no effect") {
    SUBCASE("float") { check_packs<float, float>(); }
    SUBCASE("bfloat16") { check_packs<bfloat16, bfloat16>(); }
}

TEST_CASE("attention by products and softmax: scores of a million are as exact as small ones") {
    support::for_each_cpu([](ht::cpu& device) {
        for (const float scale : {1.0f, 0.3f}) {
            support::check_shifted<float, float>(
                {1, 40, 70, 2, 1, 16, causal}, scale, ht::attention_strategy::math,
                [&](const support::problem<float>& p) { return support::math_outcome_of<float>(p, device); });
        }
    });
}

}  // namespace kernel_attention_hidden_math_tests
