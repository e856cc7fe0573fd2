// SPDX-License-Identifier: MIT
/// \file
/// Rows whose mean and variance the arithmetic of their kernel does not hold: constant and nearly constant ones, where the
/// rounding of a mean passes for a deviation, and those whose squares leave its range. A kernel finds them by one number a
/// row and takes them again with care: of floats in double. All other rows keep their bits and their speed.
///
///     const row_limits<float> limits(sum_depth(width), epsilon);
///     if (limits.are_exceeded(average, variance)) ...                        // the row needs care
///
/// Numeric contract: of a row within its limits the mean errs by at most a 64th of the standard deviation (or is below 2^-45,
/// of doubles 2^-450: its square may vanish, and its error is nothing beside epsilon), and no square that counts has left the
/// range. What is taken with care errs by roundings in double.
#pragma once

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
    HALFTONE_HD static constexpr bool is_within_limits(Real left) { return left >= 0 && left < bound; }
    HALFTONE_HD constexpr bool are_exceeded(Real average, Real variance) const {
        return !is_within_limits(left(average, variance));
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

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
