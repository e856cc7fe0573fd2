// SPDX-License-Identifier: MIT
/// \file
/// Products of random numbers: within the bound that k and the unit roundoffs give, and the same bits at any number of
/// threads.
#include <cmath>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/reference.hpp>

#include "kernel/matmul/operands.hpp"
#include "support/bounds.hpp"

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using matmul_test::layouts;
using matmul_test::number;
using matmul_test::operand;

template <class P, class A, class B, class C>
void within_bounds(extent rows, extent depth, extent columns) {
    const operand<A> a(rows, depth, layouts[2], matmul_test::normals(1));
    const operand<B> b(depth, columns, layouts[3], matmul_test::normals(2));
    std::vector<double> sums(static_cast<std::size_t>(rows * columns)), magnitudes(sums.size());
    using compute = typename P::compute;
    const auto at = [&](extent i, extent j) { return static_cast<std::size_t>(i * columns + j); };
    ht::reference::matmul<compute>(a.view, b.view, [&](double sum, extent i, extent j) {
        sums[at(i, j)] = sum;
        for (extent p = 0; p < depth; ++p) magnitudes[at(i, j)] += std::fabs(number(compute(number(a.view(i, p)))) * number(compute(number(b.view(p, j)))));
    });
    matmul_test::on_every_set(2, [&](ht::cpu& device) {
        const operand<C> c(rows, columns, layouts[2]);
        ht::matmul<P>(device, a.view, b.view, c.view);
        support::comparison all;
        for (extent i = 0; i < rows; ++i) {
            for (extent j = 0; j < columns; ++j) {
                // Each of k products passes through its own rounding and at most k additions.
                const double error = support::gamma(static_cast<double>(depth) + 1) * magnitudes[at(i, j)];
                all.expect(number(c.view(i, j)), sums[at(i, j)], support::rounded<C>(sums[at(i, j)], error));
            }
        }
        CHECK_WITHIN(all);
    });
}

TEST_CASE("matmul: random products within k u of their magnitudes") {
    SUBCASE("fp32") { within_bounds<ht::full_fp32, float, float, float>(31, 700, 65); }
    SUBCASE("bf16") { within_bounds<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(31, 700, 65); }
    SUBCASE("bf16 into fp32") { within_bounds<ht::amp_bf16, bfloat16, bfloat16, float>(17, 300, 33); }
    SUBCASE("fp32 operands rounded to bf16") { within_bounds<ht::amp_bf16, float, float, float>(17, 300, 33); }
    SUBCASE("fp32 operands rounded to fp16") { within_bounds<ht::amp_fp16, float, float, float16>(17, 300, 33); }
}

template <class P, class T>
void same_bits() {
    struct sizes {
        extent rows, depth, columns;
    };
    for (const sizes& s : {sizes{1, 300, 700}, sizes{130, 300, 260}, sizes{257, 33, 129}, sizes{300, 64, 5}}) {
        CAPTURE(s.rows);
        const operand<T> a(s.rows, s.depth, layouts[0], matmul_test::normals(3)), b(s.depth, s.columns, layouts[1], matmul_test::normals(4));
        for (const ht::isa set : ht::every_isa) {
            if (!support::is_tested(set)) continue;
            const std::string instruction_set = ht::name(set);
            CAPTURE(instruction_set);
            std::vector<float> one(static_cast<std::size_t>(s.rows * s.columns)), other(one.size());
            const auto run = [&](int threads, std::vector<float>& c) {
                ht::cpu device{{.threads = threads, .instruction_set = set}};
                ht::matmul<P>(device, a.view, b.view, ht::view<float, 2>(c.data(), {s.rows, s.columns}));
            };
            run(1, one);
            for (const int threads : {2, 7}) {
                run(threads, other);
                CHECK_MESSAGE(std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0, threads, " threads");
            }
        }
    }
}

TEST_CASE("matmul: the same bits at any number of threads") {
    SUBCASE("fp32") { same_bits<ht::full_fp32, float>(); }
    SUBCASE("bf16") { same_bits<ht::amp_bf16, bfloat16>(); }
    SUBCASE("fp16") { same_bits<ht::amp_fp16, float16>(); }
}

TEST_CASE("matmul: infinities and NaNs come through") {
    matmul_test::on_every_set(1, [](ht::cpu& device) {
        const float inf = HUGE_VALF;
        std::vector<float> a = {1, inf, -inf, 1, NAN, 1}, b = {1, 1, 1, 1}, c(6);
        ht::matmul<ht::full_fp32>(device, ht::view<float, 2>(a.data(), {3, 2}), ht::view<float, 2>(b.data(), {2, 2}), ht::view<float, 2>(c.data(), {3, 2}));
        CHECK(c[0] == inf);
        CHECK(c[3] == -inf);
        CHECK(std::isnan(c[4]));
        ht::matmul<ht::amp_bf16>(device, ht::view<float, 2>(a.data(), {3, 2}), ht::view<float, 2>(b.data(), {2, 2}), ht::view<float, 2>(c.data(), {3, 2}));
        CHECK(c[1] == inf);
        CHECK(c[2] == -inf);
        CHECK(std::isnan(c[5]));
    });
}

}  // namespace
