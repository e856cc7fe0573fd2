// SPDX-License-Identifier: MIT
/// \file
/// Whether a kernel that computes a gradient overwrites its destination or adds to it.
///
///     kernel::column_sum<cpu>::run(device, dy, dbias, ht::write_mode::add);      // a second micro-batch
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Whether a kernel overwrites its destination or adds to it.
enum class write_mode {
    overwrite,  ///< old contents are not read
    add,        ///< the sum of old and new, computed in float and rounded once to the element type
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
