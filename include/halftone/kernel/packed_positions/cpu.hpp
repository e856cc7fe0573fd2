// SPDX-License-Identifier: MIT
/// \file
/// Positions in packed documents on the CPU; packed_positions.hpp has the contract and an example.
#pragma once

#include <algorithm>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/packed_positions/packed_positions.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct packed_positions<cpu> {
    static void run(cpu& device, const const_view<std::int32_t, 1>& offsets, const view<std::int32_t, 1>& positions);
};

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline void packed_positions<cpu>::run(cpu& device, const const_view<std::int32_t, 1>& offsets,
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

#endif

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
