// SPDX-License-Identifier: MIT
/// \file
/// Products of any device against their definition.
///
///     matmul_test::multiply_exactly<ht::amp_bf16, bfloat16, bfloat16, float>(device, {33, 65, 37}, want, a_layout, b_layout);
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/matmul/reference.hpp>

#include "kernel/matmul/operands.hpp"
#include "support/bounds.hpp"

namespace matmul_test {

using ht::bfloat16;
using ht::float16;

// ---- exact products

struct sizes {
    extent rows, depth, columns;
};

inline std::vector<double> exact_product(const sizes& s) {
    const small_integers a{1}, b{2};
    std::vector<double> c(static_cast<std::size_t>(s.rows * s.columns));
    for (extent i = 0; i < s.rows; ++i) {
        for (extent p = 0; p < s.depth; ++p) {
            for (extent j = 0; j < s.columns; ++j)
                c[static_cast<std::size_t>(i * s.columns + j)] += number(a(i, p)) * number(b(p, j));
        }
    }
    return c;
}

/// Whether c holds sums that are exact, rounded once.
template <class C>
bool holds(const operand<C>& c, const sizes& s, const std::vector<double>& want) {
    for (extent i = 0; i < s.rows; ++i) {
        for (extent j = 0; j < s.columns; ++j) {
            if (number(c.view(i, j)) !=
                number(C(static_cast<float>(want[static_cast<std::size_t>(i * s.columns + j)]))))
                return false;
        }
    }
    return c.intact();
}

template <class P, class A, class B, class C, class Device>
void multiply_exactly(Device& device, const sizes& s, const std::vector<double>& want, const layout& a_layout,
                      const layout& b_layout, const layout& c_layout) {
    CAPTURE(s.rows);
    CAPTURE(s.depth);
    CAPTURE(s.columns);
    const operand<A> a(s.rows, s.depth, a_layout, small_integers{1});
    const operand<B> b(s.depth, s.columns, b_layout, small_integers{2});
    const operand<C> c(s.rows, s.columns, c_layout);
    ht::matmul<P>(device, a.view, b.view, c.view);
    CHECK(c.intact());
    for (extent i = 0; i < s.rows; ++i) {
        for (extent j = 0; j < s.columns; ++j) {
            const double sum = want[static_cast<std::size_t>(i * s.columns + j)];
            if (number(c.view(i, j)) != number(C(static_cast<float>(sum))))
                FAIL("element ", i, ", ", j, ": got ", number(c.view(i, j)), ", expected ", sum);
        }
    }
}

/// The same for all pairs of layouts if operands have at most `few` elements, otherwise for each layout once.
template <class P, class A, class B, class C, class Device>
void multiply_in_layouts(Device& device, const sizes& s, const std::vector<double>& want, extent few) {
    const bool is_large = s.rows * s.depth + s.depth * s.columns > few;
    for (std::size_t a = 0; a < 4; ++a) {
        for (std::size_t b = 0; b < 4; ++b) {
            CAPTURE(a);
            CAPTURE(b);
            if (!is_large || (a + b) % 4 == 1)
                multiply_exactly<P, A, B, C>(device, s, want, layouts[a], layouts[b], layouts[a < 2 ? 0 : 2]);
        }
    }
}

template <class Device>
void nothing_to_sum(Device& device) {
    const operand<float> a(3, 0, layouts[0]), b(0, 5, layouts[0]);
    const operand<float> c(3, 5, layouts[2], small_integers{1});
    ht::matmul<ht::full_fp32>(device, a.view, b.view, c.view);
    for (extent i = 0; i < 3; ++i) {
        for (extent j = 0; j < 5; ++j) CHECK(c.view(i, j) == 0.0f);
    }
    CHECK(c.intact());
    const operand<bfloat16> d(3, 5, layouts[2], small_integers{1}), e(3, 0, layouts[0]), f(0, 5, layouts[0]);
    ht::matmul<ht::amp_bf16>(device, e.view, f.view, d.view, ht::add_product{});
    for (extent i = 0; i < 3; ++i) {
        for (extent j = 0; j < 5; ++j) CHECK(number(d.view(i, j)) == number(small_integers{1}(i, j)));
    }

    const operand<bfloat16> x(0, 4, layouts[0]), y(4, 5, layouts[0], small_integers{1}), none(0, 5, layouts[0]);
    ht::matmul<ht::amp_bf16>(device, x.view, y.view, none.view);
    CHECK(none.intact());
    const operand<bfloat16> z(4, 0, layouts[0]);
    ht::matmul<ht::amp_bf16>(device, ht::transpose(y.view), z.view, ht::view<bfloat16, 2>(nullptr, {5, 0}));
}

template <class Device>
void each_matrix_of_a_batch(Device& device) {
    constexpr extent count = 3, rows = 5, depth = 7, columns = 9;
    support::random data(1);
    std::vector<bfloat16> a = data.integers<bfloat16>(count * rows * depth, 4),
                          b = data.integers<bfloat16>(count * depth * columns, 4);
    std::vector<float> c(count * rows * columns);
    const ht::view<bfloat16, 3> x(a.data(), {count, rows, depth}), y(b.data(), {count, columns, depth});
    const ht::view<float, 3> z(c.data(), {count, rows, columns});
    ht::batched_matmul<ht::amp_bf16>(device, x, ht::transpose(y), z);
    for (extent n = 0; n < count; ++n) {
        for (extent i = 0; i < rows; ++i) {
            for (extent j = 0; j < columns; ++j) {
                double sum = 0;
                for (extent p = 0; p < depth; ++p) sum += number(x(n, i, p)) * number(y(n, j, p));
                if (number(z(n, i, j)) != sum)
                    FAIL("matrix ", n, ", element ", i, ", ", j, ": got ", z(n, i, j), ", expected ", sum);
            }
        }
    }
    ht::batched_matmul<ht::amp_bf16>(device, ht::view<bfloat16, 3>(a.data(), {0, rows, depth}),
                                     ht::view<bfloat16, 3>(b.data(), {0, depth, columns}),
                                     ht::view<float, 3>(c.data(), {0, rows, columns}));
}

/// Operands in unaligned lines give the bits that aligned ones give.
template <class P, class T, class Device>
void unaligned_as_aligned(Device& device, const sizes& s) {
    operand<float> want(s.rows, s.columns, layouts[0]), got(s.rows, s.columns, layouts[0]);
    const auto multiply = [&](const layout& of_a, const layout& of_b, const operand<float>& c) {
        const operand<T> a(s.rows, s.depth, of_a, normals(1)), b(s.depth, s.columns, of_b, normals(2));
        ht::matmul<P>(device, a.view, b.view, c.view);
        CHECK((a.intact() && b.intact() && c.intact()));
    };
    for (const std::size_t i : {std::size_t{2}, std::size_t{3}}) {
        for (const std::size_t j : {std::size_t{2}, std::size_t{3}}) {
            CAPTURE(i);
            CAPTURE(j);
            const layout of_a = aligned(layouts[i], s.rows, s.depth), of_b = aligned(layouts[j], s.depth, s.columns);
            multiply(of_a, of_b, want);
            multiply(layouts[i], layouts[j], got);
            CHECK(got.memory.same_bits(want.memory));
            multiply(of_a, layouts[j], got);
            CHECK(got.memory.same_bits(want.memory));
        }
    }
}

// ---- random products

/// The roundoff of an addition on a GPU's matrix units, which may truncate.
inline constexpr double matrix_unit_roundoff = 2 * support::u;

/// run(test) calls test(device) for each device to be tested. The error of an addition is at most the roundoff; products have the
/// additional error `of_operands`.
template <class P, class A, class B, class C, class Run>
void within_bounds(const sizes& s, const layout& a_layout, const layout& b_layout, const Run& run,
                   double roundoff = support::u, double of_operands = 0) {
    const operand<A> a(s.rows, s.depth, a_layout, normals(1));
    const operand<B> b(s.depth, s.columns, b_layout, normals(2));
    std::vector<double> sums(static_cast<std::size_t>(s.rows * s.columns)), magnitudes(sums.size());
    using compute = typename P::compute;
    const auto at = [&](extent i, extent j) { return static_cast<std::size_t>(i * s.columns + j); };
    ht::reference::matmul<compute>(a.view, b.view, [&](double sum, extent i, extent j) {
        sums[at(i, j)] = sum;
        for (extent p = 0; p < s.depth; ++p)
            magnitudes[at(i, j)] +=
                std::fabs(number(compute(number(a.view(i, p)))) * number(compute(number(b.view(p, j)))));
    });
    run([&](auto& device) {
        const operand<C> c(s.rows, s.columns, layouts[2]);
        ht::matmul<P>(device, a.view, b.view, c.view);
        support::comparison all;
        for (extent i = 0; i < s.rows; ++i) {
            for (extent j = 0; j < s.columns; ++j) {
                const double error =
                    (support::product_error<compute>(static_cast<double>(s.depth), roundoff) + of_operands) *
                    magnitudes[at(i, j)];
                all.expect(number(c.view(i, j)), sums[at(i, j)], support::rounded<C>(sums[at(i, j)], error));
            }
        }
        CHECK_WITHIN(all);
    });
}

template <class Device>
void infinities_and_nans(Device& device) {
    const float inf = HUGE_VALF;
    std::vector<float> a = {1, inf, -inf, 1, NAN, 1}, b = {1, 1, 1, 1}, c(6);
    ht::matmul<ht::full_fp32>(device, ht::view<float, 2>(a.data(), {3, 2}), ht::view<float, 2>(b.data(), {2, 2}),
                              ht::view<float, 2>(c.data(), {3, 2}));
    CHECK(c[0] == inf);
    CHECK(c[3] == -inf);
    CHECK(std::isnan(c[4]));
    ht::matmul<ht::amp_bf16>(device, ht::view<float, 2>(a.data(), {3, 2}), ht::view<float, 2>(b.data(), {2, 2}),
                             ht::view<float, 2>(c.data(), {3, 2}));
    CHECK(c[1] == inf);
    CHECK(c[2] == -inf);
    CHECK(std::isnan(c[5]));
    // A number that tf32 rounds to infinity, and a NaN with all bits set.
    a[0] = std::numeric_limits<float>::max(), a[4] = std::bit_cast<float>(0x7fffffffu);
    ht::matmul<ht::tf32>(device, ht::view<float, 2>(a.data(), {3, 2}), ht::view<float, 2>(b.data(), {2, 2}),
                         ht::view<float, 2>(c.data(), {3, 2}));
    CHECK(c[0] == inf);
    CHECK(c[3] == -inf);
    CHECK(std::isnan(c[4]));
    CHECK(std::isnan(c[5]));
}

}  // namespace matmul_test
