// SPDX-License-Identifier: MIT
/// \file
/// How one warp multiplies tiles of 16-bit heads by matrix instructions: 16 x 16 blocks out of swizzled shared memory,
/// sums in registers, results back through shared memory so that they leave in whole chunks.
///
/// Numeric contract: products are exact, sums are the instruction's, in float.
#pragma once

#include <halftone/kernel/attention/device_tiles.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

/// Two numbers rounded to T, the first in the low half.
template <class T>
HALFTONE_HD HALFTONE_INLINE word packed(float low, float high) {
#if defined(__CUDA_ARCH__)
    word both;
    if constexpr (std::is_same_v<T, bfloat16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    }
    return both;
#else
    return T(low).bits() | static_cast<word>(T(high).bits()) << 16;
#endif
}

/// The sums of 16 rows and 8 columns: a lane has columns 2 (lane % 4) and the next, of row lane / 4, then of row lane /
/// 4 + 8.
using block_sums = vec<float, 4>;

/// Two neighbouring blocks of sums, rounded, as the 16 x 16 left operand of the next product.
template <class T>
HALFTONE_HD HALFTONE_INLINE vec<word, 4> as_left(const block_sums& x, const block_sums& y) {
    return {packed<T>(x[0], x[1]), packed<T>(x[2], x[3]), packed<T>(y[0], y[1]), packed<T>(y[2], y[3])};
}

/// Elements of a row of a tile of heads: whole panels, a power of two of them.
constexpr int padded_head(int head_size) { return head_size <= 64 ? head_size : head_size <= 128 ? 128 : 256; }

/// A tile of heads of Head elements in shared memory; Rows x whole panels.
template <class T, int Rows, int Head>
struct head_tile : simt::shared_tile<T, Rows, padded_head(Head)> {
    using base_tile = simt::shared_tile<T, Rows, padded_head(Head)>;
    using chunk_span = shared_span<simt::chunk<T>>;
    static constexpr word rows = Rows;
    static constexpr int columns = padded_head(Head), head_size = Head;

    /// The lane's place in any 16 x 16 block as ldmatrix reads it; the same in all tiles of one width.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static word place_of(Simt simt) {
        return head_tile{{0}}.at(static_cast<word>(simt.lane()) % 16, static_cast<word>(simt.lane()) / 16 * 8).offset;
    }
    /// The lane's chunk of the block whose corner is (row, column), both multiples of 16: whole periods of the swizzle
    /// down the tile, and across it only in bits that the swizzle leaves in place.
    HALFTONE_HD HALFTONE_INLINE chunk_span block(word place, int row, int column) const {
        const word byte = static_cast<word>(column) * 2,
                   down = byte / base_tile::row_bytes * Rows + static_cast<word>(row);
        return {this->base + (place ^ byte % base_tile::row_bytes) + down * base_tile::row_bytes, 1};
    }
    /// The same tile from a row on, a multiple of 16.
    HALFTONE_HD HALFTONE_INLINE head_tile from_row(int row) const {
        return {{this->base + static_cast<word>(row) * base_tile::row_bytes}};
    }

    /// Sums of 16 x RowBlocks rows of a warp, from the tile's row `row` on, rounded, to memory; `width` is a multiple
    /// of 8. No other warp may be using these rows of the tile.
    HALFTONE_KERNEL template <int RowBlocks, class Simt>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, int row, const block_sums (&sums)[RowBlocks][Head / 8],
                                           const global_span<T>& head, extent time_stride, int first, int end,
                                           int width) const {
        simt.warp_barrier();
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
                    const auto chunk = this->at(static_cast<word>(row + 16 * m + 8 * half + simt.lane() / 4),
                                                static_cast<word>(8 * n));
                    simt.store(shared_span<word>{chunk.offset, 4}, simt.lane() % 4,
                               packed<T>(sums[m][n][2 * half], sums[m][n][2 * half + 1]));
                }
            }
        }
        simt.warp_barrier();
        for (int i = simt.lane(); i < 16 * RowBlocks * (Head / 8); i += 32) {
            const int r = i / (Head / 8), column = i % (Head / 8) * 8;
            if (first + r >= end || column >= width) continue;
            const simt::chunk<T> values = simt.load(this->at(static_cast<word>(row + r), static_cast<word>(column)), 0);
            simt.store(simt::as_vectors<8>(head.from((first + r) * time_stride + column)), 0, values);
        }
    }
};

