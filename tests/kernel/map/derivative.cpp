// SPDX-License-Identifier: MIT
/// \file
/// Derivatives of every function, first and second, against central differences in double.
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/map/expression/derivative.hpp>
#include <halftone/kernel/map/reference.hpp>

#include "support/gradient_check.hpp"

namespace kernel_map_derivative_tests {

namespace ht = halftone;
namespace sym = ht::symbolic;

constexpr sym::argument<0> x;
constexpr sym::argument<1> y;

/// The value of an expression as a function of its arguments.
template <class E>
auto value_of(const E& e) {
    return [e](const std::vector<double>& at) { return ht::reference::evaluate(e, at.data()); };
}

/// Compares the derivatives of e with respect to both arguments at a point; returns whether one of them is not trivial.
template <class E>
bool check_gradient(const E& e, const std::vector<double>& place, double slack) {
    const double gradient[] = {value_of(ht::derivative<0>(e))(place), value_of(ht::derivative<1>(e))(place)};
    bool telling = false;
    for (std::size_t i = 0; i < 2; ++i) {
        double error = 0;
        const double slope = support::central_difference(value_of(e), place, i, error);
        CHECK_MESSAGE(std::fabs(gradient[i] - slope) <= error + slack * std::fabs(slope), "by ", i, " at ", place[0],
                      ", ", place[1], ": ", gradient[i], ", differences ", slope, ", error ", error);
        telling = telling || std::fabs(slope) > 2 * error;
    }
    return telling;
}

/// First derivatives, and the derivatives of the first derivative with respect to x. `slack` is the relative error of the
/// constants in e's second derivatives, which are floats.
template <class E>
void check(const E& e, std::vector<double> xs = {0.3, 1.7, -0.6, -2.9, 6.1, -7.3}, double slack = 0) {
    bool telling = false, telling_twice = false;
    for (const double a : xs) {
        telling = check_gradient(e, {a, 1.3}, 0) || telling;
        telling_twice = check_gradient(ht::derivative<0>(e), {a, 1.3}, slack) || telling_twice;
    }
    CHECK(telling);
    CHECK(telling_twice);
}

const std::vector<double> positive = {0.2, 1.7, 40.0};

TEST_CASE("derivative: arithmetic") {
    check(x * y + 3 * x);
    check(x / y - y / x);
    check(y * ht::square(x) - 2 / ht::square(x));
    check(-x * (x - y) * 0.5f);
}

TEST_CASE("derivative: functions") {
    check(ht::exp(x * 0.5f));
    check(ht::tanh(x * y));
    check(ht::sigmoid(x * y));
    check(ht::silu(x * y));
    check(ht::gelu(x * y), {0.3, 1.7, -0.6, -2.9, 6.1, -7.3, 20, -20}, 16 * ht::unit_roundoff<float>);
    check(ht::square(x) * x);
    check(ht::abs(x) * x * y);
    check(ht::log(x * y), positive);
    check(ht::sqrt(x + y), positive);
    check(ht::rsqrt(x) * y, positive);
}

TEST_CASE("derivative: further functions") {
    const std::vector<double> moderate = {0.3, 1.2, -0.6, -1.1, 2.4};
    check(ht::expm1(x * y), moderate);
    check(ht::log1p(x) * y, {-0.9, -0.2, 0.3, 5});
    check(ht::softplus(x * y));
    check(ht::erf(x * y), moderate);
    check(ht::gelu_erf(x) * y, moderate);
    check(ht::sinh(x * y), moderate);
    check(ht::cosh(x * y), moderate);
    check(ht::tan(x) * y, moderate);
    check(ht::reciprocal(x * y));
    check(ht::log2(x * y), positive);
    check(ht::log10(x * y), positive);
    check(ht::pow(x, y), positive);
    check(ht::pow(y, x));
    check(ht::pow(x, 3) + y);
    check(ht::atan2(x, y));
    check(ht::atan2(y, x) * y);
}

TEST_CASE("derivative: choices") {
    check(ht::relu(x) * ht::square(x) + y);
    check(ht::max(x, y) * x + ht::min(x * y, 1));
    check(ht::where(x < y && x > -1, x * x * y, ht::exp(y) * x));
    check(ht::where(!(x <= y) || x == 7, x * x, y * x));
}

TEST_CASE("derivative: trivial factors do not appear in the type") {
    static_assert(std::is_same_v<decltype(ht::derivative<0>(x * y)), sym::argument<1>>);
    static_assert(std::is_same_v<decltype(ht::derivative<0>(x + y)), sym::one>);
    static_assert(std::is_same_v<decltype(ht::derivative<1>(ht::gelu(x))), sym::zero>);
    static_assert(std::is_same_v<decltype(ht::derivative<0>(2 * x)), sym::constant>);
    static_assert(std::is_same_v<decltype(ht::derivative<0>(ht::exp(x))), sym::unary<sym::op::exp, sym::argument<0>>>);
    static_assert(std::is_same_v<decltype(ht::detail::gradient_expression<0, 2>(x + y)), sym::argument<2>>);
    // A derivative that reads no input keeps none.
    static_assert(!ht::reads<0, decltype(ht::detail::gradient_expression<0, 2>(ht::make_pack(x + y, x * y)))>);
}

TEST_CASE("derivative: subgradients at corners are PyTorch's") {
    const auto at = [](const auto& e, double a, double b) {
        const double place[] = {a, b};
        return ht::reference::evaluate(e, place);
    };
    CHECK(at(ht::derivative<0>(ht::relu(x)), 0, 0) == 0);
    CHECK(at(ht::derivative<0>(ht::abs(x)), 0, 0) == 0);
    CHECK(at(ht::derivative<0>(ht::max(x, y)), 1, 1) == 0.5);
    CHECK(at(ht::derivative<1>(ht::max(x, y)), 1, 1) == 0.5);
    CHECK(at(ht::derivative<0>(ht::min(x, y)), 1, 1) == 0.5);
    CHECK(at(ht::derivative<0>(ht::max(x, y)), 1, 2) == 0);
    CHECK(at(ht::derivative<0>(ht::min(x, y)), 1, 2) == 1);
    CHECK(at(ht::derivative<0>(ht::pow(x, 0)), 0, 0) == 0);
    CHECK(at(ht::derivative<0>(ht::pow(x, 2)), 0, 0) == 0);
    CHECK(at(ht::derivative<1>(ht::pow(x, y)), 0, 2) == 0);
    CHECK(at(ht::derivative<1>(ht::pow(x, y)), 0, 0) == 0);
    // An inactive relu does not pass an infinite gradient of the output on, as infinity times 0 would give NaN.
    const double place[] = {-1, std::numeric_limits<double>::infinity()};
    CHECK(ht::reference::evaluate(ht::detail::gradient_expression<0, 1>(ht::relu(x)), place) == 0);
}

}  // namespace kernel_map_derivative_tests
