// SPDX-License-Identifier: MIT
/// \file
/// Error bounds, computed from unit roundoffs and the number of operations, and the comparison that applies them.
///
///     support::comparison c;
///     for (...) c.expect(got, want, support::gamma(k) * sum_of_magnitudes + support::rounding<bfloat16>(want));
///     CHECK_WITHIN(c);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <type_traits>

#include <halftone/number/float16.hpp>
#include <halftone/number/traits.hpp>

#include "support/left_out.hpp"

namespace support {

/// The unit roundoff of float, in which kernels sum.
inline constexpr double u = halftone::unit_roundoff<float>;

/// The relative error of n consecutive roundings: n u / (1 - n u) (Higham 2002, section 3.1); for a sum whose terms
/// pass through at most n additions, relative to the sum of magnitudes.
inline double gamma(double n, double roundoff = u) { return n * roundoff / (1 - n * roundoff); }

/// The error of a sum of n products with operands read as Compute, relative to sum |a||b|: each product has one
/// rounding and passes through at most n additions. If operands may be multiplied in pieces
/// (kernel/matmul/cpu/unit/split.hpp), products of later pieces pass through six times as many additions, and some are
/// dropped.
template <class Compute>
double product_error(double n, double roundoff = u) {
    if constexpr (requires { Compute::dropped; }) {
        return Compute::first * gamma(n + 1, roundoff) + Compute::later * gamma(6 * n + 1, roundoff) + Compute::dropped;
    } else {
        return gamma(n + 1, roundoff);
    }
}
/// The additional error of units that treat pieces, products and sums below 2^-126 as zero. `operands` is sum (|a| +
/// |b|).
inline double flushed_error(double n, double operands) { return 0x1p-125 * operands + 14 * n * 0x1p-126; }

template <class Device>
inline constexpr bool is_on_cpu = requires(const Device& device) { device.instruction_set(); };

/// The relative error of e^-difference with arguments from, or results in, numbers of T: for a CPU's vectors as
/// exec/cpu/simd/math.simd.hpp states, for a GPU's kernels as kernel/exponential.hpp does; for wider numbers three
/// units in the last place.
template <class Device, class T>
double exp_error(double difference) {
    if constexpr (sizeof(T) >= sizeof(float)) {
        return 6 * u;
    } else if constexpr (is_on_cpu<Device>) {
        return (0.875 + difference / 16) * 0x1p-18;
    } else {
        return (4 + 2 * difference) * u;
    }
}
/// The additional absolute error: below float's normal numbers the result loses digits, or is 0.
template <class Device, class T>
constexpr double exp_least() {
    using traits = halftone::number_traits<float>;
    return sizeof(T) >= sizeof(float) || is_on_cpu<Device> ? traits::min_subnormal : traits::min_normal;
}

/// The relative error of gelu and silu with results in T, where t is the argument of their sigmoid, and the absolute
/// error of their derivatives: for a CPU's vectors as exec/cpu/simd/math.simd.hpp states, for a GPU's threads as
/// kernel/map/expression/scalar.hpp does.
template <class T>
double gated_error(double t) {
    if constexpr (sizeof(T) >= sizeof(float)) return (6 + 4 * std::fabs(t)) * u;
    if constexpr (std::is_same_v<T, halftone::float16>) return (1 + std::fabs(t) / 16) * 0x1p-18;
    return 1.125 * 0x1p-13 + std::fabs(t) * 0x1p-22;
}
template <class T>
constexpr double gated_slope_error() {
    return sizeof(T) < sizeof(float) ? 0x1p-17 : 0x1p-21;
}

/// The error of rounding a value to nearest in T.
template <class T>
double rounding(double value) {
    using traits = halftone::number_traits<T>;
    return std::max(traits::unit_roundoff * std::fabs(value), traits::min_subnormal / 2);
}

/// The error of rounding to T a number within `error` of `value`, that error included.
template <class T>
double rounded(double value, double error) {
    return error + rounding<T>(std::fabs(value) + error);
}

/// Keeps the value with the largest ratio of error to bound.
class comparison {
  public:
    void expect(double got, double want, double bound) {
        const double error = std::fabs(got - want);
        const double ratio = error == 0             ? 0
                             : error <= bound       ? error / bound
                             : std::isfinite(error) ? std::max(error / bound, 1 + 1e-9)
                                                    : HUGE_VAL;
        if (count_ == 0 || ratio > ratio_) ratio_ = ratio, got_ = got, want_ = want, bound_ = bound, at_ = count_;
        // A bound as large as the value itself could not detect a wrong value.
        telling_ += std::fabs(want) > 2 * bound ? 1 : 0;
        ++count_;
    }

    /// No values are right only where the test case has left every instruction set to another run of the program.
    bool within() const { return (count_ > 0 || is_left_out()) && ratio_ <= 1; }
    /// Whether at least this fraction of the values exceeds twice its bound: a kernel that gives zeros would then fail.
    bool telling(double share = 0.5) const {
        return static_cast<double>(telling_) >= share * static_cast<double>(count_);
    }

    friend std::ostream& operator<<(std::ostream& out, const comparison& c) {
        return out << c.count_ << " values, " << c.telling_ << " telling; worst at " << c.at_ << ": got " << c.got_
                   << ", expected " << c.want_ << ", error / bound " << c.ratio_ << ", bound " << c.bound_;
    }

  private:
    double ratio_ = 0, got_ = 0, want_ = 0, bound_ = 0;
    std::int64_t count_ = 0, telling_ = 0, at_ = 0;
};

}  // namespace support

#define CHECK_WITHIN(c)                    \
    do {                                   \
        CHECK_MESSAGE((c).within(), (c));  \
        CHECK_MESSAGE((c).telling(), (c)); \
    } while (false)
