// SPDX-License-Identifier: MIT
/// \file
/// The position of each token of a row in its document (packed sequences).
///
///     kernel::packed_positions<cpu>::run(device, offsets, positions);      // offsets 0, 3, 5: positions 0 1 2 0 1
///
/// Offsets ascend from 0 to the number of tokens. If they do not, a token outside of all documents gets -1, and the
/// positions of the others are unspecified.
#pragma once

#include <cstdint>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// run(device, offsets, positions); throws shape_error for empty offsets.
template <class Device>
struct packed_positions;

/// Throws shape_error if the arguments do not fit together.
inline void check_packed_positions(const const_view<std::int32_t, 1>& offsets,  // (documents + 1)
                                   const view<std::int32_t, 1>& positions) {    // (tokens)
    expect("packed_positions", "offsets", offsets, offsets.shape());
    expect("packed_positions", "positions", positions, positions.shape());
    if (offsets.extent_of(0) < 1) fail<shape_error>("packed_positions: offsets is empty; expected documents + 1");
}

}  // namespace kernel

/// positions[t] = t - the offset at which t's document begins. offsets: (documents + 1), ascending from 0 to the number
/// of tokens; positions: (tokens). Throws shape_error.
template <class Device>
    requires(detail::kernel_device<Device>)
void packed_positions(Device& device, const const_view<std::int32_t, 1>& offsets,
                      const view<std::int32_t, 1>& positions) {
    kernel::packed_positions<Device>::run(device, offsets, positions);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