/// Where a thread finds its chunks of a head's vectors, tile by tile: one column of chunks, or one of each half of a
/// wide tile, and every `at_once`-th row, so that little is left to compute for each.
template <class T, class Tile, int Threads>
struct tile_source {
    static constexpr int chunks = Tile::columns / 8, across = chunks < Threads / 8 ? chunks : Threads / 8,
                         at_once = Threads / across;
    static_assert(Threads % across == 0 && Tile::rows % at_once == 0 && chunks % across == 0);
    static_assert(at_once * Tile::row_bytes % 1024 == 0, "the thread's chunks lie whole periods of the swizzle apart");
    static_assert(across == chunks || across * 16 % Tile::row_bytes == 0, "and whole panels");

    global_span<const T> chunk;
    extent stride;  ///< from one time to the next
    word place;     ///< in a tile
    int left;       ///< times from the thread's first to the end

    /// The vectors from `first` to `end`.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static tile_source of(Simt simt, const global_span<const T>& head, extent time_stride,
                                                      int first, int end) {
        const int row = simt.thread() / across, column = simt.thread() % across * 8;
        return {head.from(static_cast<extent>(first + row) * time_stride + column), time_stride,
                Tile{{0}}.at(static_cast<word>(row), static_cast<word>(column)).offset, end - first - row};
    }
    /// Starts to copy a tile. Vectors that are not there become zeros, as do elements beyond `width`, a multiple of 8.
    /// A chunk that is not there may have any address, as none of it is read.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void fetch(Simt simt, const Tile& to, int width) const {
        HALFTONE_UNROLL for (int c = 0; c < chunks; c += across) {
            const int column = (simt.thread() % across + c) * 8;
            if (column >= Tile::head_size) return;
            const int there = column < width ? left : 0;
            HALFTONE_UNROLL for (int r = 0; r < static_cast<int>(Tile::rows); r += at_once) {
                const word down = static_cast<word>(c) * 16 / Tile::row_bytes * Tile::rows + static_cast<word>(r);
                simt.async_copy16(typename Tile::chunk_span{to.base + place + down * Tile::row_bytes, 1},
                                  chunk.from(r * stride + c * 8), r < there ? 8 : 0);
            }
        }
    }
    HALFTONE_HD HALFTONE_INLINE void next_tile() {
        chunk = chunk.from(static_cast<int>(Tile::rows) * stride);
        left -= static_cast<int>(Tile::rows);
    }
};

/// A block's part of the problem lies in shared memory, too, so that loops need no registers for what they seldom read.
/// The block's first barrier orders it.
HALFTONE_KERNEL template <class Simt>
HALFTONE_HD HALFTONE_INLINE void keep_block(Simt simt, word at, const attention_block& here) {
    if (simt.thread() == 0) simt.store(shared_span<attention_block>{at, 1}, 0, here);
}
HALFTONE_KERNEL template <class Simt>
HALFTONE_HD HALFTONE_INLINE attention_block kept_block(Simt simt, word at) {
    return simt.load(shared_span<attention_block>{at, 1}, 0);
}

/// The right operands in a 16 x 16 block, of 8 columns each: where k runs along the tile's rows, so that these become
/// columns, and where k runs down the tile and the block was transposed on its way.
HALFTONE_HD HALFTONE_INLINE vec<word, 2> rows_as_columns(const vec<word, 4>& block, int which) {
    return {block[which], block[which + 2]};
}
HALFTONE_HD HALFTONE_INLINE vec<word, 2> columns(const vec<word, 4>& block, int which) {
    return {block[2 * which], block[2 * which + 1]};
}

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
