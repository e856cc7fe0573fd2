// SPDX-License-Identifier: MIT
/// \file
/// The AMX-shaped product bodies on tiles in plain memory, so that they are tested on any machine, and packing for them.
#pragma once

#include <cstddef>

#include <halftone/kernel/matmul/cpu/unit/split.hpp>
#include <halftone/kernel/matmul/cpu/unit/split_tile.simd.hpp>
#include <halftone/kernel/matmul/cpu/unit/tile.simd.hpp>

namespace support::software_tiles {

using namespace halftone;
using namespace halftone::detail;

/// The unit that unit_for<bfloat16> returns on a processor with AMX.
inline product_unit unit() {
    return {.rows = 32,
            .columns = 32,
            .k_step = 32,
            .element = 2,
            .multiply = &portable::tile_multiply,
            .tiles = product_unit::tile_functions{.multiply = &portable::tile_multiply_pieces},
            .worker = product_unit::worker_functions{.begin = &portable::enter_tiles, .end = &portable::leave_tiles}};
}

inline extent padded(extent n) { return (n + 31) / 32 * 32; }
/// Packing of operands for bfloat16 units, as kernel/matmul/cpu/unit.hpp describes it, element by element.
inline product_packing<bfloat16> plain_packing() {
    return {.a = {.pack =
                      [](const void* source, extent row_stride, extent k_stride, extent rows, extent k, void* block,
                         extent block_stride) {
                          const auto* from = static_cast<const bfloat16*>(source);
                          auto* to = static_cast<bfloat16*>(block);
                          for (extent i = 0; i < rows; ++i) {
                              for (extent p = 0; p < padded(k); ++p) {
                                  to[i * block_stride + p] =
                                      p < k ? from[i * row_stride + p * k_stride] : bfloat16(0.0f);
                              }
                          }
                      },
                  .has_unit_type = true},
            .b = {.pack = [](const void* source, extent k_stride, extent column_stride, extent k, extent columns,
                             void* panels, std::size_t panel_step_bytes) {
                const auto* from = static_cast<const bfloat16*>(source);
                for (extent j = 0; j < padded(columns); ++j) {
                    auto* const to = reinterpret_cast<bfloat16*>(static_cast<std::byte*>(panels) +
                                                                 static_cast<std::size_t>(j / 32) * panel_step_bytes);
                    for (extent p = 0; p < padded(k); ++p) {
                        to[(p / 2 * 32 + j % 32) * 2 + p % 2] =
                            p < k && j < columns ? from[p * k_stride + j * column_stride] : bfloat16(0.0f);
                    }
                }
            }}};
}

#if defined(__x86_64__)
/// The unit that matmul_unit_for returns there for split operands; needs AVX-512.
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
