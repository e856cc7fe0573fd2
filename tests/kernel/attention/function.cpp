// SPDX-License-Identifier: MIT
/// \file
/// The free functions ht::attention and ht::attention_gradients, within the bounds of the kernels' tests.
#include <doctest/doctest.h>

#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/policy/presets.hpp>

#include "kernel/attention/checks.hpp"

namespace kernel_attention_function_tests {

using namespace support;

template <class P, class Compute, class T>
void within_bounds(const attention_sizes& sizes) {
    ht::cpu device{{.threads = 2}};
    check_problem<Compute, T>(sizes, layout{}, bounds::telling, 1, [&](const problem<T>& p, const auto& check) {
        check(outcome<T>(p, [&](const auto& f, const auto& b) {
            ht::attention<P>(device, f.q, f.k, f.v, f.o, f.logsumexp, f.options);
            ht::attention_gradients<P>(device, b.q, b.k, b.v, b.o, b.logsumexp, b.d_o, b.dq, b.dk, b.dv, b.options);
        }));
        // Without a backward pass: the same o, without logsumexp.
        const outcome<T> alone(
            p, [&](const auto& f, const auto&) { ht::attention<P>(device, f.q, f.k, f.v, f.o, {}, f.options); });
        const outcome<T> kept(p, [&](const auto& f, const auto&) {
            ht::attention<P>(device, f.q, f.k, f.v, f.o, f.logsumexp, f.options);
        });
        CHECK(alone.o.same_bits(kept.o));
    });
}

TEST_CASE("attention: the free functions within their bounds of the definition") {
    within_bounds<ht::full_fp32, float, float>(
        {.batch = 2, .queries = 37, .keys = 41, .heads = 3, .groups = 3, .head_size = 16});
    within_bounds<ht::amp_bf16, ht::bfloat16, ht::bfloat16>(
        {.batch = 1, .queries = 33, .keys = 33, .heads = 4, .groups = 2, .head_size = 24});
}

}  // namespace kernel_attention_function_tests
