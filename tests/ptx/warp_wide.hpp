// SPDX-License-Identifier: MIT
/// \file
/// Instructions that the lanes of a warp do together: shuffles, votes, matrices out of shared memory and their products.
#pragma once

#include "ptx/module.hpp"

namespace halftone::ptx {

/// nullptr: none of these. Fills in who takes part.
handler decode_warp_wide(instruction& i, const std::vector<std::string_view>& parts);

}  // namespace halftone::ptx
