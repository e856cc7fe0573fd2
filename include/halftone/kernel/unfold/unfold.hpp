// SPDX-License-Identifier: MIT
/// \file
/// What a sliding window sees as the columns of a matrix (im2col), so that a convolution is a product; and the transpose
/// of that, which adds up what all windows say of an element (col2im).
///
///     kernel::unfold<cpu>::run(device, {.x = pictures, .y = columns, .window = w, .rows = w.down.places});
///     kernel::unfold<cpu>::fold(device, kernel::fold_arguments<float, bfloat16>{.y = columns, .x = gradient, .window = w});
///
/// Row (channel, tap) of the matrix, column (image, place) is the element of that channel and image that the tap sees from
/// there, or 0 outside of the picture. torch.nn.functional.unfold has the same rows for each image.
///
/// Numeric contract: unfold copies. fold sums in float (in double where one of its types is double), for each element over
/// the taps that see it in their order, adds that to what is there where asked, and rounds once: the same bits at any
/// number of threads.
#pragma once

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/unfold/window/window.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// What unfold reads and writes: all places of the window, or some rows of them.
template <class T>
struct unfold_arguments {
    const_view<T, 4> x;     ///< (images, channels, height, width), of any strides
    view<T, 2> y;           ///< (channels taps, images rows across.places), contiguous
    sliding_window window;  ///< over pictures of that height and width
    extent first_row = 0;   ///< of the places
    extent rows = 0;        ///< so many
};

/// What fold reads and writes. The channels of a group are neighbours in the matrix, and may be some of those in memory.
template <class T, class X>
struct fold_arguments {
    const_view<T, 3> y;     ///< (groups, channels taps, images places), contiguous
    view<X, 5> x;           ///< (images, groups, channels, height, width); the elements of a picture are contiguous
    sliding_window window;  ///< over pictures of that height and width
    write_mode mode = write_mode::overwrite;
};

/// Specialised for each device: run(device, unfold_arguments), fold(device, fold_arguments). Throw shape_error where the
/// matrix does not fit.
template <class Device>
struct unfold;

template <class T>
void check_unfold(const unfold_arguments<T>& a) {
    expect("unfold", "y", a.y,
           {a.x.extent_of(1) * a.window.taps(), a.x.extent_of(0) * a.rows * a.window.across.places});
}
template <class T, class X>
void check_fold(const fold_arguments<T, X>& a) {
    expect("fold", "y", a.y,
           {a.x.extent_of(1), a.x.extent_of(2) * a.window.taps(), a.x.extent_of(0) * a.window.places()});
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
