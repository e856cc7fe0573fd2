// SPDX-License-Identifier: MIT
/// \file
/// Merges the axes of several arrays with different strides that a loop walks together, to as few axes as possible.
#pragma once

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The largest number of axes of kernels with strides.
inline constexpr int most_axes = 8;

/// Extents or strides, outermost first.
struct axis_values {
    extent of[most_axes];
};

template <int Rank>
axis_values axis_values_of(const shape<Rank>& s) {
    static_assert(Rank <= most_axes, "halftone: operations over strides take tensors of up to 8 axes");
    axis_values all{};
    for (int axis = 0; axis < Rank; ++axis) all.of[axis] = s[axis];
    return all;
}

/// Drops axes of extent 1, and merges neighbouring axes if the strides of all `arrays` arrays allow it. Returns the
/// number of remaining axes, at least one.
int merge_axes(int axes, axis_values& extents, axis_values* strides, int arrays);

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/common/strided/axes.body.hpp>
#endif
