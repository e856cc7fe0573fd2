// SPDX-License-Identifier: MIT
/// \file
/// Which rows need care because float arithmetic does not hold their mean or variance: constant and nearly constant
/// rows, whose variance would be the rounding error of the mean, and rows whose squares overflow or underflow. A kernel
/// detects them by one number for each row and normalises them again with care, in double. All other rows keep their
/// bits and their speed.
///
///     const row_limits<float> limits(sum_depth(width), epsilon);
///     if (limits.are_exceeded(average, variance)) ...                        // the row needs care
///
/// Numeric contract: in a row within the limits the mean's error is at most a 64th of the standard deviation (or below
/// 2^-45, for doubles 2^-450: the square of such an error is negligible compared with epsilon), and no square that matters
/// overflows or underflows. Rows normalised with care have the roundings of double arithmetic.
#pragma once

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The limits of rows whose sums are in Real, where each term passes through at most `depth` additions.
template <class Real>
struct row_limits {
    Real ratio;  ///< the least ratio of the variance to the square of the mean
    Real least;  ///< the least variance; 0 if epsilon hides a smaller one

    HALFTONE_HD constexpr row_limits(extent depth, Real epsilon)
        : ratio(ratio_for(depth)), least(epsilon < least_variance ? least_variance : Real(0)) {}

    /// The margin of the variance above both limits; a row with infinities or NaNs has none.
    HALFTONE_HD constexpr Real left(Real average, Real variance) const {
        return (variance - least) - average * average * ratio;
    }
    HALFTONE_HD static constexpr bool is_within_limits(Real left) { return left >= 0 && left < bound; }
    HALFTONE_HD constexpr bool are_exceeded(Real average, Real variance) const {
        return !is_within_limits(left(average, variance));
    }

    static constexpr bool is_float = sizeof(Real) == sizeof(float);
    /// Finite, so that comparisons with it work under -ffinite-math-only.
    static constexpr Real bound = is_float ? Real(0x1p127) : Real(0x1p1023);
    /// For variances from this on, what squares lose by underflow is negligible.
    static constexpr Real least_variance = is_float ? Real(0x1p-100) : Real(0x1p-900);

  private:
    /// The square of 64 times the mean's relative error.
    HALFTONE_HD static constexpr Real ratio_for(extent depth) {
        constexpr Real unit = is_float ? Real(0x1p-24) : Real(0x1p-53);
        const Real error = 64 * static_cast<Real>(depth + 1) * unit;
        return error * error;
    }
};

/// Below this rstd differences in a row may overflow float: they are at most sqrt(width) / rstd.
inline constexpr float least_rstd = 0x1p-96f;

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
