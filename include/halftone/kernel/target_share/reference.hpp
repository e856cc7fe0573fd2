// SPDX-License-Identifier: MIT
/// \file
/// The definition of counting targets.
///
///     const double share = reference::counted(targets_of_micro) / reference::counted(targets_of_batch);
#pragma once

#include <halftone/kernel/target_share/target_share.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// How many targets are not uncounted_target.
inline double counted(const const_view<std::int32_t, 1>& targets) {
    double n = 0;
    for (extent i = 0; i < targets.extent_of(0); ++i) n += targets(i) == kernel::uncounted_target ? 0 : 1;
    return n;
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
