// SPDX-License-Identifier: MIT
/// \file
/// Transposes a warp's sums for the epilogue: sixteen rows at a time go through the warp's own part of shared memory,
/// after which a lane has eight consecutive elements of a row, or, if rows of c are unaligned, consecutive lanes have
/// consecutive columns.
///
///     const staged_rows<64> rows{simt.warp() * staged_rows<64>::bytes};
///     rows.put(simt, row, pair, {sum, next}); ...                     // all 16 x 64 sums, by any lanes
///     simt.warp_barrier();
///     rows.finish(simt, epilogue, access, first_row, c_rows, first_column, c_columns);
#pragma once

#include <halftone/kernel/matmul/device/finish.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

template <int Width>
struct staged_rows {
    static constexpr word floats = 16 * Width, bytes = floats * sizeof(float);

    word offset;  // in shared memory

    /// Stores two consecutive elements of a row, number 2 pair and the next.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void put(Simt simt, int row, int pair, const vec<float, 2>& sums) const {
        simt.store(shared_span<vec<float, 2>>{offset, floats / 2}, place_of_four(row, pair / 2) * 2 + pair % 2, sums);
    }

    /// Row 0 and column 0 here are (first_row, first_column) of c, whose extents are c_rows x c_columns.
    HALFTONE_KERNEL template <class Simt, class Operands, class Results>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, const detail::matmul_epilogue<Operands, Results>& end, row_access access,
                                            int first_row, int c_rows, int first_column, int c_columns) const {
        constexpr int lanes_in_row = Width / 8, rows_at_once = 32 / lanes_in_row;
        const shared_span<vec<float, 4>> fours{offset, floats / 4};
        const shared_span<float> ones{offset, floats};
        const int left = c_rows - first_row, rows = left < 16 ? left : 16, columns_left = c_columns - first_column;
        const int my_column = simt.lane() % lanes_in_row * 8, column = first_column + my_column;
        // If groups of eight are not aligned chunks, consecutive lanes take consecutive columns: the addresses that a
        // warp accesses at once are then contiguous, which the first elements of 32 groups of eight would not be.
        if (access == row_access::chunks && (columns_left >= Width || columns_left % 8 == 0)) {
            HALFTONE_UNROLL for (int i = 0; i < 16 / rows_at_once; ++i) {
                const int row = i * rows_at_once + simt.lane() / lanes_in_row;
                if (row >= rows || column >= c_columns) continue;
                const vec<float, 4> low = simt.load(fours, place_of_four(row, my_column / 4)),
                                    high = simt.load(fours, place_of_four(row, my_column / 4 + 1));
                finish_row(simt, end, row_access::chunks, first_row + row, column, column + 8,
                           vec<float, 8>{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]});
            }
        } else {
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // bound by memory: small code suffices
#endif
            for (int e = simt.lane(); e < rows * Width; e += 32) {
                const int row = e / Width, across = e % Width;
                if (across >= columns_left) continue;
                finish_row(simt, end, row_access::elements, first_row + row, first_column + across, c_columns,
                           vec<float, 1>{simt.load(ones, place_of_four(row, across / 4) * 4 + across % 4)});
            }
        }
    }

  private:
    /// The place of four consecutive elements, such that the pairs that half a warp stores at once, in four rows, have
    /// no bank conflicts.
    HALFTONE_HD HALFTONE_INLINE static int place_of_four(int row, int four) { return row * (Width / 4) + (four ^ row % 4 * 2); }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
