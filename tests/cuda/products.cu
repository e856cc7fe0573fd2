// SPDX-License-Identifier: MIT
/// \file
/// Matrix products on a GPU: the checks of tests/kernel.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/matmul/checks.hpp"

namespace {

using device_type = support::waiting_cuda;

namespace matmul {
using namespace matmul_test;

/// A layout's rows or columns begin on multiples of 16 bytes, whatever their length.
layout aligned(const layout& l, extent rows, extent columns) {
    const extent length = l.contiguous == order::rows ? columns : rows;
    return {l.contiguous, (8 - length % 8) % 8 + 8 * (l.gap > 0 ? 1 : 0), l.offset > 0 ? 8 : 0};
}

template <class P, class A, class B, class C>
void multiply_all() {
    device_type device;
    for (const sizes& s : {sizes{1, 1, 1}, sizes{33, 65, 37}, sizes{100, 72, 200}, sizes{130, 129, 97}, sizes{64, 256, 64}, sizes{300, 333, 515}}) {
        const std::vector<double> want = exact_product(s);
        for (std::size_t a = 0; a < 4; ++a) {
            for (std::size_t b = 0; b < 4; ++b) {
                CAPTURE(a);
                CAPTURE(b);
                const layout of_a = aligned(layouts[a], s.rows, s.depth), of_b = aligned(layouts[b], s.depth, s.columns);
                multiply_exactly<P, A, B, C>(device, s, want, layouts[a], layouts[b], layouts[a < 2 ? 0 : 2]);
                multiply_exactly<P, A, B, C>(device, s, want, of_a, of_b, aligned(layouts[a < 2 ? 0 : 2], s.rows, s.columns));
                multiply_exactly<P, A, B, C>(device, s, want, of_a, layouts[b], layouts[0]);
            }
        }
    }
    const sizes many{12200, 9, 97};
    multiply_exactly<P, A, B, C>(device, many, exact_product(many), layouts[0], layouts[0], layouts[0]);
}

TEST_CASE("matmul on cuda: exact on small integers") {
    SUBCASE("fp32") { multiply_all<ht::full_fp32, float, float, float>(); }
    SUBCASE("bf16") { multiply_all<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(); }
    SUBCASE("fp16, into fp32") { multiply_all<ht::amp_fp16, float16, float16, float>(); }
    SUBCASE("bf16 and fp32 operands") { multiply_all<ht::amp_bf16, bfloat16, float, float>(); }
}

TEST_CASE("matmul on cuda: nothing to sum, nothing at all, a batch") {
    device_type device;
    nothing_to_sum(device);
    each_matrix_of_a_batch(device);
    infinities_and_nans(device);
}

template <class P, class A, class B, class C>
void random_within_bounds(const sizes& s) {
    device_type device;
    const auto run = [&](const auto& test) { test(device); };
    const double roundoff = std::is_same_v<typename P::compute, float> ? support::u : matrix_unit_roundoff;
    within_bounds<P, A, B, C>(s, layouts[2], layouts[3], run, roundoff);
    within_bounds<P, A, B, C>(s, aligned(layouts[1], s.rows, s.depth), aligned(layouts[0], s.depth, s.columns), run, roundoff);
}

TEST_CASE("matmul on cuda: random products within k u of their magnitudes") {
    SUBCASE("fp32") { random_within_bounds<ht::full_fp32, float, float, float>({31, 700, 65}); }
    SUBCASE("bf16") { random_within_bounds<ht::amp_bf16, bfloat16, bfloat16, bfloat16>({31, 700, 65}); }
    SUBCASE("bf16 into fp32") { random_within_bounds<ht::amp_bf16, bfloat16, bfloat16, float>({170, 300, 330}); }
    SUBCASE("fp32 operands rounded to fp16") { random_within_bounds<ht::amp_fp16, float, float, float16>({17, 300, 33}); }
    SUBCASE("fp16 operands rounded to bf16") { random_within_bounds<ht::amp_bf16, float16, bfloat16, float>({17, 300, 33}); }
}
}  // namespace matmul

}  // namespace
