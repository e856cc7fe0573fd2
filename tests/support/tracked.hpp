// SPDX-License-Identifier: MIT
/// \file
/// A number with a bound of the error of a float kernel's result: running error analysis (Higham 2002, section 3.3). A
/// definition that is written once over its number type gives the exact values with double, and with `tracked` the
/// bounds as well.
///
///     template <class N> N mean_of_squares(const std::vector<N>& x) { support::sum_of<N> s; for (N v : x) s.add(v * v); return s.total() / N(x.size()); }
///     const support::tracked want = mean_of_squares(exact_inputs);
///     comparison.expect(got, want.value, want.error);
///
/// The bounds hold for sums in any order, with or without fused multiply-add; functions have the errors that
/// exec/cpu/simd/math.simd.hpp states.
#pragma once

#include <algorithm>
#include <cmath>

#include "support/bounds.hpp"

namespace support {

struct tracked {
    double value = 0, error = 0;

    tracked() = default;
    tracked(double exact) : value(exact) {}  // NOLINT(google-explicit-constructor)
    tracked(double exact, double bound) : value(exact), error(bound) {}

    /// The same number after one more rounding to float.
    tracked rounded(double roundoff = u) const {
        return {value, error + roundoff * (std::fabs(value) + error) + 0x1p-150};
    }

    friend tracked operator-(const tracked& a) { return {-a.value, a.error}; }
    friend tracked operator+(const tracked& a, const tracked& b) {
        return tracked(a.value + b.value, a.error + b.error).rounded();
    }
    friend tracked operator-(const tracked& a, const tracked& b) { return a + -b; }
    friend tracked operator*(const tracked& a, const tracked& b) {
        return tracked(a.value * b.value,
                       std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error)
            .rounded();
    }
    friend tracked operator/(const tracked& a, const tracked& b) {
        const double least = std::fabs(b.value) - b.error;
        if (!(least > 0)) return {a.value / b.value, HUGE_VAL};
        return tracked(a.value / b.value, (a.error + std::fabs(a.value / b.value) * b.error) / least).rounded();
    }
};

/// Functions for both number types. Two units in the last place are at most four unit roundoffs.
inline double exp(double x) { return std::exp(x); }
inline tracked exp(const tracked& x) {
    return tracked(std::exp(x.value), std::exp(x.value) * std::expm1(x.error)).rounded(4 * u);
}
inline double log(double x) { return std::log(x); }
inline tracked log(const tracked& x) {
    if (!(x.error < x.value)) return {std::log(x.value), HUGE_VAL};
    return tracked(std::log(x.value), -std::log1p(-x.error / x.value)).rounded(4 * u);
}
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline tracked rsqrt(const tracked& x) {
    if (!(x.error < x.value)) return {1 / std::sqrt(x.value), HUGE_VAL};
    return tracked(1 / std::sqrt(x.value), 1 / std::sqrt(x.value - x.error) - 1 / std::sqrt(x.value)).rounded(4 * u);
}
inline double tanh(double x) { return std::tanh(x); }
inline tracked tanh(const tracked& x) { return tracked(std::tanh(x.value), x.error).rounded(6 * u); }

namespace detail {
inline double gelu_argument(double x) { return 1.5957691216057308 * (x + 0.044715 * x * x * x); }
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
}  // namespace detail

/// GPT-2's gelu and its derivative, with results in T; the derivative's derivative is at most 0.81, the function's
/// 1.13.
template <class T = float>
double gelu(double x) {
    return x * detail::sigmoid(detail::gelu_argument(x));
}
template <class T = float>
double gelu_derivative(double x) {
    const double s = detail::sigmoid(detail::gelu_argument(x));
    return s + x * s * (1 - s) * 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
}
template <class T = float>
tracked gelu(const tracked& x) {
    return tracked(gelu(x.value), 1.13 * x.error)
        .rounded(gated_error<T>(detail::gelu_argument(std::fabs(x.value) + x.error)));
}
template <class T = float>
tracked gelu_derivative(const tracked& x) {
    return {gelu_derivative(x.value), 0.81 * x.error + gated_slope_error<T>()};
}

inline double larger(double a, double b) { return std::max(a, b); }
inline tracked larger(const tracked& a, const tracked& b) {
    return {std::max(a.value, b.value), std::max(a.error, b.error)};
}

/// Additional roundings that a kernel may make and for which the definition has no operation.
inline double further_roundings(double x, int) { return x; }
inline tracked further_roundings(const tracked& x, int count) { return x.rounded(gamma(count)); }

/// A sum of any number of terms, in any order.
template <class Number>
class sum_of {
  public:
    void add(Number term) { total_ = total_ + term; }
    Number total() const { return total_; }

  private:
    Number total_ = 0;
};
template <>
class sum_of<tracked> {
  public:
    void add(const tracked& term) {
        value_ += term.value;
        error_ += term.error;
        magnitude_ += std::fabs(term.value) + term.error;
        ++count_;
    }
    tracked total() const { return {value_, error_ + gamma(count_) * magnitude_}; }

  private:
    double value_ = 0, error_ = 0, magnitude_ = 0;
    int count_ = 0;
};

/// A value that is stored as T: doubles are rounded, tracked numbers get a larger bound.
template <class T>
struct stored_as {
    double operator()(double x) const { return static_cast<double>(T(static_cast<float>(x))); }
    tracked operator()(const tracked& x) const { return {x.value, support::rounded<T>(x.value, x.error)}; }
};
/// A value that is stored exactly: floats, whose roundings `tracked` counts where they occur.
struct stored_exactly {
    double operator()(double x) const { return x; }
    tracked operator()(const tracked& x) const { return x; }
};

}  // namespace support
