// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in cpu.hpp that are no templates.
#pragma once

#include <halftone/kernel/packed_positions/cpu.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

HALFTONE_OUT_OF_LINE void packed_positions<cpu>::run(cpu& device, const const_view<std::int32_t, 1>& offsets,
                                       const view<std::int32_t, 1>& positions) {
    check_packed_positions(offsets, positions);
    device.run([&] {
        const extent tokens = positions.extent_of(0);
        std::fill_n(positions.data(), tokens, -1);
        for (extent d = 0; d + 1 < offsets.extent_of(0); ++d) {
            const extent begin = std::max<extent>(offsets(d), 0), end = std::min<extent>(offsets(d + 1), tokens);
            for (extent t = begin; t < end; ++t) positions(t) = static_cast<std::int32_t>(t - begin);
        }
    });
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
