// SPDX-License-Identifier: MIT
/// \file
/// Products of eight-bit numbers on a GPU: by tensor cores that read eight bits on sm_89 and from sm_120 on, elsewhere after
/// conversion to 16 bits.
// compile: with --full, sm_89 too, at most 20 kernels. Kernels of products.cu, on operands of eight bits.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/matmul/checks.hpp"

namespace {

using namespace matmul_test;
using ht::float8_e4m3;
using ht::float8_e5m2;

TEST_CASE("cuda: products of bytes are exact on small integers, in all layouts") {
    support::waiting_cuda gpu;
    for (const sizes& s : {sizes{33, 65, 37}, sizes{300, 200, 130}, sizes{40, 8193, 24}}) {
        const std::vector<double> want = exact_product(s);
        for (std::size_t i = 0; i < 4; ++i) {
            CAPTURE(i);
            const layout &a = layouts[i / 2], &b = layouts[i % 2];
            multiply_exactly<ht::amp_bf16, float8_e5m2, float8_e4m3, float>(gpu, s, want, aligned(a, s.rows, s.depth, 16),
                                                                            aligned(b, s.depth, s.columns, 16), layouts[2]);
        }
        multiply_exactly<ht::amp_bf16, float8_e5m2, float8_e4m3, float>(gpu, s, want, layouts[2], layouts[3],
                                                                        layouts[0]);
    }
}

TEST_CASE("cuda: sums of bytes' products that matrix units truncate lose at most the stated error, for any k") {
    support::waiting_cuda gpu;
    const sizes s{20, 4000, 36};
    const auto positive = [data = support::random(1)](extent, extent) mutable {
        return 0.5f + std::fabs(static_cast<float>(data.normal()));
    };
    const operand<float8_e4m3> a(s.rows, s.depth, aligned(layouts[0], s.rows, s.depth, 16), positive),
        b(s.depth, s.columns, aligned(layouts[1], s.depth, s.columns, 16), positive);
    const operand<float> c(s.rows, s.columns, layouts[0]);
    ht::matmul<ht::amp_bf16>(gpu, a.view, b.view, c.view);
    support::comparison all;
    ht::reference::matmul<bfloat16>(a.view, b.view, [&](double sum, extent i, extent j) {
        // No term is negative: the sum is the sum of magnitudes.
        const double additions = static_cast<double>(s.depth) + 1;
        all.expect(number(c.view(i, j)), sum, (35 * 0x1p-13 + support::gamma(additions, matrix_unit_roundoff)) * sum);
    });
    CHECK_WITHIN(all);
}

}  // namespace
