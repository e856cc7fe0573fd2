// SPDX-License-Identifier: MIT
/// \file
/// The AMX-shaped product bodies on tiles in plain memory, so that they are tested on any machine.
#pragma once

#include <halftone/kernel/matmul/cpu/unit/split.hpp>
#include <halftone/kernel/matmul/cpu/unit/split_tile.simd.hpp>
#include <halftone/kernel/matmul/cpu/unit/tile.simd.hpp>

namespace support::software_tiles {

using namespace halftone;
using namespace halftone::detail;

/// As unit_for<bfloat16> gives it on a processor with AMX.
inline product_unit unit() {
    return {.rows = 32,
            .columns = 32,
            .k_step = 32,
            .element = 2,
            .multiply = &portable::tile_multiply,
            .tiles = product_unit::tile_functions{.multiply = &portable::tile_multiply_pieces},
            .worker = product_unit::worker_functions{.begin = &portable::enter_tiles, .end = &portable::leave_tiles}};
}

#if defined(__x86_64__)
/// As matmul_unit_for gives it there where operands are split; needs AVX-512.
template <int Pieces>
product_unit split_unit() {
    return {.rows = 32,
            .columns = 32,
            .k_step = 32,
            .element = 2 * Pieces,
            .multiply = &portable::split_tile_multiply<Pieces>,
            .tiles = product_unit::tile_functions{.multiply = &portable::split_tile_multiply_pieces<Pieces>},
            .worker = product_unit::worker_functions{.begin = &portable::enter_tiles, .end = &portable::leave_tiles}};
}
#endif

}  // namespace support::software_tiles
