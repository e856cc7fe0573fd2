// SPDX-License-Identifier: MIT
/// \file
/// Attention by products and softmax against the definition; the choice between the strategies.
#include <string>

#include <doctest/doctest.h>

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/policy/presets.hpp>

#include "kernel/attention/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_attention_math_tests {

namespace ht = halftone;
using ht::attention_mask;
using ht::attention_strategy;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_sizes;
using support::bounds;
using support::layout;

constexpr auto full = attention_mask::full;
constexpr auto causal = attention_mask::causal;

template <class Compute, class T>
void check_math(const attention_sizes& sizes, layout way, bounds kind = bounds::telling, double deviation = 1) {
    support::check_problem<Compute, T>(
        sizes, way, kind, deviation,
        [](const support::problem<T>& p, const auto& check) {
            support::for_each_set([&](ht::isa set) {
                ht::cpu device{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
                const auto got = support::math_outcome_of<Compute>(p, device);
                check(got);
                CHECK(got.same_bits(support::math_outcome_of<Compute>(p, two)));
            });
        },
        attention_strategy::math);
}

template <class Compute, class T>
void check_all() {
    // Batch, queries, keys, query heads, key heads, head size.
    check_math<Compute, T>({2, 5, 5, 2, 2, 16, causal}, layout::fused, bounds::may_hide);
    check_math<Compute, T>({1, 33, 40, 4, 2, 24, causal}, layout::contiguous);
    check_math<Compute, T>({1, 30, 70, 2, 1, 33, full}, layout::heads_first);
}

TEST_CASE("attention by products and softmax is within bounds") {
    SUBCASE("float") { check_all<float, float>(); }
    SUBCASE("bfloat16") { check_all<bfloat16, bfloat16>(); }
    SUBCASE("float16") { check_all<float16, float16>(); }
    SUBCASE("float, products of bfloat16") { check_all<bfloat16, float>(); }
}

TEST_CASE("heads that are too large for flash kernels; one key") {
    check_math<float, float>({1, 9, 17, 2, 1, 300, causal}, layout::heads_first, bounds::may_hide);
    check_math<bfloat16, bfloat16>({1, 19, 19, 1, 1, 512, full}, layout::fused, bounds::may_hide);
    check_math<float, float>({1, 1, 1, 1, 1, 1, causal}, layout::contiguous, bounds::may_hide);
}

TEST_CASE("attention by products and softmax: scores of a thousand") {
    check_math<float, float>({1, 20, 30, 1, 1, 16, causal}, layout::contiguous, bounds::may_hide, 300);
    check_math<bfloat16, bfloat16>({1, 20, 20, 1, 1, 64, causal}, layout::fused, bounds::may_hide, 300);
}

TEST_CASE("attention by products and softmax over packed sequences") {
    support::for_each_pack([](const auto&... pack) {
        support::check_packed<float, float>(
            pack...,
            [](const support::packed_problem<float>& p, const auto& check) {
                ht::cpu device{{.threads = 1}}, two{{.threads = 2}};
                const auto got = p.template math_outcome_on<float>(device);
                check(got);
                CHECK(got.same_bits(p.template math_outcome_on<float>(two)));
            },
            attention_strategy::math);
    });
}

/// Tensors of one head, whose memory is not read.
ht::kernel::attention_forward<bfloat16> one_head(extent time, extent head_size, attention_strategy strategy) {
    const ht::view<bfloat16, 4> x(reinterpret_cast<bfloat16*>(64), {1, time, 1, head_size});
    return {x, x, x, x, {}, {.strategy = strategy}};
}

TEST_CASE("the choice of a strategy states its reason") {
    ht::cpu device{{.threads = 1}};
    const auto choose = [&](extent head_size, attention_strategy strategy) {
        return ht::choose_attention<ht::amp_bf16>(device, one_head(40, head_size, strategy));
    };
    CHECK(choose(256, attention_strategy::automatic).strategy == attention_strategy::flash);
    CHECK(choose(256, attention_strategy::automatic).reason == "flash: math would store 40 x 40 scores a head");
    CHECK(choose(64, attention_strategy::flash).strategy == attention_strategy::flash);
    CHECK(choose(64, attention_strategy::math).strategy == attention_strategy::math);
    CHECK(choose(64, attention_strategy::math).reason == "math: it was requested");
    for (const auto strategy : {attention_strategy::automatic, attention_strategy::math}) {
        CHECK(choose(512, strategy).strategy == attention_strategy::math);
        CHECK(choose(512, strategy).reason == "math: head_size is 512; flash kernels take a head_size of at most 256");
    }
    CHECK_THROWS_WITH_AS(
        choose(257, attention_strategy::flash),
        "attention: flash was requested; flash kernels take a head_size of at most 256, and head_size is 257",
        ht::argument_error);
    auto broken = one_head(40, 64, attention_strategy::automatic);
    broken.options.scale = -1;
    CHECK_THROWS_AS(ht::choose_attention<ht::amp_bf16>(device, broken), ht::argument_error);
}

TEST_CASE("the operation uses the requested strategy") {
    const support::problem<bfloat16> p({1, 20, 20, 2, 2, 16, causal}, layout::contiguous);
    ht::cpu device{{.threads = 1}};
    const auto flash = support::outcome_of<bfloat16>(p, device), math = support::math_outcome_of<bfloat16>(p, device);
    CHECK_FALSE(flash.same_bits(math));
    const auto by_policy = [&](attention_strategy strategy) {
        return support::outcome<bfloat16>(p, [&](auto forward, auto backward) {
            forward.options.strategy = backward.options.strategy = strategy;
            ht::attention<ht::amp_bf16>(device, forward.q, forward.k, forward.v, forward.o, forward.logsumexp,
                                        forward.options);
            ht::attention_gradients<ht::amp_bf16>(device, backward);
        });
    };
    CHECK(by_policy(attention_strategy::automatic).same_bits(flash));
    CHECK(by_policy(attention_strategy::flash).same_bits(flash));
    CHECK(by_policy(attention_strategy::math).same_bits(math));
}

TEST_CASE("the math strategy's scratch memory: one head's scores, and the workspace of its products") {
    ht::cpu device{{.threads = 1}};
    const auto bytes = [&](extent time) {
        return ht::workspace_bytes(device, [&](auto& d) {
            const auto a = one_head(time, 512, attention_strategy::automatic);
            ht::attention<ht::amp_bf16>(d, a.q, a.k, a.v, a.o, a.logsumexp, a.options);
        });
    };
    const std::size_t scores = std::size_t{1024} * 1024 * sizeof(float);
    CHECK(bytes(1024) >= scores);
    CHECK(bytes(1024) <= 4 * scores);
}

}  // namespace kernel_attention_math_tests
