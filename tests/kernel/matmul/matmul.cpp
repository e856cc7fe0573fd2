// SPDX-License-Identifier: MIT
/// \file
/// Products of small integers: every sum is exact in any order, so the comparison is equality. All layouts, odd sizes,
/// unaligned and strided views, all instruction sets.
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "kernel/matmul/operands.hpp"

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using matmul_test::layouts;
using matmul_test::number;
using matmul_test::operand;

struct sizes {
    extent rows, depth, columns;
};

std::vector<double> exact_product(const sizes& s) {
    const matmul_test::small_integers a{1}, b{2};
    std::vector<double> c(static_cast<std::size_t>(s.rows * s.columns));
    for (extent i = 0; i < s.rows; ++i) {
        for (extent p = 0; p < s.depth; ++p) {
            for (extent j = 0; j < s.columns; ++j) c[static_cast<std::size_t>(i * s.columns + j)] += number(a(i, p)) * number(b(p, j));
        }
    }
    return c;
}

template <class P, class A, class B, class C>
void multiply_exactly(ht::cpu& device, const sizes& s, const std::vector<double>& want, std::size_t a_layout, std::size_t b_layout) {
    CAPTURE(s.rows);
    CAPTURE(s.depth);
    CAPTURE(s.columns);
    CAPTURE(a_layout);
    CAPTURE(b_layout);
    const operand<A> a(s.rows, s.depth, layouts[a_layout], matmul_test::small_integers{1});
    const operand<B> b(s.depth, s.columns, layouts[b_layout], matmul_test::small_integers{2});
    const operand<C> c(s.rows, s.columns, layouts[a_layout < 2 ? 0 : 2]);
    ht::matmul<P>(device, a.view, b.view, c.view);
    CHECK(c.intact());
    for (extent i = 0; i < s.rows; ++i) {
        for (extent j = 0; j < s.columns; ++j) {
            // The sum is exact; what c holds is that, rounded once.
            const double sum = want[static_cast<std::size_t>(i * s.columns + j)];
            if (number(c.view(i, j)) != number(C(static_cast<float>(sum)))) FAIL("element ", i, ", ", j, ": got ", number(c.view(i, j)), ", expected ", sum);
        }
    }
}

template <class P, class A, class B, class C>
void multiply_all() {
    // Around the tiles of every unit, the blocks of columns, and the panels' depth of 256.
    const sizes all[] = {{1, 1, 1}, {1, 7, 67}, {2, 3, 5}, {7, 13, 17}, {12, 32, 33}, {31, 64, 15}, {33, 65, 31}, {97, 100, 129}, {5, 257, 70}, {13, 600, 64}, {65, 256, 513}};
    for (const sizes& s : all) {
        const std::vector<double> want = exact_product(s);
        matmul_test::on_every_set(s.rows % 2 == 0 ? 1 : 2, [&](ht::cpu& device) {
            // All pairs of layouts where they are cheap, each layout once where they are not.
            const bool is_large = s.rows * s.depth + s.depth * s.columns > 20000;
            for (std::size_t a = 0; a < 4; ++a) {
                for (std::size_t b = 0; b < 4; ++b) {
                    if (!is_large || (a + b) % 4 == 1) multiply_exactly<P, A, B, C>(device, s, want, a, b);
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
    matmul_test::on_every_set(2, [](ht::cpu& device) {
        const operand<float> a(3, 0, layouts[0]), b(0, 5, layouts[0]);
        const operand<float> c(3, 5, layouts[2], matmul_test::small_integers{1});
        ht::matmul<ht::full_fp32>(device, a.view, b.view, c.view);
        for (extent i = 0; i < 3; ++i) {
            for (extent j = 0; j < 5; ++j) CHECK(c.view(i, j) == 0.0f);
        }
        CHECK(c.intact());

        const operand<bfloat16> x(0, 4, layouts[0]), y(4, 5, layouts[0], matmul_test::small_integers{1}), none(0, 5, layouts[0]);
        ht::matmul<ht::amp_bf16>(device, x.view, y.view, none.view);
        CHECK(none.intact());
        const operand<bfloat16> z(4, 0, layouts[0]), empty(4, 0, layouts[0]);
        ht::matmul<ht::amp_bf16>(device, ht::transpose(y.view), z.view, ht::view<bfloat16, 2>(nullptr, {5, 0}));
    });
}

TEST_CASE("matmul: b that does not fit into one packed slice") {
    // 8192 x 1100 floats are more than the 32 MiB that are packed at a time.
    constexpr extent depth = 8192, columns = 1100;
    ht::cpu device{{.threads = 2}};
    std::vector<float> b(static_cast<std::size_t>(depth * columns)), a(depth), c(columns);
    for (std::size_t p = 0; p < a.size(); ++p) a[p] = static_cast<float>(p % 5) - 2;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>((i * 7 + i / columns) % 9) - 4;
    ht::matmul<ht::full_fp32>(device, ht::view<float, 2>(a.data(), {1, depth}), ht::view<float, 2>(b.data(), {depth, columns}),
                              ht::view<float, 2>(c.data(), {1, columns}));
    for (std::size_t j = 0; j < c.size(); ++j) {
        double sum = 0;
        for (std::size_t p = 0; p < a.size(); ++p) sum += static_cast<double>(a[p]) * static_cast<double>(b[p * columns + j]);
        if (static_cast<double>(c[j]) != sum) FAIL("column ", j, ": got ", c[j], ", expected ", sum);
    }
}

TEST_CASE("batched_matmul: each matrix of the batch") {
    matmul_test::on_every_set(1, [](ht::cpu& device) {
        constexpr extent count = 3, rows = 5, depth = 7, columns = 9;
        support::random data(1);
        std::vector<bfloat16> a = data.integers<bfloat16>(count * rows * depth, 4), b = data.integers<bfloat16>(count * depth * columns, 4);
        std::vector<float> c(count * rows * columns);
        const ht::view<bfloat16, 3> x(a.data(), {count, rows, depth}), y(b.data(), {count, columns, depth});
        const ht::view<float, 3> z(c.data(), {count, rows, columns});
        ht::batched_matmul<ht::amp_bf16>(device, x, ht::transpose(y), z);
        for (extent n = 0; n < count; ++n) {
            for (extent i = 0; i < rows; ++i) {
                for (extent j = 0; j < columns; ++j) {
                    double sum = 0;
                    for (extent p = 0; p < depth; ++p) sum += number(x(n, i, p)) * number(y(n, j, p));
                    if (number(z(n, i, j)) != sum) FAIL("matrix ", n, ", element ", i, ", ", j, ": got ", z(n, i, j), ", expected ", sum);
                }
            }
        }
        ht::batched_matmul<ht::amp_bf16>(device, ht::view<bfloat16, 3>(a.data(), {0, rows, depth}), ht::view<bfloat16, 3>(b.data(), {0, depth, columns}),
                                         ht::view<float, 3>(c.data(), {0, rows, columns}));
    });
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
                         "matmul: c (3, 2) has gaps within its rows", ht::shape_error);

    const auto three = [&](extent n, extent rows, extent columns) { return ht::view<float, 3>(memory.data(), {n, rows, columns}); };
    CHECK_THROWS_WITH_AS(ht::batched_matmul<ht::full_fp32>(device, three(2, 2, 3), three(3, 3, 1), three(2, 2, 1)),
                         "batched_matmul: a holds 2 matrices, b 3, c 2", ht::shape_error);
}

}  // namespace
