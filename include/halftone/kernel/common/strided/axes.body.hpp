// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in axes.hpp that are no templates.
#pragma once

#include <halftone/kernel/common/strided/axes.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

HALFTONE_OUT_OF_LINE int merge_axes(int axes, axis_values& extents, axis_values* strides, int arrays) {
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

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
