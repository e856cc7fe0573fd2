// SPDX-License-Identifier: MIT
/// \file
/// Attention and its gradients against the definition, on every instruction set.
#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include <halftone/kernel/attention/cpu.hpp>

#include "kernel/attention/checks.hpp"
#include "kernel/product/software_tiles.hpp"
#include "support/each_set.hpp"

namespace kernel_attention_tests {

namespace ht = halftone;
using ht::attention_mask;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_inputs;
using support::attention_results;
using support::attention_sizes;
using support::bounds;
using support::layout;
using attention = ht::kernel::attention<ht::cpu>;

/// Runs on every instruction set, because bfloat16 also has its own product units.
template <class Test>
void for_each_isa(const Test& test) {
    for (const ht::isa set : ht::every_isa) {
        CAPTURE(std::string(ht::name(set)));
        if (support::is_tested(set)) test(set);
    }
}

TEST_CASE("attention is tested on every instruction set of this machine") {
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) MESSAGE("not tested here: ", std::string(ht::name(set)));
    }
}

template <class Compute, class T>
void check_problem(const attention_sizes& sizes, layout way, bounds kind = bounds::telling, double deviation = 1) {
    support::check_problem<Compute, T>(
        sizes, way, kind, deviation, [](const support::problem<T>& p, const auto& check) {
            for_each_isa([&](ht::isa set) {
                ht::cpu device{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
                const auto got = support::outcome_of<Compute>(p, device);
                check(got);
                CHECK(got.same_bits(support::outcome_of<Compute>(p, two)));
            });
        });
}

constexpr auto full = attention_mask::full;
constexpr auto causal = attention_mask::causal;

template <class Compute, class T>
void check_all() {
    // Batch, queries, keys, query heads, key heads, head size.
    check_problem<Compute, T>({2, 2, 2, 2, 2, 16, causal}, layout::contiguous, bounds::may_hide);
    check_problem<Compute, T>({1, 63, 63, 3, 3, 24, causal}, layout::fused);
    check_problem<Compute, T>({1, 64, 64, 2, 2, 64, causal}, layout::fused);
    check_problem<Compute, T>({2, 65, 65, 1, 1, 16, full}, layout::heads_first);
    check_problem<Compute, T>({1, 130, 130, 1, 1, 64, causal}, layout::fused);
    check_problem<Compute, T>({1, 130, 130, 1, 1, 128, full}, layout::contiguous);
    // Keys in several tiles and parts, the last one odd.
    check_problem<Compute, T>({1, 70, 600, 1, 1, 16, causal}, layout::contiguous);
    check_problem<Compute, T>({1, 7, 301, 2, 2, 24, full}, layout::heads_first);
}

TEST_CASE("attention and its gradients are within bounds") {
    SUBCASE("float") { check_all<float, float>(); }
    SUBCASE("bfloat16") { check_all<bfloat16, bfloat16>(); }
    SUBCASE("float16") { check_all<float16, float16>(); }
    SUBCASE("float, products of bfloat16") { check_all<bfloat16, float>(); }
}

TEST_CASE("attention over a single key gives its value, and one query") {
    check_problem<float, float>({1, 1, 1, 1, 1, 16, causal}, layout::contiguous, bounds::may_hide);
    check_problem<float, float>({3, 1, 1, 2, 1, 24, full}, layout::heads_first, bounds::may_hide);
    check_problem<bfloat16, bfloat16>({1, 1, 1, 6, 6, 64, causal}, layout::fused, bounds::may_hide);
    check_problem<float, float>({1, 1, 130, 2, 2, 64, causal}, layout::contiguous);
    check_problem<bfloat16, bfloat16>({1, 1, 130, 2, 2, 64, full}, layout::contiguous, bounds::may_hide);
}

TEST_CASE("any head size up to 256") {
    for (const extent head_size : {1, 2, 3, 15, 17, 33, 80, 100, 160, 256}) {
        check_problem<float, float>({1, 19, 37, 1, 1, head_size, causal}, layout::heads_first, bounds::may_hide);
        check_problem<bfloat16, bfloat16>({1, 37, 37, 1, 1, head_size, full}, layout::fused, bounds::may_hide);
    }
}

TEST_CASE("query heads share key heads") {
    check_problem<float, float>({1, 66, 66, 6, 2, 16, causal}, layout::contiguous);
    check_problem<float, float>({2, 33, 140, 4, 1, 24, full}, layout::heads_first);
    check_problem<bfloat16, bfloat16>({1, 130, 130, 4, 2, 32, causal}, layout::contiguous);
}

TEST_CASE("enough heads that each is one task") {
    // With few heads: more blocks of keys than one part has, and more blocks of queries.
    check_problem<float, float>({2, 40, 300, 4, 4, 16, causal}, layout::contiguous);
    check_problem<float, float>({2, 400, 40, 4, 4, 16, full}, layout::contiguous);
    check_problem<bfloat16, bfloat16>({3, 30, 400, 3, 3, 16, full}, layout::contiguous);
}

template <class Compute, class T>
void check_packed(const support::sequence_lengths& lengths, const attention_sizes& heads, layout way, bounds kind) {
    support::check_packed<Compute, T>(
        lengths, heads, way, kind, [](const support::packed_problem<T>& p, const auto& check) {
            for_each_isa([&](ht::isa set) {
                ht::cpu device{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
                const auto got = p.template outcome_on<Compute>(device);
                check(got);
                CHECK(got.same_bits(p.template outcome_on<Compute>(two)));
                CHECK(got.same_bits(support::one_by_one<Compute>(p, device)));
            });
        });
}

TEST_CASE("packed sequences: each has the same bits as in a call of its own") {
    SUBCASE("of every kind") {
        support::for_each_pack([](const auto&... pack) {
            check_packed<float, float>(pack...);
            check_packed<bfloat16, bfloat16>(pack...);
        });
    }
    SUBCASE("float16") {
        check_packed<float16, float16>({{3, 21}, {5, 21}}, {1, 0, 0, 2, 2, 24, causal}, layout::contiguous,
                                       bounds::may_hide);
    }
    // Forward and backward in several parts per head, together with sequences in one part.
    SUBCASE("long and short") {
        for (const auto mask : {causal, full}) {
            check_packed<float, float>({{20, 400, 30}, {20, 50, 300}}, {1, 0, 0, 2, 1, 16, mask}, layout::contiguous,
                                       bounds::may_hide);
        }
        check_packed<bfloat16, bfloat16>({{20, 0, 400, 30}, {20, 260, 50, 400}}, {1, 0, 0, 1, 1, 24, causal},
                                         layout::heads_first, bounds::may_hide);
    }
    // With many heads there are no parts.
    SUBCASE("many heads") {
        check_packed<bfloat16, bfloat16>({{30, 7, 50}, {30, 7, 50}}, {1, 0, 0, 9, 9, 8, causal}, layout::fused,
                                         bounds::may_hide);
    }
}

TEST_CASE("the AMX-shaped products on software tiles, with AMX's packing") {
    if (!support::is_tested(ht::isa::avx512_bf16)) {
        MESSAGE("not tested here: the packing needs avx512_bf16");
        return;
    }
    for (const attention_sizes& sizes :
         {attention_sizes{1, 65, 65, 1, 1, 16, causal}, attention_sizes{1, 40, 140, 2, 1, 80, full},
          // Blocks of queries that see some keys of a block, fewer than a unit's rows.
          attention_sizes{1, 335, 344, 2, 1, 16, causal}}) {
        CAPTURE(sizes);
        const support::problem<bfloat16> p(sizes, layout::heads_first);
        const attention_inputs inputs = p.inputs();
        const attention_results want = support::attention_by_definition(inputs);
        const attention_results bound =
            support::attention_bounds(inputs, want, support::roundings_of<bfloat16, bfloat16>());
        ht::cpu device{{.threads = 2, .instruction_set = ht::isa::avx512_bf16}};
        auto engine = ht::detail::attention_engine_for<bfloat16, bfloat16>(device);
        engine.unit = support::software_tiles::unit();
        const support::outcome<bfloat16> got(p, [&](const auto& forward, const auto& backward) {
            attention::forward(device, forward, engine);
            attention::backward(device, backward, engine);
        });
        check_within(got, want, bound, bounds::telling, support::scale_of(p));
    }
}

TEST_CASE("scores of ten thousand and more") {
    for (const double deviation : {300.0, 3000.0, 10000.0}) {
        CAPTURE(deviation);
        check_problem<float, float>({1, 40, 70, 1, 1, 16, full}, layout::contiguous, bounds::may_hide, deviation);
        check_problem<bfloat16, bfloat16>({1, 70, 70, 1, 1, 64, causal}, layout::contiguous, bounds::may_hide,
                                          deviation);
        check_problem<float16, float16>({1, 70, 70, 1, 1, 16, causal}, layout::contiguous, bounds::may_hide, deviation);
    }
}

}  // namespace kernel_attention_tests
