// SPDX-License-Identifier: MIT
/// \file
/// Attention's GPU kernels on floats whose products compute in tfloat32, on the emulated GPU.
#include <string>

#include <doctest/doctest.h>

#include "emulator/kernel/attention_checks.hpp"

namespace emulator_kernel_attention_tf32_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
using ht::extent;
using ht::tfloat32;
using support::attention_sizes;
using support::bounds;
using support::layout;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

// Batch, queries, keys, query heads, key heads, head size.

void check(const attention_sizes& sizes, layout way, bounds kind = bounds::telling, double deviation = 1,
           int architecture = 80) {
    emulator::check_attention<tfloat32, float>(sizes, way, kind, deviation, architecture);
}

TEST_CASE("attention in tfloat32 on a GPU's matrix units is within bounds") {
    check({1, 1, 1, 2, 2, 64, causal}, layout::fused_chunks, bounds::may_hide);
    check({2, 17, 17, 2, 2, 16, causal}, layout::fused_chunks);
    check({1, 130, 130, 1, 1, 64, causal}, layout::fused_chunks);
    check({2, 65, 70, 4, 2, 24, causal}, layout::heads_first_chunks);
    check({1, 17, 130, 1, 1, 80, full}, layout::heads_first_chunks);
    check({1, 70, 100, 1, 1, 128, causal}, layout::heads_first_chunks);
    check({1, 20, 70, 1, 1, 32, causal}, layout::heads_first_chunks, bounds::may_hide, 10000);
}

TEST_CASE("attention in tfloat32 on a GPU's matrix units that truncate sums is within bounds") {
    emulator::check_truncated_attention<tfloat32, float>();
}

TEST_CASE("attention in tfloat32 on a GPU's matrix units: wide heads, by the tiles of each architecture") {
    for (const int architecture : {86, 90}) {
        check({1, 33, 40, 2, 1, 256, causal}, layout::heads_first_chunks, bounds::telling, 1, architecture);
        check({2, 3, 3, 1, 1, 136, full}, layout::fused_chunks, bounds::may_hide, 1, architecture);
    }
}

TEST_CASE("attention in tfloat32 on a GPU's matrix units is exact on small integers") {
    emulator::check_exact_attention<tfloat32, float>({{20, 9}, {33, 12}}, 40, 80);
    emulator::check_exact_attention<tfloat32, float>({{20, 9}, {33, 12}}, 128, 80);
    emulator::check_exact_attention<tfloat32, float>({{9, 20}, {12, 33}}, 200, 80);
    emulator::check_exact_attention<tfloat32, float>({{9, 20}, {12, 33}}, 256, 86);
}

TEST_CASE("attention in tfloat32 on a GPU: operands are rounded, not truncated") {
    emulator::device device;
    for (const extent head_size : {16, 256})
        support::check_operands_are_rounded({1, 20, 37, 2, 1, head_size, causal}, layout::heads_first_chunks, device);
    support::check_operands_are_rounded({1, 20, 37, 2, 1, 20, causal}, layout::heads_first, device);
}

TEST_CASE("attention in tfloat32 on a GPU over packed sequences: each has the same bits as in a call of its own") {
    support::for_each_pack([](const auto&... pack) { emulator::check_packed_attention<tfloat32, float>(pack...); });
    emulator::check_packed_attention<tfloat32, float>({{131, 3, 66}, {131, 20, 70}}, {1, 0, 0, 1, 1, 40, causal},
                                                      layout::heads_first_chunks, bounds::may_hide);
    emulator::check_packed_attention<tfloat32, float>({{0, 20, 3, 4}, {5, 20, 0, 7}}, {1, 0, 0, 1, 1, 256, causal},
                                                      layout::heads_first_chunks, bounds::may_hide);
}

TEST_CASE("attention in tfloat32 on a GPU: the reason where matrix units are not used") {
    using attention = ht::kernel::attention<emulator::device>;
    const auto why_not = [](extent head_size, layout way) {
        const support::problem<float> p({1, 2, 2, 1, 1, head_size, full}, way);
        std::string sentence;
        support::outcome<float>(p, [&](const auto& forward, const auto& backward) {
            const char* const why = attention::why_not_matrix_units<tfloat32>(forward);
            sentence = why == nullptr ? "" : why;
            CHECK((why == nullptr) == (attention::why_not_matrix_units<tfloat32>(backward) == nullptr));
            CHECK(attention::why_not_matrix_units<float>(forward) != nullptr);
            CHECK(attention::why_not_matrix_units<ht::bfloat16>(forward) != nullptr);
        });
        return sentence;
    };
    CHECK(why_not(64, layout::fused_chunks) == "");
    CHECK(why_not(20, layout::fused_chunks) == "head_size is not a multiple of 8");
    CHECK(why_not(64, layout::heads_first) == "some head's vectors do not begin on a multiple of 16 bytes");
}

TEST_CASE("attention in tfloat32 on a GPU in many schedules, and with damage") {
    SUBCASE("narrow heads") {
        const support::problem<float> p({1, 66, 70, 2, 1, 8, causal}, layout::heads_first_chunks);
        emulator::check_kernels(emulator::same_in_all_schedules<tfloat32>(p));
    }
    SUBCASE("wide heads") {
        const support::problem<float> p({1, 34, 40, 1, 1, 136, full}, layout::heads_first_chunks);
        emulator::check_kernels(emulator::same_in_all_schedules<tfloat32>(p));
    }
}

}  // namespace emulator_kernel_attention_tf32_tests
