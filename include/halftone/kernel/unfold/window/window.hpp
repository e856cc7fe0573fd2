// SPDX-License-Identifier: MIT
/// \file
/// A window that slides over images: the elements that it covers at each position.
///
///     axis.seen(position, tap)             // the row (or column) of the image under tap `tap` with the window at `position`
///     axis.position_of(at, tap)            // the position with row `at` under that tap; -1: none
#pragma once

#include <halftone/number/integer.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// One axis of a window. A tap is an element of the window; each position of the window gives an element of the result.
struct window_axis {
    extent size, taps, positions, stride, padding, dilation;

    /// The row or column under a tap at a position; one outside of 0 to size - 1 is padding.
    HALFTONE_HD constexpr extent seen(extent position, extent tap) const {
        return position * stride - padding + tap * dilation;
    }
    /// The position at which `at` is under a tap, or -1. Computed in Int: extent, or std::int32_t where fits_32_bits().
    template <class Int = extent>
    HALFTONE_HD constexpr Int position_of(Int at, Int tap) const {
        const Int step = static_cast<Int>(stride);
        const Int from = at + static_cast<Int>(padding) - tap * static_cast<Int>(dilation);
        const Int position = step == 1 ? from : from / step;
        return from >= 0 && position * step == from && position < static_cast<Int>(positions) ? position : Int{-1};
    }
    /// Whether no coordinate under the window exceeds 32 bits.
    constexpr bool fits_32_bits() const {
        constexpr extent most = extent{1} << 29;
        return size <= most && padding <= most && positions <= most / stride && taps <= most / dilation;
    }
    /// The first position at which the tap is inside the image, and one after the last.
    constexpr extent first_inside(extent tap) const { return places_before(padding - tap * dilation); }
    constexpr extent end_inside(extent tap) const { return places_before(size + padding - tap * dilation); }

  private:
    /// The number of positions p with p stride < n.
    constexpr extent places_before(extent n) const {
        const extent count = n <= 0 ? 0 : detail::ceil_div(n, stride);
        return count < positions ? count : positions;
    }
};

/// A window that slides along both axes of an image.
struct sliding_window {
    window_axis down, across;

    HALFTONE_HD constexpr extent taps() const { return down.taps * across.taps; }
    HALFTONE_HD constexpr extent positions() const { return down.positions * across.positions; }
    constexpr bool fits_32_bits() const { return down.fits_32_bits() && across.fits_32_bits(); }
    /// Whether the window is one element, and the positions are exactly the elements of the image.
    constexpr bool is_one_for_one() const {
        return taps() == 1 && down.stride == 1 && across.stride == 1 && down.padding == 0 && across.padding == 0;
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
