// SPDX-License-Identifier: MIT
/// \file
/// The sum of the squares of values, computed by the kernel that writes them while they are still in the L1 cache. Used
/// for gradients, so that their norm needs no further pass over memory (scale/gradients.hpp).
///
///     ht::square_sum squares;
///     detail::product<bfloat16>(device, dy, x, dw, mode, &squares);
///     if (squares.is_known(dw.size())) norm = std::sqrt(squares.sum);      // not on every device, see there
///
/// Numeric contract: squares are added in float within a tile of a product, at most 1,024 values, and the tiles' sums
/// in double; both in an order that depends only on shape, types and instruction set. A sum counts as known only if it
/// is finite, and so large that squares that underflowed can be at most 2^-32 of it.
#pragma once

#include <halftone/number/classify.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A sum of squares, and the number of values in it.
struct square_sum {
    double sum = 0;
    extent count = 0;  ///< the number of values summed

    /// Whether the sum covers `all` values and is accurate (see the file's numeric contract).
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
