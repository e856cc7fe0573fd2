// SPDX-License-Identifier: MIT
/// \file
/// Every epilogue of a product against the definition: the sum's error goes through it, its own operations add theirs,
/// and the result is rounded once.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/map/scalar.hpp>
#include <halftone/kernel/matmul/reference.hpp>

#include "kernel/matmul/operands.hpp"
#include "support/bounds.hpp"

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using matmul_test::layouts;
using matmul_test::number;
using matmul_test::operand;
using support::gamma, support::u;

double gelu(double x) { return x / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
    const double t = 1.5957691216057308 * (x + 0.044715 * x * x * x), s = 1 / (1 + std::exp(-t));
    return s + x * s * (1 - s) * 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
}
/// What a kernel's gelu is off by (exec/cpu/simd/math.inc): relative (6 + 4 |t|) u, t the argument of its sigmoid.
double gelu_error(double x) { return std::fabs(gelu(x)) * (6 + 4 * std::fabs(1.5957691216057308 * (x + 0.044715 * x * x * x))) * u; }
constexpr double largest_gelu_slope = 1.13;
constexpr double gelu_slope_error = 0x1p-21;

/// A value that was computed, and how far it may lie from what it should be.
struct approximate {
    double value, error;
};
approximate operator+(const approximate& a, double b) { return {a.value + b, a.error + u * (std::fabs(a.value + b) + a.error)}; }
approximate operator*(const approximate& a, double b) { return {a.value * b, (a.error + u * (std::fabs(a.value) + a.error)) * std::fabs(b)}; }
approximate gelu(const approximate& a) { return {gelu(a.value), largest_gelu_slope * a.error + gelu_error(std::fabs(a.value) + a.error)}; }

/// One product of random numbers with all that an epilogue may read beside it.
template <class P, class T, class Bias>
struct problem {
    static constexpr extent rows = 35, depth = 37, columns = 67;
    operand<T> a{rows, depth, layouts[0], matmul_test::normals(1)}, b{depth, columns, layouts[1], matmul_test::normals(2)};
    operand<T> c{rows, columns, layouts[2], matmul_test::normals(3)}, extra{rows, columns, layouts[2], matmul_test::normals(4)};
    operand<T> before{rows, columns, layouts[2], matmul_test::normals(3)};  // what c holds at first
    support::guarded<Bias> bias_memory{support::random(5).normals<Bias>(columns), 3};
    ht::view<Bias, 1> bias = bias_memory.view();

    /// want(sum, i, j) gives what c should hold.
    template <class Want>
    void check(const ht::view<T, 2>& got, const Want& want) {
        support::comparison all;
        ht::reference::matmul<typename P::compute>(a.view, b.view, [&](double sum, extent i, extent j) {
            double magnitude = 0;
            for (extent p = 0; p < depth; ++p) magnitude += std::fabs(number(a.view(i, p)) * number(b.view(p, j)));
            // Numbers are scaled so that gelu is neither 0 nor x.
            const approximate w = want(approximate{sum, gamma(static_cast<double>(depth) + 1) * magnitude}, i, j);
            all.expect(number(got(i, j)), w.value, support::rounded<T>(w.value, w.error));
        });
        CHECK_WITHIN(all);
        CHECK(c.intact());
        CHECK(extra.intact());
    }
};

