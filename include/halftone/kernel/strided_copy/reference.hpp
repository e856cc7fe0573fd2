// SPDX-License-Identifier: MIT
/// \file
/// The definition of copies between strided views: index by index.
///
///     reference::strided_copy(x, y);
#pragma once

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// to = from, for views of the same shape with any strides.
template <class From, class T, int Rank>
void strided_copy(const view<From, Rank>& from, const view<T, Rank>& to) {
    for (extent i = 0; i < to.size(); ++i) {
        extent rest = i, from_at = 0, to_at = 0;
        for (int axis = Rank - 1; axis >= 0; --axis) {
            const extent index = rest % to.extent_of(axis);
            rest /= to.extent_of(axis);
            from_at += index * from.stride_of(axis);
            to_at += index * to.stride_of(axis);
        }
        to.data()[to_at] = from.data()[from_at];
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
