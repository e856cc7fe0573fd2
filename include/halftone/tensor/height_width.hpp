// SPDX-License-Identifier: MIT
/// \file
/// Two extents of an operation on images, along their height and along their width.
///
///     ht::max_pool2d(ctx, x, {.kernel_size = 3, .stride = {2, 1}});          // windows of 3 rows and 3 columns
#pragma once

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A number of rows and a number of columns; one number stands for both.
struct height_width {
    extent height = 0, width = 0;

    constexpr height_width() = default;
    constexpr height_width(extent both) : height(both), width(both) {}
    constexpr height_width(extent h, extent w) : height(h), width(w) {}

    friend constexpr bool operator==(const height_width&, const height_width&) = default;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
