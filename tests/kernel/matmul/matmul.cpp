// SPDX-License-Identifier: MIT
/// \file
/// Products of small integers: every sum is exact in any order, so the comparison is equality. All layouts, odd sizes,
/// unaligned and strided views, all instruction sets.
#include <vector>

#include <doctest/doctest.h>

#include "kernel/matmul/checks.hpp"
#include "kernel/matmul/each_set.hpp"

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using matmul_test::layouts;
using matmul_test::sizes;

template <class P, class A, class B, class C>
void multiply_all() {
    // Around the tiles of every unit, the blocks of columns, and the panels' depth of 256.
    const sizes all[] = {{1, 1, 1},    {1, 7, 67},     {2, 3, 5},    {7, 13, 17},   {12, 32, 33},  {31, 64, 15},
                         {33, 65, 31}, {97, 100, 129}, {5, 257, 70}, {13, 600, 64}, {65, 256, 513}};
    for (const sizes& s : all) {
        const std::vector<double> want = matmul_test::exact_product(s);
        matmul_test::on_every_set(s.rows % 2 == 0 ? 1 : 2, [&](ht::cpu& device) {
            // All pairs of layouts where they are cheap, each layout once where they are not.
            const bool is_large = s.rows * s.depth + s.depth * s.columns > 20000;
            for (std::size_t a = 0; a < 4; ++a) {
                for (std::size_t b = 0; b < 4; ++b) {
                    CAPTURE(a);
                    CAPTURE(b);
                    if (!is_large || (a + b) % 4 == 1)
                        matmul_test::multiply_exactly<P, A, B, C>(device, s, want, layouts[a], layouts[b],
                                                                  layouts[a < 2 ? 0 : 2]);
                }
            }
        });
    }
}

TEST_CASE("matmul: exact on small integers") {
    SUBCASE("fp32") { multiply_all<ht::full_fp32, float, float, float>(); }
    SUBCASE("bf16") { multiply_all<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(); }
    SUBCASE("fp16, into fp32") { multiply_all<ht::amp_fp16, float16, float16, float>(); }
    SUBCASE("bf16 and fp32 operands") { multiply_all<ht::amp_bf16, bfloat16, float, float>(); }
}

TEST_CASE("matmul: a sum over nothing is zero, a product without elements touches nothing") {
    matmul_test::on_every_set(2, [](ht::cpu& device) { matmul_test::nothing_to_sum(device); });
}

TEST_CASE("matmul: b that does not fit into one packed slice") {
    // 8192 x 1100 floats are more than the 32 MiB that are packed at a time.
    constexpr extent depth = 8192, columns = 1100;
    ht::cpu device{{.threads = 2}};
    std::vector<float> b(static_cast<std::size_t>(depth * columns)), a(depth), c(columns);
    for (std::size_t p = 0; p < a.size(); ++p) a[p] = static_cast<float>(p % 5) - 2;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>((i * 7 + i / columns) % 9) - 4;
    ht::matmul<ht::full_fp32>(device, ht::view<float, 2>(a.data(), {1, depth}),
                              ht::view<float, 2>(b.data(), {depth, columns}),
                              ht::view<float, 2>(c.data(), {1, columns}));
    for (std::size_t j = 0; j < c.size(); ++j) {
        double sum = 0;
        for (std::size_t p = 0; p < a.size(); ++p)
            sum += static_cast<double>(a[p]) * static_cast<double>(b[p * columns + j]);
        if (static_cast<double>(c[j]) != sum) FAIL("column ", j, ": got ", c[j], ", expected ", sum);
    }
}

TEST_CASE("batched_matmul: each matrix of the batch") {
    matmul_test::on_every_set(1, [](ht::cpu& device) { matmul_test::each_matrix_of_a_batch(device); });
}

TEST_CASE("matmul: tensors and 16-bit results beside views") {
    ht::cpu device{{.threads = 1}};
    ht::tensor<float, 2> a(device.memory(), {2, 3}), b(device.memory(), {3, 2});
    ht::tensor<float16, 2> c(device.memory(), {2, 2});
    for (int i = 0; i < 6; ++i) a.data()[i] = b.data()[i] = static_cast<float>(i + 1);
    ht::matmul<ht::amp_fp16>(device, a, b.const_view(), c);
    const float want[] = {22, 28, 49, 64};
    for (int i = 0; i < 4; ++i) CHECK(static_cast<float>(c.data()[i]) == want[i]);
}

TEST_CASE("matmul: operands that do not fit are refused with their shapes") {
    ht::cpu device{{.threads = 1}};
    std::vector<float> memory(64);
    const auto matrix = [&](extent rows, extent columns) { return ht::view<float, 2>(memory.data(), {rows, columns}); };
    CHECK_THROWS_WITH_AS(ht::matmul<ht::full_fp32>(device, matrix(2, 3), matrix(4, 5), matrix(2, 5)),
                         "matmul: the inner extents differ: a is (2, 3), b is (4, 5); b needs 3 rows", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::matmul<ht::full_fp32>(device, matrix(2, 3), matrix(3, 5), matrix(5, 2)),
                         "matmul: c is (5, 2); (2, 3) times (3, 5) gives (2, 5)", ht::shape_error);
    const ht::view<float, 2> holes(memory.data(), {2, 3}, {12, 2});
    CHECK_THROWS_WITH_AS(ht::matmul<ht::full_fp32>(device, holes, matrix(3, 5), matrix(2, 5)),
                         "matmul: neither axis of a (2, 3) is contiguous; its strides are (12, 2)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::matmul<ht::full_fp32>(device, matrix(5, 2), holes, matrix(5, 3)),
                         "matmul: neither axis of b (2, 3) is contiguous; its strides are (12, 2)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::matmul<ht::full_fp32>(device, matrix(3, 5), matrix(5, 2), ht::transpose(matrix(2, 3))),
                         "matmul: c (3, 2) has gaps within its rows; its strides are (1, 3)", ht::shape_error);

    const auto three = [&](extent n, extent rows, extent columns) {
        return ht::view<float, 3>(memory.data(), {n, rows, columns});
    };
    CHECK_THROWS_WITH_AS(ht::batched_matmul<ht::full_fp32>(device, three(2, 2, 3), three(3, 3, 1), three(2, 2, 1)),
                         "batched_matmul: a holds 2 matrices, b 3, c 2", ht::shape_error);
}

}  // namespace
