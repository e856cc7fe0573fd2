// SPDX-License-Identifier: MIT
/// \file
/// The AMX-shaped product body on tiles in plain memory, so that it is tested on any machine.
#pragma once

#include <halftone/kernel/product/product.hpp>

namespace support::software_tiles {

using namespace halftone;
#include <halftone/exec/cpu/simd/tile_software.inc>
#include <halftone/kernel/product/tile.inc>

/// As unit_for<bfloat16> gives it on a processor with AMX.
inline product_unit unit() { return {32, 32, 32, 2, &tile_multiply, &enter_tiles, &leave_tiles}; }

}  // namespace support::software_tiles
