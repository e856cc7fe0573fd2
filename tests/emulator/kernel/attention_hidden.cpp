// SPDX-License-Identifier: MIT
/// \file
/// Attention's GPU kernels on the emulated GPU with unusual numbers: NaNs and infinities that a mask hides, scores of 2^20.
#include <doctest/doctest.h>

#include "emulator/kernel/attention_checks.hpp"
#include "kernel/attention/hidden.hpp"
#include "kernel/attention/shifted.hpp"

namespace emulator_kernel_attention_hidden_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_sizes;
using support::layout;

constexpr auto causal = ht::attention_mask::causal;

template <class Compute, class T>
void check(const attention_sizes& sizes, layout way, const std::vector<extent>& queries,
           const std::vector<extent>& keys, int architecture = 80, int kinds = 2) {
    support::problem<T> p(sizes, way);
    const emulator::options how{.check = emulator::checking::values_only};
    support::check_hidden(
        p, support::seen_of(sizes), queries, keys,
        [&](const support::problem<T>& now) {
            emulator::device device(how, ht::simt::architecture_of(architecture));
            return support::outcome_of<Compute>(now, device);
        },
        kinds);
}

template <class T>
void check_matrix_kernels() {
    check<T, T>({1, 20, 20, 1, 1, 16, causal}, layout::fused_chunks, {0, 9}, {8, 19}, 80, 3);
    check<T, T>({1, 34, 40, 2, 1, 64, causal}, layout::heads_first_chunks, {0, 20}, {33});
    check<T, T>({1, 18, 20, 1, 1, 128, causal}, layout::heads_first_chunks, {1}, {17});
}

TEST_CASE("attention on a GPU's matrix units: hidden values have no effect, NaNs of visible ones propagate") {
    SUBCASE("bfloat16") { check_matrix_kernels<bfloat16>(); }
    SUBCASE("float16") { check_matrix_kernels<float16>(); }
    SUBCASE("wide heads") {
        check<bfloat16, bfloat16>({1, 18, 20, 1, 1, 136, causal}, layout::heads_first_chunks, {3}, {9, 19}, 80);
        check<bfloat16, bfloat16>({1, 18, 20, 1, 1, 136, causal}, layout::heads_first_chunks, {3}, {18}, 86);
    }
    SUBCASE("tfloat32") {
        check<ht::tfloat32, float>({1, 20, 36, 2, 1, 16, causal}, layout::heads_first_chunks, {0, 9}, {17, 35});
        check<ht::tfloat32, float>({1, 18, 20, 1, 1, 136, causal}, layout::heads_first_chunks, {3}, {9, 19}, 80);
    }
}

TEST_CASE("attention on a GPU without its matrix units: hidden values have no effect, NaNs of visible ones propagate") {
    check<float, float>({1, 20, 36, 2, 1, 5, causal}, layout::contiguous, {0, 9}, {17, 35});
    check<float, float>({1, 40, 40, 1, 1, 68, causal}, layout::heads_first, {33}, {31, 39});
    check<bfloat16, bfloat16>({1, 9, 12, 2, 2, 6, causal}, layout::contiguous, {0, 7}, {4, 11});
    check<float16, float>({1, 9, 9, 1, 1, 130, causal}, layout::contiguous, {0, 7}, {4, 8});
}

TEST_CASE("packed sequences on a GPU: values of other sequences have no effect, NaNs of visible ones propagate") {
    const support::sequence_lengths lengths{{3, 17, 0, 9}, {3, 20, 4, 9}};
    for (const layout way : {layout::heads_first_chunks, layout::heads_first}) {
        support::packed_problem<bfloat16> p(lengths, {1, 0, 0, 2, 1, 16, causal}, way);
        support::check_hidden(
            p.whole, support::seen_of(lengths, causal), {2, 4}, {2, 22, 23},
            [&](const support::problem<bfloat16>&) {
                emulator::device device({.check = emulator::checking::values_only});
                return p.outcome_on<bfloat16>(device);
            },
            2);
    }
}

TEST_CASE("attention on a GPU: no finite score") {
    emulator::device device;
    const auto run = [&](const auto& p) { return support::outcome_of<bfloat16>(p, device); };
    support::check_lowest_score<bfloat16>({1, 9, 12, 2, 1, 16, causal}, layout::heads_first_chunks, run);
    support::check_lowest_score<bfloat16>({1, 9, 12, 2, 1, 16, causal}, layout::heads_first, run);
}

TEST_CASE("attention on a GPU with hidden NaN in many schedules") {
    // NaNs in all keys and values that the first queries do not see.
    support::problem<bfloat16> p({1, 66, 130, 2, 1, 8, causal}, layout::heads_first_chunks);
    for (const auto& x : {p.x.q.view, p.x.k.view, p.x.v.view, p.d_o.view}) {
        const extent times = x.extent_of(1);
        for (extent i = times - 20; i < times; ++i)
            x(0, i, 0, i % 8) = bfloat16(std::numeric_limits<float>::quiet_NaN());
    }
    emulator::device first;
    const auto want = support::outcome_of<bfloat16>(p, first);
    emulator::check_damages(
        [&](emulator::device& device) { return support::outcome_of<bfloat16>(p, device).same_bits(want); });
}

template <class Compute, class T>
void check_shifted(const attention_sizes& sizes, float scale = 0.3f) {
    support::check_shifted<Compute, T>(sizes, scale, ht::attention_strategy::flash, [](const support::problem<T>& p) {
        emulator::device device({.check = emulator::checking::values_only});
        return support::outcome_of<Compute>(p, device);
    });
}

TEST_CASE("attention on a GPU: scores of a million are as exact as small ones") {
    check_shifted<bfloat16, bfloat16>({1, 20, 70, 2, 1, 16, causal});
    check_shifted<float16, float16>({1, 20, 40, 1, 1, 64, ht::attention_mask::full}, 1);
    check_shifted<bfloat16, bfloat16>({1, 9, 20, 1, 1, 136, causal});
    check_shifted<ht::tfloat32, float>({1, 20, 40, 1, 1, 24, causal});
    check_shifted<float, float>({1, 20, 40, 1, 1, 24, causal});
    check_shifted<float, float>({1, 20, 40, 1, 1, 20, causal}, 1);
}

}  // namespace emulator_kernel_attention_hidden_tests
