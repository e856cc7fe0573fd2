// SPDX-License-Identifier: MIT
/// \file
/// Products of sums of bfloat16 on matrix tiles, written on `tile_block` as tile.simd.hpp is.
// A body without a guard (exec/cpu/each_set.hpp): for AMX tiles, and in tests for tiles in memory.

#include <cstddef>
#include <cstring>

#include <halftone/exec/cpu/simd/tile_software.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>
#include <halftone/kernel/matmul/cpu/unit/split_packing.hpp>

#if HALFTONE_AMX
namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

using avx512::add_split_sums;

/// c (rows, 32) = or += a (rows, k) times one panel of b (k, 32), both packed by split_packing.hpp, rows up to 32. The products
/// of split_depth of k are summed separately, small ones first and those of the first pieces last, and then added to c: so
/// small products are not lost in the rounding of c. The loop over k is outside, the one over pairs of pieces inside: the tiles
/// of one step come from L2 once.
template <int Pieces>
void split_tile_rows(extent rows, extent k, const bfloat16* a_rows, const bfloat16* panel, float* c, extent c_stride,
                     bool add, lookahead* ahead) {
    alignas(64) float sums[32 * 32];  // (rows, columns)
    extent p = 0;
    do {
        const extent depth = k - p < split_depth ? k - p : split_depth;
        const bfloat16 *const a = a_rows + p * Pieces, *const b = panel + p * Pieces * 32;
        tile_block block;
        block.zero();
        for (extent step = 0; step < depth; step += 32) {
            for (extent prefetched = 0; prefetched < 32 && ahead != nullptr; prefetched += lookahead_depth) ahead->prefetch();
            block.load_rows(a + step * Pieces, Pieces * panel_stride);
            if constexpr (Pieces == 3) {
                block.load_columns(b + (step * Pieces + 64) * 32);
                block.multiply();
            }
            block.load_columns(b + (step * Pieces + 32) * 32);
            block.multiply();
            block.load_rows(a + step * Pieces + 32, Pieces * panel_stride);
            block.multiply();
            block.load_columns(b + step * Pieces * 32);
            block.multiply();
            if constexpr (Pieces == 3) {
                block.load_rows(a + step * Pieces + 64, Pieces * panel_stride);
                block.multiply();
            }
        }
        for (extent step = 0; step < depth; step += 32) {
            block.load_rows(a + step * Pieces, Pieces * panel_stride);
            block.load_columns(b + step * Pieces * 32);
            block.multiply();
        }
        block.store(sums, 32);
        add_split_sums<Pieces>(sums, rows, depth, a, b, c, c_stride, add);
        add = true;
        p += split_depth;
    } while (p < k);
}

/// c (rows, 32) = or += a (rows, k) times one panel of b (multiply_packed).
template <int Pieces>
void split_tile_multiply(extent rows, extent k, const void* a_block, const void* b_panel, float* c, extent c_stride,
                         bool add, lookahead* ahead) {
    for (extent i = 0; i < rows; i += 32) {
        split_tile_rows<Pieces>(rows - i < 32 ? rows - i : 32, k,
                                static_cast<const bfloat16*>(a_block) + i * Pieces * panel_stride,
                                static_cast<const bfloat16*>(b_panel), c + i * c_stride, c_stride, add, ahead);
    }
}

/// to (rows, 32) = from + rows of a times a panel of b, over pieces of k (multiply_pieces).
template <int Pieces>
void split_tile_multiply_pieces(extent k, const deep_operands& operands, const float* from, extent from_stride,
                                 float* to, extent to_stride, lookahead* ahead) {
    bool add = from != nullptr;
    for (extent i = 0; i < operands.rows && add && from != to; ++i)
        std::memcpy(to + i * to_stride, from + i * from_stride, 32 * sizeof(float));
    const auto* a = static_cast<const std::byte*>(operands.a);
    const auto* b = static_cast<const std::byte*>(operands.b);
    extent p = 0;
    do {
        split_tile_rows<Pieces>(operands.rows, k - p < panel_depth ? k - p : panel_depth,
                                reinterpret_cast<const bfloat16*>(a), reinterpret_cast<const bfloat16*>(b), to,
                                to_stride, add, ahead);
        add = true;
        p += panel_depth;
        a += operands.a_step_bytes;
        b += operands.b_step_bytes;
    } while (p < k);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
#endif
