// SPDX-License-Identifier: MIT
/// \file
/// A window that slides over images: which of their elements it covers at which place.
///
///     axis.seen(place, tap)                // the row (or column) of the image under tap `tap` with the window at `place`
///     axis.place_of(at, tap)               // the place with row `at` under that tap; -1: none
#pragma once

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// One axis of a window. A tap is an element of the window; a place is a position of the window, an element of the result.
struct window_axis {
    extent size, taps, places, stride, padding, dilation;

    /// The row or column under a tap at a place; one outside of 0 to size - 1 is padding.
    HALFTONE_HD constexpr extent seen(extent place, extent tap) const {
        return place * stride - padding + tap * dilation;
    }
    /// The place at which `at` is under a tap, or -1. Computed in Int: extent, or std::int32_t where fits_32_bits().
    template <class Int = extent>
    HALFTONE_HD constexpr Int place_of(Int at, Int tap) const {
        const Int step = static_cast<Int>(stride);
        const Int from = at + static_cast<Int>(padding) - tap * static_cast<Int>(dilation);
        const Int place = step == 1 ? from : from / step;
        return from >= 0 && place * step == from && place < static_cast<Int>(places) ? place : Int{-1};
    }
    /// Whether no coordinate under the window exceeds 32 bits.
    constexpr bool fits_32_bits() const {
        constexpr extent most = extent{1} << 29;
        return size <= most && padding <= most && places <= most / stride && taps <= most / dilation;
    }
    /// The first place at which the tap is inside the image, and one after the last.
    constexpr extent first_inside(extent tap) const { return places_before(padding - tap * dilation); }
    constexpr extent end_inside(extent tap) const { return places_before(size + padding - tap * dilation); }

  private:
    /// The number of places p with p stride < n.
    constexpr extent places_before(extent n) const {
        const extent count = n <= 0 ? 0 : (n + stride - 1) / stride;
        return count < places ? count : places;
    }
};

/// Both axes.
struct sliding_window {
    window_axis down, across;

    HALFTONE_HD constexpr extent taps() const { return down.taps * across.taps; }
    HALFTONE_HD constexpr extent places() const { return down.places * across.places; }
    constexpr bool fits_32_bits() const { return down.fits_32_bits() && across.fits_32_bits(); }
    /// Whether the window is one element, and the places are exactly the elements of the image.
    constexpr bool is_one_for_one() const {
        return taps() == 1 && down.stride == 1 && across.stride == 1 && down.padding == 0 && across.padding == 0;
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
