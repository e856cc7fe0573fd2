// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in gradients.hpp that are no templates.
#pragma once

#include <halftone/scale/gradients.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE std::size_t window::find(const store& owner) const {
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (&parts[i].slabs.owner() == &owner) return i;
    }
    return nowhere;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
