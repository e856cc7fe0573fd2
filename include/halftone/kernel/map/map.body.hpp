// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in map.hpp that are no templates.
#pragma once

#include <halftone/kernel/map/map.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

HALFTONE_OUT_OF_LINE void refuse_sums_beside_strides() {
    fail<shape_error>(
        "map: the gradient of an input of rank 0 or 1 is summed only if all operands have contiguous rows at a "
        "constant distance; "
        "expand the input to the outputs' shape, and sum its gradient");
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
