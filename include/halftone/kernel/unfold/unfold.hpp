// SPDX-License-Identifier: MIT
/// \file
/// Unfolds images into a matrix whose columns are the elements under a sliding window (im2col), so that a convolution
/// is a matrix product; and the transpose, fold, which sums for each element of an image the matrix elements that
/// correspond to it (col2im).
///
///     kernel::unfold<cpu>::run(device, {.x = images, .y = columns, .window = w, .rows = w.down.positions});
///     kernel::unfold<cpu>::fold(device, kernel::fold_arguments<float, bfloat16>{.y = columns, .x = gradient, .window = w});
///
/// The element of the matrix at row (channel, tap) and column (image, position) is the one that the tap reads in that
/// channel of that image with the window at that position, or 0 in the padding. For each image the rows are those of
/// torch.nn.functional.unfold.
///
/// Numeric contract: unfold copies. fold sums for each element over the taps, in their order, in float (in double if
/// one of its types is double), adds the sum to the previous value if the mode asks for that, and rounds once. The bits
/// are the same at any number of threads.
#pragma once

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/unfold/window/window.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The operands of unfold: the columns of all positions of the window, or of some rows of them.
template <class T>
struct unfold_arguments {
    const_view<T, 4> x;     ///< (images, channels, height, width), with any strides
    view<T, 2> y;           ///< (channels * taps, images * rows * across.positions), contiguous
    sliding_window window;  ///< for images of that height and width
    extent first_row = 0;   ///< the first row of positions
    extent rows = 0;        ///< the number of rows of positions
};

/// The operands of fold. The channels of a group are adjacent in the matrix, and may be only some of those in memory.
template <class T, class X>
struct fold_arguments {
    const_view<T, 3> y;     ///< (groups, channels * taps, images * positions), contiguous
    view<X, 5> x;           ///< (images, groups, channels, height, width); the elements of a channel are contiguous
    sliding_window window;  ///< for images of that height and width
    write_mode mode = write_mode::overwrite;
};

/// Specialised for each device: run(device, unfold_arguments), fold(device, fold_arguments). Both throw shape_error if
/// the matrix's shape does not match.
template <class Device>
struct unfold;

template <class T>
void check_unfold(const unfold_arguments<T>& a) {
    expect("unfold", "y", a.y,
           {a.x.extent_of(1) * a.window.taps(), a.x.extent_of(0) * a.rows * a.window.across.positions});
}
template <class T, class X>
void check_fold(const fold_arguments<T, X>& a) {
    expect("fold", "y", a.y,
           {a.x.extent_of(1), a.x.extent_of(2) * a.window.taps(), a.x.extent_of(0) * a.window.positions()});
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
