// SPDX-License-Identifier: MIT
/// \file
/// Positions in packed documents on the CPU; packed_positions.hpp has the contract and an example.
#pragma once

#include <algorithm>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/packed_positions/packed_positions.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct packed_positions<cpu> {
    static void run(cpu& device, const const_view<std::int32_t, 1>& offsets, const view<std::int32_t, 1>& positions);
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/packed_positions/cpu.body.hpp>
#endif
