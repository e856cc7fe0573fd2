// SPDX-License-Identifier: MIT
/// \file
/// Sums of squares of a few rows that are in the L1 cache.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/rows/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

HALFTONE_INLINE float squares_of_rows(const float* x, extent stride, extent rows, extent columns) {
    four_vectors squares = broadcast_four(0.0f);
    for (extent i = 0; i < rows; ++i, x += stride) {
        extent j = 0;
        for (; j + 2 * f32::lanes <= columns; j += 2 * f32::lanes) {
            const f32 left = load(x + j), right = load(x + j + f32::lanes);
            squares.v[0] = fma(left, left, squares.v[0]);
            squares.v[1] = fma(right, right, squares.v[1]);
        }
        for (; j < columns; j += f32::lanes) {
            const f32 rest = load(x + j, static_cast<int>(columns - j < f32::lanes ? columns - j : f32::lanes));
            squares.v[2] = fma(rest, rest, squares.v[2]);
        }
    }
    return sum(squares);
}

/// The sums of the squares of a block of tiles: sums[t * sums_stride + u] for tile (t, u).
inline void squares_of_tiles(const float* x, extent stride, extent rows, extent columns, extent tile_rows,
                             extent tile_columns, float* sums, extent sums_stride) {
    for (extent i = 0; i < rows; i += tile_rows, sums += sums_stride) {
        float* sum = sums;
        for (extent j = 0; j < columns; j += tile_columns) {
            *sum++ = squares_of_rows(x + i * stride + j, stride, rows - i < tile_rows ? rows - i : tile_rows,
                                     columns - j < tile_columns ? columns - j : tile_columns);
        }
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
