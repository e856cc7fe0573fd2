// SPDX-License-Identifier: MIT
/// \file
/// The definition of a token's position in its document.
///
///     position[t] = t - offset[d],   where offset[d] <= t < offset[d + 1]
///
///     reference::packed_positions(offsets, positions);
#pragma once

#include <cstdint>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// positions[t] = t - the offset at which t's document begins.
inline void packed_positions(const const_view<std::int32_t, 1>& offsets,  // (documents + 1)
                             const view<std::int32_t, 1>& positions) {    // (tokens)
    for (extent t = 0; t < positions.extent_of(0); ++t) {
        positions(t) = -1;
        for (extent d = 0; d + 1 < offsets.extent_of(0); ++d) {
            if (offsets(d) <= t && t < offsets(d + 1)) positions(t) = static_cast<std::int32_t>(t) - offsets(d);
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