template <class P, class T, class Bias>
void every_epilogue() {
    using problem = problem<P, T, Bias>;
    const auto on_every_set = [](const auto& test) {
        matmul_test::on_every_set(2, [&](ht::cpu& device) {
            problem p;
            test(device, p);
        });
    };
    SUBCASE("plain") {
        on_every_set([](ht::cpu& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::plain{});
            p.check(p.c.view, [](const approximate& sum, extent, extent) { return sum; });
        });
    }
    SUBCASE("add_product") {
        on_every_set([](ht::cpu& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::add_product{});
            p.check(p.c.view, [&](const approximate& sum, extent i, extent j) { return sum + number(p.before.view(i, j)); });
        });
    }
    SUBCASE("bias") {
        on_every_set([](ht::cpu& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::bias{p.bias});
            p.check(p.c.view, [&](const approximate& sum, extent, extent j) { return sum + number(p.bias(j)); });
        });
    }
    SUBCASE("bias_gelu") {
        on_every_set([](ht::cpu& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::bias_gelu{p.bias});
            p.check(p.c.view, [&](const approximate& sum, extent, extent j) { return gelu(sum + number(p.bias(j))); });
        });
    }
    SUBCASE("bias_gelu_keep") {
        on_every_set([](ht::cpu& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::bias_gelu_keep{p.bias, p.extra.view});
            p.check(p.c.view, [&](const approximate& sum, extent, extent j) { return gelu(sum + number(p.bias(j))); });
            p.check(p.extra.view, [&](const approximate& sum, extent, extent j) { return sum + number(p.bias(j)); });
        });
    }
    SUBCASE("bias_residual") {
        on_every_set([](ht::cpu& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::bias_residual{p.bias, p.extra.view});
            p.check(p.c.view, [&](const approximate& sum, extent i, extent j) { return sum + number(p.bias(j)) + number(p.extra.view(i, j)); });
        });
    }
    SUBCASE("gelu_gradient") {
        on_every_set([](ht::cpu& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::gelu_gradient{p.extra.view});
            p.check(p.c.view, [&](const approximate& sum, extent i, extent j) {
                const double slope = gelu_slope(number(p.extra.view(i, j)));
                approximate w = sum * slope;
                w.error += (std::fabs(sum.value) + sum.error) * gelu_slope_error;
                return w;
            });
        });
    }
    SUBCASE("gelu_gradient where the operand is the result") {
        on_every_set([](ht::cpu& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::gelu_gradient{p.c.view});
            p.check(p.c.view, [&](const approximate& sum, extent i, extent j) {
                approximate w = sum * gelu_slope(number(p.before.view(i, j)));
                w.error += (std::fabs(sum.value) + sum.error) * gelu_slope_error;
                return w;
            });
        });
    }
    SUBCASE("then") {
        on_every_set([](ht::cpu& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::then{[](auto sum, auto x, auto beta) { return sum * x + beta; }, p.extra.view, p.bias});
            p.check(p.c.view, [&](const approximate& sum, extent i, extent j) { return sum * number(p.extra.view(i, j)) + number(p.bias(j)); });
        });
    }
}

TEST_CASE("matmul epilogues within their bounds: fp32") { every_epilogue<ht::full_fp32, float, float>(); }
TEST_CASE("matmul epilogues within their bounds: bf16 with fp32 biases") { every_epilogue<ht::amp_bf16, bfloat16, float>(); }

TEST_CASE("gelu_gradient is the slope of gelu by central differences") {
    for (double x = -6; x <= 6; x += 0.37) {
        const double h = 1e-5, slope = (gelu(x + h) - gelu(x - h)) / (2 * h);
        CHECK(gelu_slope(x) == doctest::Approx(slope).epsilon(1e-8));
    }
}

TEST_CASE("matmul epilogues: operands that do not fit are refused") {
    ht::cpu device{{.threads = 1}};
    std::vector<float> memory(64);
    const auto matrix = [&](extent rows, extent columns) { return ht::view<float, 2>(memory.data(), {rows, columns}); };
    const auto row = [&](extent n) { return ht::view<float, 1>(memory.data(), {n}); };
    const auto run = [&](const auto& epilogue) { ht::matmul<ht::full_fp32>(device, matrix(2, 3), matrix(3, 4), matrix(2, 4), epilogue); };
    CHECK_THROWS_WITH_AS(run(ht::bias{row(3)}), "matmul: a bias of 3 values for 4 columns", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(ht::bias_gelu{ht::view<float, 1>(memory.data(), {4}, {2})}), "matmul: the bias is not contiguous", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(ht::bias_residual{row(4), matrix(4, 2)}), "matmul: an epilogue's operand is (4, 2), the product (2, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(ht::gelu_gradient{ht::transpose(matrix(4, 2))}), "matmul: an epilogue's operand has gaps within its rows", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(ht::then{[](auto sum, auto x) { return sum * x; }, row(2)}), "matmul: a bias of 2 values for 4 columns", ht::shape_error);
}

}  // namespace
