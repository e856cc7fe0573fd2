// SPDX-License-Identifier: MIT
/// \file
/// The sum of the squares of values that a kernel has just written, taken while they are still in the first-level cache:
/// of gradients, so that their norm needs no pass over memory (scale/gradients.hpp).
///
///     ht::square_sum squares;
///     detail::product<bfloat16>(device, dy, x, dw, mode, &squares);
///     if (squares.is_known(dw.size())) norm = std::sqrt(squares.sum);      // not on every device, see there
///
/// Numeric contract: squares are added in float by tiles of a product, at most 1,024 values, tiles in double; both in an
/// order that shape, types and instruction set alone fix. A sum counts as known only if it is finite, and so large that
/// what vanished of its squares is below 2^-32 of it.
#pragma once

#include <halftone/number/classify.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A sum of squares, and of how many values it is.
struct square_sum {
    double sum = 0;
    extent count = 0;  ///< of values that were summed

    /// Whether it is that of `all` values, and can be believed.
    bool is_known(extent all) const {
        constexpr double vanishes_below = 0x1p-126, share = 0x1p-32;
        return count == all && count > 0 && is_finite(sum) &&
               sum >= static_cast<double>(count) * (vanishes_below / share);
    }
    square_sum& operator+=(const square_sum& other) {
        sum += other.sum;
        count += other.count;
        return *this;
    }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
