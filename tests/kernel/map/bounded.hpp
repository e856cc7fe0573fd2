// SPDX-License-Identifier: MIT
/// \file
/// A number with an error bound: the exact value of an expression, and the bound of the error of a kernel that computes in float.
///
///     const bounded x[] = {0.5, 2.0};                            // inputs are exact
///     const bounded y = ht::scalar::evaluate(e, x);
///     CHECK(std::fabs(got - y.value) <= y.error);
///
/// The rule (running error analysis, Higham 2002, section 3.3): an operation's error is the error of its operands times the largest
/// derivative within their errors, plus the rounding or the stated bound of its result. A fused multiply-add has one rounding less,
/// and so is within the bound.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <halftone/kernel/map/expression/scalar.hpp>

#include "support/bounds.hpp"

namespace support {

struct bounded {
    double value = 0, error = 0;

    bounded() = default;
    bounded(double exact) : value(exact) {}  // NOLINT(google-explicit-constructor)
    bounded(double v, double e) : value(v), error(e) {}

    double below() const { return value - error; }
    double above() const { return value + error; }
    /// The least magnitude within the error.
    double least() const { return std::max(std::fabs(value) - error, 0.0); }
};

/// A result with the error `inherited` from its operands and the relative error `relative` of its operation.
inline bounded result(double value, double inherited, double relative) {
    return {value, inherited + relative * (std::fabs(value) + inherited) + 0x1p-149};
}

inline constexpr double unit = 0x1p-24;  ///< one rounding; an ulp is two of them at most

/// The result of a sum or product, which is exact if it is a whole number that float represents.
inline bounded rounded(double value, double inherited) {
    if (inherited == 0 && std::fabs(value) <= 0x1p24 && value == std::floor(value)) return value;
    return result(value, inherited, unit);
}

inline bounded operator-(const bounded& a) { return {-a.value, a.error}; }
inline bounded operator+(const bounded& a, const bounded& b) { return rounded(a.value + b.value, a.error + b.error); }
inline bounded operator-(const bounded& a, const bounded& b) { return rounded(a.value - b.value, a.error + b.error); }
inline bounded operator*(const bounded& a, const bounded& b) {
    return rounded(a.value * b.value, std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error);
}
inline bounded operator/(const bounded& a, const bounded& b) {
    const double q = a.value / b.value;
    return result(q, (a.error + std::fabs(q) * b.error) / b.least(), unit);
}

/// Throws if the errors do not determine which of two numbers is smaller; tests choose their data so that this does not happen.
inline void decide(const bounded& a, const bounded& b) {
    if (a.error + b.error > 0 && std::fabs(a.value - b.value) <= a.error + b.error)
        throw std::logic_error("bounded: undecided");
}
inline bool operator<(const bounded& a, const bounded& b) { return decide(a, b), a.value < b.value; }
inline bool operator<=(const bounded& a, const bounded& b) { return decide(a, b), a.value <= b.value; }
inline bool operator==(const bounded& a, const bounded& b) { return decide(a, b), a.value == b.value; }

namespace op = halftone::symbolic::op;

inline double exact(double x, auto operation) { return halftone::scalar::apply(operation, x); }

// Operations without rounding.
inline bounded apply(op::negate, const bounded& a) { return -a; }
inline bounded apply(op::abs, const bounded& a) { return {std::fabs(a.value), a.error}; }
inline bounded apply(op::relu, const bounded& a) { return {std::max(a.value, 0.0), a.error}; }
inline bounded apply(op::sign, const bounded& a) {
    decide(a, 0.0);
    return exact(a.value, op::sign{});
}
inline bounded apply(op::minimum, const bounded& a, const bounded& b) {
    return {std::min(a.value, b.value), std::max(a.error, b.error)};
}
inline bounded apply(op::maximum, const bounded& a, const bounded& b) {
    return {std::max(a.value, b.value), std::max(a.error, b.error)};
}

inline bounded apply(op::square, const bounded& a) { return a * a; }
inline bounded apply(op::sqrt, const bounded& a) {
    const double y = std::sqrt(a.value);
    return result(y, std::max(std::sqrt(a.above()) - y, y - std::sqrt(std::max(a.below(), 0.0))), unit);
}

/// The error of an operation's value in float, in roundings.
template <class Op>
inline constexpr double stated = 2 * Op::ulp * unit;

/// A function that states its error (kernel/map/expression/function.hpp), and is monotonic within the error of its operand.
template <class Op>
    requires halftone::detail::symbolic_function<Op>
bounded apply(Op f, const bounded& a) {
    const double y = exact(a.value, f);
    return result(y, std::max(std::fabs(exact(a.above(), f) - y), std::fabs(exact(a.below(), f) - y)), stated<Op>);
}
// Functions whose inherited error is known more closely, or with the bounds in exec/cpu/simd/math.simd.hpp.
inline bounded apply(op::exp, const bounded& a) {
    const double y = std::exp(a.value);
    return result(y, y * std::expm1(a.error), stated<op::exp>);
}
inline bounded apply(op::log, const bounded& a) { return result(std::log(a.value), a.error / a.below(), stated<op::log>); }
inline bounded apply(op::rsqrt, const bounded& a) {
    const double y = 1 / std::sqrt(a.value);
    return result(y, 1 / std::sqrt(a.below()) - y, stated<op::rsqrt>);
}
inline bounded apply(op::tanh, const bounded& a) {
    return result(std::tanh(a.value), a.error * exact(a.least(), op::tanh_derivative{}), stated<op::tanh>);
}
inline bounded apply(op::sigmoid, const bounded& a) {
    return result(exact(a.value, op::sigmoid{}), a.error * exact(a.least(), op::sigmoid_derivative{}), stated<op::sigmoid>);
}
// The curvatures below are |sigmoid''| <= sigmoid', |tanh''| <= 2 tanh', |silu''| <= 1/2, |gelu''| <= 0.8.
inline bounded apply(op::sigmoid_derivative, const bounded& a) {
    return result(exact(a.value, op::sigmoid_derivative{}), a.error * exact(a.least(), op::sigmoid_derivative{}), stated<op::sigmoid_derivative>);
}
inline bounded apply(op::tanh_derivative, const bounded& a) {
    return result(exact(a.value, op::tanh_derivative{}), 2 * a.error * exact(a.least(), op::tanh_derivative{}), stated<op::tanh_derivative>);
}
inline bounded apply(op::silu, const bounded& a) {
    return result(exact(a.value, op::silu{}), 1.1 * a.error, gated_error<float>(a.value));
}
inline bounded apply(op::gelu, const bounded& a) {
    const double t = halftone::scalar::gelu_argument(a.value);
    return result(exact(a.value, op::gelu{}), 1.13 * a.error, gated_error<float>(t));
}
inline bounded apply(op::silu_derivative, const bounded& a) {
    return {exact(a.value, op::silu_derivative{}), 0.5 * a.error + gated_slope_error<float>()};
}
inline bounded apply(op::gelu_derivative, const bounded& a) {
    return {exact(a.value, op::gelu_derivative{}), 0.8 * a.error + gated_slope_error<float>()};
}

/// Short forms have the same slope and a larger error.
template <class T>
bounded apply(op::short_form<op::silu, T>, const bounded& a) {
    return result(exact(a.value, op::silu{}), 1.1 * a.error, gated_error<T>(a.value));
}
template <class T>
bounded apply(op::short_form<op::gelu, T>, const bounded& a) {
    const double t = halftone::scalar::gelu_argument(a.value);
    return result(exact(a.value, op::gelu{}), 1.13 * a.error, gated_error<T>(t));
}
template <class Op, class T>
bounded apply(op::short_form<Op, T>, const bounded& a) {
    const bounded y = apply(Op{}, a);
    return {y.value, y.error - gated_slope_error<float>() + gated_slope_error<T>()};
}

/// A function of two operands that is monotonic in each: its extremes are at the corners.
inline bounded monotonic(const bounded& a, const bounded& b, double relative, auto operation) {
    const double y = halftone::scalar::apply(operation, a.value, b.value);
    double inherited = 0;
    for (const double p : {a.below(), a.above()})
        for (const double q : {b.below(), b.above()})
            inherited = std::max(inherited, std::fabs(halftone::scalar::apply(operation, p, q) - y));
    return result(y, inherited, relative);
}
inline bounded apply(op::power f, const bounded& a, const bounded& b) { return monotonic(a, b, 8 * unit, f); }
inline bounded apply(op::atan2 f, const bounded& y, const bounded& x) { return monotonic(y, x, 8 * unit, f); }

}  // namespace support
