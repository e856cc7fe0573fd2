// SPDX-License-Identifier: MIT
/// \file
/// Products that sum the squares of their results while they store them: with every strategy, on every instruction set.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "kernel/matmul/checks.hpp"
#include "kernel/matmul/each_set.hpp"

namespace kernel_matmul_squares_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using matmul_test::operand;
using matmul_test::order;
using matmul_test::sizes;

template <class T>
double squares_in_double(const ht::view<T, 2>& c) {
    double sum = 0;
    for (extent i = 0; i < c.extent_of(0); ++i) {
        for (extent j = 0; j < c.extent_of(1); ++j) sum += matmul_test::number(c(i, j)) * matmul_test::number(c(i, j));
    }
    return sum;
}

template <class Compute, class T>
ht::square_sum multiply(ht::cpu& device, const operand<T>& a, const operand<T>& b, const operand<float>& c,
                        ht::write_mode mode) {
    ht::square_sum squares;
    ht::detail::product<Compute>(device, a.view, b.view, c.view, mode, &squares);
    return squares;
}

/// Tiles, a block with few rows, all of a, k in one chunk and in several, private and shared b, partial tiles at the edges.
constexpr sizes cuts[] = {{1, 5, 3},      {7, 40, 67},   {12, 32, 32},  {31, 300, 100},
                          {100, 20, 130}, {97, 300, 65}, {260, 40, 70}, {300, 260, 33}, {1100, 40, 70}};

template <class Compute, class T>
void sums_what_it_stores() {
    support::comparison all;
    for (const sizes& s : cuts) {
        CAPTURE(s.rows);
        for (const order o : {order::rows, order::columns}) {
            const operand<T> a(s.rows, s.depth, {o, 0, 0}, matmul_test::normals{1});
            const operand<T> b(s.depth, s.columns, {o, 0, 1}, matmul_test::normals{2});
            const operand<float> c(s.rows, s.columns, {order::rows, 3, 1});
            support::for_each_isa([&](ht::isa set) {
                double of_one_thread[2]{};
                for (const int threads : {1, 2, 3}) {
                    ht::cpu device{{.threads = threads, .instruction_set = set}};
                    for (const ht::write_mode mode : {ht::write_mode::overwrite, ht::write_mode::add}) {
                        const ht::square_sum got = multiply<Compute>(device, a, b, c, mode);
                        const double want = squares_in_double(c.view);
                        constexpr auto roundings = static_cast<double>(ht::kernel::written_squares::depth + 1);
                        all.expect(got.sum, want, support::gamma(roundings) * want);
                        CHECK(got.is_known(s.rows * s.columns));
                        double& first = of_one_thread[mode == ht::write_mode::add];
                        if (threads == 1) first = got.sum;
                        CHECK(got.sum == first);
                        CHECK(c.intact());
                    }
                }
            });
        }
    }
    CHECK_WITHIN(all);
}

TEST_CASE("matmul: squares of results, the same bits at any number of threads") {
    SUBCASE("fp32") { sums_what_it_stores<float, float>(); }
    SUBCASE("bf16") { sums_what_it_stores<bfloat16, bfloat16>(); }
}

TEST_CASE("matmul: squares are summed in the last chunk of k") {
    const sizes s{37, 33000, 70};
    const operand<float> a(s.rows, s.depth, {order::rows, 0, 0}, matmul_test::small_integers{1});
    const operand<float> b(s.depth, s.columns, {order::rows, 0, 0}, matmul_test::small_integers{2});
    const operand<float> c(s.rows, s.columns, {order::rows, 0, 0});
    ht::cpu device{{.threads = 2}};
    const ht::square_sum squares = multiply<float>(device, a, b, c, ht::write_mode::overwrite);
    const double want = squares_in_double(c.view);
    CHECK(std::fabs(squares.sum - want) <= support::gamma(ht::kernel::written_squares::depth + 1) * want);
}

TEST_CASE("matmul: a sum of squares that float cannot represent accurately counts as unknown") {
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    matmul_test::on_every_set(2, [&](ht::cpu& device) {
        const auto of = [&](float everywhere, float once) {
            const operand<float> a(20, 1, {order::rows, 0, 0}, [](extent, extent) { return 1.0f; });
            const operand<float> b(1, 40, {order::rows, 0, 0},
                                   [&](extent, extent j) { return j == 37 ? once : everywhere; });
            const operand<float> c(20, 40, {order::rows, 0, 0});
            return multiply<float>(device, a, b, c, ht::write_mode::overwrite).is_known(20 * 40);
        };
        CHECK(of(1, 2));
        CHECK_FALSE(of(1, infinity));
        CHECK_FALSE(of(1, nan));
        CHECK_FALSE(of(0, nan));
        CHECK_FALSE(of(1, 1e30f));   // its square is not a float
        CHECK(of(1e-30f, 1));        // squares that vanish when added to one
        CHECK_FALSE(of(1e-30f, 0));  // all squares underflow
        CHECK_FALSE(of(1e-18f, 0));  // a square too close to underflow
        CHECK(of(1e-12f, 0));
        CHECK_FALSE(of(0, 0));
    });
}

TEST_CASE("matmul: no squares of a result that is rounded, or of an empty one") {
    ht::cpu device{{.threads = 1}};
    const operand<bfloat16> a(13, 20, {order::rows, 0, 0}, matmul_test::normals{1});
    const operand<bfloat16> b(20, 35, {order::rows, 0, 0}, matmul_test::normals{2});
    const operand<bfloat16> c(13, 35, {order::rows, 0, 0});
    ht::square_sum squares;
    ht::detail::product<bfloat16>(device, a.view, b.view, c.view, ht::write_mode::overwrite, &squares);
    CHECK(squares.count == 0);
    CHECK_FALSE(squares.is_known(13 * 35));
    CHECK_FALSE(squares.is_known(0));
}

}  // namespace kernel_matmul_squares_tests
