// SPDX-License-Identifier: MIT
/// \file
/// Gated linear units against their formulas in double: values, and the gradients of both halves.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/gated.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_gated_tests {

namespace ht = halftone;
using ht::bfloat16, ht::extent;
using support::guarded;

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

/// An activation, its slope, and the argument of its sigmoid.
struct activation {
    double value, slope, argument;
};
activation silu(double x) {
    const double s = logistic(x);
    return {x * s, s + x * s * (1 - s), x};
}
activation gelu(double x) {
    const double c = 2 * std::sqrt(2 / std::acos(-1.0)), t = c * (x + 0.044715 * x * x * x), s = logistic(t);
    return {x * s, s + x * s * (1 - s) * c * (1 + 3 * 0.044715 * x * x), t};
}

template <class T, class Run>
void gates(const Run& run, activation (*activate)(double), extent rows, extent half) {
    ht::cpu device{{.threads = 2}};
    support::random data(1);
    const ht::shape<2> both{rows, 2 * half};
    const guarded<T> x(data.normals<T>(both.size())), w(data.normals<T>(rows * half));
    ht::tape tape{device};
    const auto leaf = tape.leaf(x.view(both));
    const auto y = run(tape, leaf);
    REQUIRE(y.shape() == ht::shape<2>{rows, half});
    const std::vector<T> values(y.view().data(), y.view().data() + y.size());
    tape.backward(ht::sum<float>(tape, ht::mul(tape, y, tape.constant(w.view(y.shape())))));
    support::comparison value, of_gate, of_up;
    for (extent i = 0; i < rows; ++i) {
        for (extent j = 0; j < half; ++j) {
            const double gate = static_cast<double>(x[i * 2 * half + j]), up = static_cast<double>(x[i * 2 * half + half + j]);
            const double dy = static_cast<double>(w[i * half + j]);
            const activation a = activate(gate);
            const double error = support::gated_error<T>(a.argument) + support::gamma(3);
            value.expect(static_cast<double>(values[static_cast<std::size_t>(i * half + j)]), a.value * up,
                         support::rounded<T>(a.value * up, error * std::fabs(a.value * up)));
            const double slope = a.slope * up * dy, other = a.value * dy;
            const double off = std::fabs(up * dy) * support::gated_slope_error<T>() + support::gamma(3) * std::fabs(slope);
            of_gate.expect(static_cast<double>(tape.gradient(leaf)(i, j)), slope, support::rounded<T>(slope, off));
            of_up.expect(static_cast<double>(tape.gradient(leaf)(i, half + j)), other,
                         support::rounded<T>(other, error * std::fabs(other)));
        }
    }
    CHECK_WITHIN(value);
    CHECK_WITHIN(of_gate);
    CHECK_WITHIN(of_up);
    CHECK(value.telling());
    CHECK(of_gate.telling());
    CHECK(of_up.telling());
}

TEST_CASE_TEMPLATE("gates: values and gradients of both halves", T, float, bfloat16) {
    for (const extent half : {1, 5, 16, 67}) {
        CAPTURE(half);
        gates<T>([](auto& t, const auto& x) { return ht::swiglu(t, x); }, silu, 7, half);
        gates<T>([](auto& t, const auto& x) { return ht::geglu(t, x); }, gelu, 7, half);
    }
    gates<T>([](auto& t, const auto& x) { return ht::swiglu(t, x); }, silu, 300, 200);  // several pieces
}

TEST_CASE("gates: glu's second half is the gate, a user's lambda, types, and odd widths") {
    ht::cpu device{{.threads = 1}};
    const std::vector<double> x{1, 2, -3, 0.5, 0.25, -1};
    ht::tape tape{device};
    const auto leaf = tape.leaf(ht::const_view<double, 3>(x.data(), {1, 1, 6}));
    const auto y = ht::glu(tape, leaf);
    const auto z = ht::gated(tape, [](auto a, auto b) { return a * b + 1; }, leaf);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(y.view()(0, 0, i) == doctest::Approx(x[i] * logistic(x[i + 3])).epsilon(1e-14));
        CHECK(z.view()(0, 0, i) == x[i] * x[i + 3] + 1);
    }
    // A second use adds: of sum(a b + 1) + sum(a b + 1) by a it is 2 b.
    const auto again = ht::gated(tape, [](auto a, auto b) { return a * b + 1; }, leaf);
    tape.backward(ht::add(tape, ht::sum(tape, z), ht::sum(tape, again)));
    for (int i = 0; i < 6; ++i) CHECK(tape.gradient(leaf)(0, 0, i) == 2 * x[static_cast<std::size_t>((i + 3) % 6)]);
    const auto odd = tape.leaf(ht::const_view<double, 2>(x.data(), {2, 3}));
    CHECK_THROWS_WITH_AS(ht::swiglu(tape, odd), "swiglu: x is (2, 3); its last extent is odd, and has no halves",
                         ht::shape_error);
    using narrow = ht::variable<bfloat16, 2>;
    static_assert(std::is_same_v<decltype(ht::swiglu(std::declval<ht::region<ht::full_fp32, ht::tape<ht::cpu>>>(),
                                                     std::declval<narrow>())),
                                 narrow>);
    static_assert(std::is_same_v<decltype(ht::swiglu<float>(std::declval<ht::tape<ht::cpu>&>(), std::declval<narrow>())),
                                 ht::variable<float, 2>>);
}

}  // namespace autodiff_gated_tests
