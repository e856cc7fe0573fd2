// SPDX-License-Identifier: MIT
/// \file
/// The AMX-shaped product bodies on tiles in plain memory, so that they are tested on any machine.
#pragma once

#include <cmath>

#include <halftone/kernel/matmul/cpu/split.hpp>

namespace support::software_tiles {

using namespace halftone;
using namespace halftone::detail;
#include <halftone/exec/cpu/simd/tile_software.inc>
#include <halftone/kernel/matmul/cpu/tile.inc>

/// As unit_for<bfloat16> gives it on a processor with AMX.
inline product_unit unit() {
    return {.rows = 32,
            .columns = 32,
            .k_step = 32,
            .element = 2,
            .multiply = &tile_multiply,
            .enter = &enter_tiles,
            .leave = &leave_tiles,
            .multiply_through = &tile_multiply_through};
}

#if defined(__x86_64__)
using avx512::add_split_sums;
#include <halftone/kernel/matmul/cpu/split_tile.inc>

/// As matmul_unit_for gives it there where operands are split; needs AVX-512.
template <int Pieces>
product_unit split_unit() {
    return {.rows = 32,
            .columns = 32,
            .k_step = 32,
            .element = 2 * Pieces,
            .multiply = &split_tile_multiply<Pieces>,
            .enter = &enter_tiles,
            .leave = &leave_tiles,
            .multiply_through = &split_tile_multiply_through<Pieces>};
}
#endif

}  // namespace support::software_tiles
