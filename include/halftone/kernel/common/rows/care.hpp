// SPDX-License-Identifier: MIT
/// \file
/// Rows whose mean and variance the arithmetic of their kernel does not hold: constant and nearly constant ones, where the
/// rounding of a mean passes for a deviation, and those whose squares leave its range. A kernel finds them by one number a
/// row and takes them again with care: of floats in double. All other rows keep their bits and their speed.
///
///     const row_limits<float> limits(sum_depth(width), epsilon);
///     if (limits.are_passed(average, variance)) ...                        // the row needs care
///
/// Numeric contract: of a row within its limits the mean errs by at most a 64th of the standard deviation (or is below 2^-45,
/// of doubles 2^-450: its square may vanish, and its error is nothing beside epsilon), and no square that counts has left the
/// range. What is taken with care errs by roundings in double.
#pragma once

#include <cmath>

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Of rows whose sums are taken in Real, each term through at most `depth` additions.
template <class Real>
struct row_limits {
    Real ratio;  ///< of the variance to the square of the mean, at least
    Real least;  ///< the least variance, where epsilon does not hide one below it; else 0

    HALFTONE_HD constexpr row_limits(extent depth, Real epsilon)
        : ratio(ratio_for(depth)), least(epsilon < least_variance ? least_variance : Real(0)) {}

    /// What is left of a variance that is far enough above both. Infinities and NaNs are not usual, either.
    HALFTONE_HD constexpr Real left(Real average, Real variance) const {
        return (variance - least) - average * average * ratio;
    }
    HALFTONE_HD static constexpr bool is_usual(Real left) { return left >= 0 && left < bound; }
    HALFTONE_HD constexpr bool are_passed(Real average, Real variance) const {
        return !is_usual(left(average, variance));
    }

    static constexpr bool is_float = sizeof(Real) == sizeof(float);
    /// Finite, so that compilers that assume no infinities compare with it, too.
    static constexpr Real bound = is_float ? Real(0x1p127) : Real(0x1p1023);
    /// From it on, what squares lose below the least normal number does not count.
    static constexpr Real least_variance = is_float ? Real(0x1p-100) : Real(0x1p-900);

  private:
    /// The square of 64 times the mean's relative error.
    HALFTONE_HD static constexpr Real ratio_for(extent depth) {
        constexpr Real unit = is_float ? Real(0x1p-24) : Real(0x1p-53);
        const Real error = 64 * static_cast<Real>(depth + 1) * unit;
        return error * error;
    }
};

/// From this rstd on no difference in a row leaves float's range: it is at most the square root of the width over rstd.
inline constexpr float least_rstd = 0x1p-96f;

/// The sum of term(j) in double, by eight chains.
template <class Term>
double careful_sum(extent width, const Term& term) {
    double sums[8] = {};
    extent j = 0;
    for (; j + 8 <= width; j += 8) {
        for (int k = 0; k < 8; ++k) sums[k] += term(j + k);
    }
    for (; j < width; ++j) sums[0] += term(j);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

struct careful_row {
    double average, scale;
};

/// Layer normalisation of one row of numbers that floats hold, on the CPU; no bias: none. y may be x.
template <class X, class W, class Y>
[[gnu::noinline]] careful_row layer_norm_with_care(const X* x, extent width, const W* gain, const W* bias,
                                                   double epsilon, Y* y) {
    const auto count = static_cast<double>(width);
    const double average = careful_sum(width, [&](extent j) { return static_cast<double>(x[j]); }) / count;
    const auto deviation = [&](extent j) { return static_cast<double>(x[j]) - average; };
    const double squares = careful_sum(width, [&](extent j) { return deviation(j) * deviation(j); });
    const double scale = 1 / std::sqrt(squares / count + epsilon);
    for (extent j = 0; j < width; ++j) {
        const double v = deviation(j) * scale * static_cast<double>(gain[j]);
        y[j] = static_cast<Y>(bias == nullptr ? v : v + static_cast<double>(bias[j]));
    }
    return {average, scale};
}

/// Root mean square normalisation of such a row.
template <class X, class W, class Y>
[[gnu::noinline]] careful_row rms_norm_with_care(const X* x, extent width, const W* gain, double epsilon, Y* y) {
    const double squares =
        careful_sum(width, [&](extent j) { return static_cast<double>(x[j]) * static_cast<double>(x[j]); });
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (extent j = 0; j < width; ++j)
        y[j] = static_cast<Y>(static_cast<double>(x[j]) * scale * static_cast<double>(gain[j]));
    return {0, scale};
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
