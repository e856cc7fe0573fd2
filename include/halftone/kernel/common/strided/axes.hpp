// SPDX-License-Identifier: MIT
/// \file
/// Merges the axes of several arrays with different strides that a loop walks together, to as few axes as possible.
#pragma once

#include <halftone/tensor/shape.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

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

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline int merge_axes(int axes, axis_values& extents, axis_values* strides, int arrays) {
    int kept = 0;
    for (int axis = 0; axis < axes; ++axis) {
        if (extents.of[axis] == 1) continue;
        bool merges = kept > 0;
        for (int i = 0; i < arrays && merges; ++i)
            merges = strides[i].of[kept - 1] == strides[i].of[axis] * extents.of[axis];
        const int to = merges ? kept - 1 : kept++;
        extents.of[to] = merges ? extents.of[to] * extents.of[axis] : extents.of[axis];
        for (int i = 0; i < arrays; ++i) strides[i].of[to] = strides[i].of[axis];
    }
    if (kept > 0) return kept;
    extents.of[0] = 1;
    for (int i = 0; i < arrays; ++i) strides[i].of[0] = 1;
    return 1;
}

#endif

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
