// SPDX-License-Identifier: MIT
/// \file
/// The definition of conversion.
///
///     reference::convert(from, to, 1.0);
#pragma once

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// to = factor * from, rounded once to nearest even.
template <class X, class Y>
void convert(const view<X, 1>& from, const view<Y, 1>& to, double factor) {
    for (extent i = 0; i < from.extent_of(0); ++i) to(i) = static_cast<Y>(factor * static_cast<double>(from(i)));
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
