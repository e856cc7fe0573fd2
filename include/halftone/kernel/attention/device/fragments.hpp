// SPDX-License-Identifier: MIT
/// \file
/// How a warp multiplies tiles of heads by matrix instructions: blocks of 16 rows x 32 bytes are read from swizzled
/// shared memory, sums are in registers, results are stored in 16-byte chunks.
///
/// Numeric contract: floats are rounded to tfloat32 as they are loaded into registers; products are exact, sums in
/// float.
#pragma once

#include <halftone/kernel/attention/device/tiles.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// The sums of 16 rows x 8 columns: a lane has columns 2 (lane % 4) and the next, in rows lane / 4 and lane / 4 + 8.
using block_sums = vec<float, 4>;

/// Columns of a block of 16 rows x 32 bytes: the depth of one instruction.
template <class T>
inline constexpr int block_columns = 32 / static_cast<int>(sizeof(T));
/// Columns of a tile that a product over its rows processes at a time.
template <class T>
inline constexpr int columns_at_once = 8 * static_cast<int>(sizeof(T));

/// A float, rounded as matrix instructions read it.
HALFTONE_KERNEL template <class Simt>
HALFTONE_HD HALFTONE_INLINE word round_tf32(Simt simt, float x) {
    return simt.round_tf32(bit_cast<word>(x));
}

/// sums += left x right, where right has 8 columns.
HALFTONE_KERNEL template <class T, class Simt>
HALFTONE_HD HALFTONE_INLINE void multiply_block(Simt simt, block_sums& sums, const vec<word, 4>& left,
                                                const vec<word, 2>& right) {
    if constexpr (std::is_same_v<T, float>) {
        simt.mma_1688(simt::element<tfloat32>{}, sums, left, right);
    } else {
        simt.mma_16816(simt::element<T>{}, sums, left, right);
    }
}

/// The right operands in a block, of 8 columns each: rows_as_columns if k runs along the tile's rows, whose rows are
/// the columns of the operand; the other if k runs down the tile and the block, of 16-bit numbers, was transposed by
/// the load.
HALFTONE_HD HALFTONE_INLINE vec<word, 2> rows_as_columns(const vec<word, 4>& block, int which) {
    return {block[which], block[which + 2]};
}
HALFTONE_HD HALFTONE_INLINE vec<word, 2> columns_of(const vec<word, 4>& block, int which) {
    return {block[2 * which], block[2 * which + 1]};
}

/// A 16 x 16 left operand: one fragment of 16-bit numbers, or two of floats, the first for the even columns of each 8.
template <class T>
using left_operand = vec<vec<word, 4>, sizeof(T) / 2>;

/// Two neighbouring blocks of sums, rounded, as the left operand of the next product. A lane has pairs of columns. For
/// floats, the first of each pair is passed as the instruction's columns 0 to 3, the second as 4 to 7; add_rows passes
/// the right operand's rows in the same order.
HALFTONE_KERNEL template <class T, class Simt>
HALFTONE_HD HALFTONE_INLINE left_operand<T> as_left([[maybe_unused]] Simt simt, const block_sums& x,
                                                    const block_sums& y) {
    if constexpr (std::is_same_v<T, float>) {
        return {vec<word, 4>{round_tf32(simt, x[0]), round_tf32(simt, x[2]), round_tf32(simt, x[1]),
                             round_tf32(simt, x[3])},
                vec<word, 4>{round_tf32(simt, y[0]), round_tf32(simt, y[2]), round_tf32(simt, y[1]),
                             round_tf32(simt, y[3])}};
    } else {
        return {
            vec<word, 4>{packed<T>(x[0], x[1]), packed<T>(x[2], x[3]), packed<T>(y[0], y[1]), packed<T>(y[2], y[3])}};
    }
}

/// Which of 16 rows of a tile the rows of a product may see: row r those from first + r first_step up to, but
/// excluding, end + r end_step.
struct row_window {
    int first, first_step, end, end_step;

    HALFTONE_HD HALFTONE_INLINE bool has(int r, int k) const {
        return k >= first + r * first_step && k < end + r * end_step;
    }
};

/// Whether an operand holds an infinity or a NaN: its exponent is all ones.
template <class T>
HALFTONE_HD HALFTONE_INLINE bool is_not_finite(word operand) {
    if constexpr (std::is_same_v<T, float>) {
        return (operand & 0x7f800000u) == 0x7f800000u;
    } else {
        constexpr word low = std::is_same_v<T, bfloat16> ? 0x7f80u : 0x7c00u, high = low << 16;
        return (operand & low) == low || (operand & high) == high;
    }
}

/// A lane's offsets in a tile of heads; the same for all tiles of one width.
struct lane_place {
    word block;    ///< in any block of 16 rows x 32 bytes, for ldmatrix
    word element;  ///< for floats, in 8 rows x 32 columns: four consecutive ones of row 2 (lane % 4)
};

/// A tile of heads in shared memory: Rows rows of Head elements, padded to whole panels.
template <class T, int Rows, int Head>
struct head_tile : simt::shared_tile<T, Rows, padded_head(Head)> {
    using base_tile = simt::shared_tile<T, Rows, padded_head(Head)>;
    using chunk_span = shared_span<simt::chunk<T>>;
    static constexpr word rows = Rows;
    static constexpr int columns = padded_head(Head), head_size = Head, in_chunk = 16 / static_cast<int>(sizeof(T));
    static constexpr bool of_floats = std::is_same_v<T, float>;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static lane_place place_of(Simt simt) {
        const head_tile tile{{0}};
        const auto lane = static_cast<word>(simt.lane());
        return {tile.at(lane % 16, lane / 16 * in_chunk).offset, tile.at(lane % 4 * 2, lane / 4 * in_chunk).offset};
    }
    /// The block at (row, column), multiples of a block's size, as a left or right operand whose depth runs along the
    /// rows.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<word, 4> read(Simt simt, const lane_place& place, int row, int column) const {
        vec<word, 4> x = simt.ldmatrix_x4(block(place, row, column));
        if constexpr (of_floats) {
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) x[e] = simt.round_tf32(x[e]);
        }
        return x;
    }
    /// sums += left x 16 of the tile's rows from `row` on, for columns_at_once columns from `column` on.
    HALFTONE_KERNEL template <int RowBlocks, class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_rows(Simt simt, const lane_place& place, int row, int column,
                                              const left_operand<T> (&left)[RowBlocks],
                                              block_sums (&sums)[RowBlocks][Head / 8]) const {
        if constexpr (of_floats) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                const fours even = simt.load(neighbours(place, row + 8 * half, column, 0), 0),
                            odd = simt.load(neighbours(place, row + 8 * half, column, 1), 0);
                HALFTONE_UNROLL for (int n = 0; n < 4; ++n) {
                    const vec<word, 2> right{round_tf32(simt, even[n]), round_tf32(simt, odd[n])};
                    HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                        multiply_block<T>(simt, sums[m][column / 8 + n], left[m][half], right);
                    }
                }
            }
        } else {
            const vec<word, 4> right = simt.ldmatrix_x4_trans(block(place, row, column));
            HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                multiply_block<T>(simt, sums[m][column / 8], left[m][0], columns_of(right, 0));
                multiply_block<T>(simt, sums[m][column / 8 + 1], left[m][0], columns_of(right, 1));
            }
        }
    }
    /// Whether the lane's elements of 16 rows from `row` on and columns_at_once columns from `column` on hold an
    /// infinity or a NaN.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE bool has_not_finite(Simt simt, const lane_place& place, int row, int column) const {
        bool found = false;
        if constexpr (of_floats) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                HALFTONE_UNROLL for (int odd = 0; odd < 2; ++odd) {
                    const fours x = simt.load(neighbours(place, row + 8 * half, column, static_cast<word>(odd)), 0);
                    HALFTONE_UNROLL for (int n = 0; n < 4; ++n) found |= is_not_finite<T>(round_tf32(simt, x[n]));
                }
            }
        } else {
            const vec<word, 4> x = simt.ldmatrix_x4_trans(block(place, row, column));
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) found |= is_not_finite<T>(x[e]);
        }
        return found;
    }
    /// add_rows where masked rows are not finite: computes each row of sums by a product of its own, with zeros for
    /// what is masked for it.
    HALFTONE_KERNEL template <int RowBlocks, class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_seen_rows(Simt simt, const lane_place& place, int row, int column,
                                                   const left_operand<T> (&left)[RowBlocks],
                                                   block_sums (&sums)[RowBlocks][Head / 8],
                                                   const row_window& window) const {
        constexpr int parts = sizeof(T) / 2, across = columns_at_once<T> / 8;
        vec<word, 2> right[parts][across];
        if constexpr (of_floats) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                const fours even = simt.load(neighbours(place, row + 8 * half, column, 0), 0),
                            odd = simt.load(neighbours(place, row + 8 * half, column, 1), 0);
                HALFTONE_UNROLL for (int n = 0; n < across; ++n)
                    right[half][n] = {round_tf32(simt, even[n]), round_tf32(simt, odd[n])};
            }
        } else {
            const vec<word, 4> block_of_rows = simt.ldmatrix_x4_trans(block(place, row, column));
            HALFTONE_UNROLL for (int n = 0; n < across; ++n) right[0][n] = columns_of(block_of_rows, n);
        }
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // rarely runs: small code is preferred
#endif
            for (int r = 0; r < 16; ++r) {
                HALFTONE_UNROLL for (int n = 0; n < across; ++n) {
                    block_sums next = sums[m][column / 8 + n];
                    HALFTONE_UNROLL for (int part = 0; part < parts; ++part) {
                        multiply_block<T>(simt, next, left[m][part],
                                          seen_part(simt, right[part][n], part, window, 16 * m + r));
                    }
                    HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                        if (simt.lane() / 4 + 8 * half != r) continue;
                        HALFTONE_UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) sums[m][column / 8 + n][e] =
                            next[e];
                    }
                }
            }
        }
    }
    /// The tile from a row on; `row` is a multiple of 16.
    HALFTONE_HD HALFTONE_INLINE head_tile from_row(int row) const {
        return {{this->base + static_cast<word>(row) * base_tile::row_bytes}};
    }

    /// Rounds and stores the sums of a warp's 16 x RowBlocks rows, as add_rows leaves them; `width` is a multiple of 8.
    /// 16-bit numbers pass through the tile's rows from `row` on, which no other warp may be using.
    HALFTONE_KERNEL template <int RowBlocks, class Simt>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, int row, const block_sums (&sums)[RowBlocks][Head / 8],
                                           const global_span<T>& head, extent time_stride, int first, int end,
                                           int width) const {
        if constexpr (of_floats) {
            write_from_registers(simt, sums, head, time_stride, first, end, width);
        } else {
            write_through_tile(simt, row, sums, head, time_stride, first, end, width);
        }
    }

  private:
    using fours = vec<float, 4>;

    /// A right operand with zeros for what row r of the left one does not see. A lane has rows 2 (lane % 4) and the
    /// next: packed together for 16-bit numbers, with those 8 rows further on in a second word; in separate words for
    /// floats.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static vec<word, 2> seen_part(Simt simt, vec<word, 2> right, int part,
                                                              const row_window& window, int r) {
        const int k = simt.lane() % 4 * 2;
        HALFTONE_UNROLL for (int e = 0; e < 2; ++e) {
            if constexpr (of_floats) {
                if (!window.has(r, 8 * part + k + e)) right[e] = 0;
            } else {
                if (!window.has(r, 8 * e + k)) right[e] &= 0xffff0000u;
                if (!window.has(r, 8 * e + k + 1)) right[e] &= 0x0000ffffu;
            }
        }
        return right;
    }
    /// The lane's chunk of a block. `row` is a multiple of the swizzle's period, and `column` changes only bits that
    /// the swizzle does not affect.
    HALFTONE_HD HALFTONE_INLINE chunk_span block(const lane_place& place, int row, int column) const {
        const word byte = static_cast<word>(column) * static_cast<word>(sizeof(T)),
                   down = byte / base_tile::row_bytes * Rows + static_cast<word>(row);
        return {this->base + (place.block ^ byte % base_tile::row_bytes) + down * base_tile::row_bytes, 1};
    }
    /// The lane's four consecutive floats in an even row of eight, or the odd one below, in whole panels: eight lanes
    /// read two chunks of each of four rows, without bank conflicts.
    HALFTONE_HD HALFTONE_INLINE shared_span<fours> neighbours(const lane_place& place, int row, int column,
                                                              word odd) const {
        const word down = static_cast<word>(column) / 32 * Rows + static_cast<word>(row);
        return {this->base + (place.element ^ odd * (128 + 16)) + down * 128, 1};
    }
    HALFTONE_KERNEL template <int RowBlocks, class Simt>
    HALFTONE_HD HALFTONE_INLINE void write_through_tile(Simt simt, int row,
                                                        const block_sums (&sums)[RowBlocks][Head / 8],
                                                        const global_span<T>& head, extent time_stride, int first,
                                                        int end, int width) const {
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
            simt.store(simt::as_vectors<in_chunk>(head.from((first + r) * time_stride + column)), 0, values);
        }
    }
    /// For floats a lane has eight consecutive ones of each 32 columns.
    HALFTONE_KERNEL template <int RowBlocks, class Simt>
    HALFTONE_HD HALFTONE_INLINE static void write_from_registers(Simt simt,
                                                                 const block_sums (&sums)[RowBlocks][Head / 8],
                                                                 const global_span<T>& head, extent time_stride,
                                                                 int first, int end, int width) {
        static_assert(!of_floats || base_tile::row_bytes == 128);
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                const int r = 16 * m + 8 * half + simt.lane() / 4;
                if (first + r >= end) continue;
                const auto to = head.from((first + r) * time_stride);
                HALFTONE_UNROLL for (int n = 0; n < Head / 8; n += 4) {
                    const int column = 8 * n + simt.lane() % 4 * 8;
                    if (column >= width) continue;
                    HALFTONE_UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) {
                        simt.store(simt::as_vectors<4>(to.from(column + 4 * (e % 2))), 0,
                                   fours{sums[m][n][e], sums[m][n + 1][e], sums[m][n + 2][e], sums[m][n + 3][e]});
                    }
                }
            }
        }
    }
};

/// Whether 16 rows of a tile from `row` on hold an infinity or a NaN: the same result in all lanes of the warp.
HALFTONE_KERNEL template <class T, class Tile, class Simt>
HALFTONE_HD HALFTONE_INLINE bool any_not_finite(Simt simt, const attention_problem& problem, const Tile& tile,
                                                const lane_place& place, int row) {
    bool found = false;
    HALFTONE_UNROLL for (int d = 0; d < Tile::head_size; d += columns_at_once<T>) {
        if (!problem.template has_columns<T, Tile::head_size>(d)) continue;
        found |= tile.has_not_finite(simt, place, row, d);
    }
    return simt.any(found);
}

/// add_rows for all columns of a tile, or add_seen_rows if the whole warp is `careful`. For 16-bit numbers there is one
/// test for all columns, since tests between matrix instructions would keep them apart; for floats, which need too many
/// registers for that, one test for each group of columns.
HALFTONE_KERNEL template <class T, class Tile, int RowBlocks, class Simt>
HALFTONE_HD HALFTONE_INLINE void add_rows_of_all_columns(Simt simt, const attention_problem& problem, const Tile& tile,
                                                         const lane_place& place, int row,
                                                         const left_operand<T> (&left)[RowBlocks],
                                                         block_sums (&sums)[RowBlocks][Tile::head_size / 8],
                                                         bool careful, const row_window& window) {
    constexpr int all = Tile::head_size, step = columns_at_once<T>, together = Tile::of_floats ? step : all;
    HALFTONE_UNROLL for (int first = 0; first < all; first += together) {
        if (!problem.template has_columns<T, all>(first)) continue;
        if (careful) {
            HALFTONE_UNROLL for (int d = first; d < first + together; d += step)
                if (d == first || problem.template has_columns<T, all>(d))
                    tile.template add_seen_rows<RowBlocks>(simt, place, row, d, left, sums, window);
        } else {
            HALFTONE_UNROLL for (int d = first; d < first + together; d += step)
                if (d == first || problem.template has_columns<T, all>(d))
                    tile.template add_rows<RowBlocks>(simt, place, row, d, left, sums);
        }
    }
}

/// Where a thread finds its chunks of a head's vectors in each tile: one column of chunks, or one in each half of a wide
/// tile, and every `at_once`-th row, so that little address arithmetic is left for each chunk.
template <class T, class Tile, int Threads>
struct tile_source {
    static constexpr int in_chunk = Tile::in_chunk, chunks = Tile::columns / in_chunk,
                         across = chunks < Threads / 8 ? chunks : Threads / 8, at_once = Threads / across;
    static_assert(Threads % across == 0 && Tile::rows % at_once == 0 && chunks % across == 0);
    static_assert(at_once * Tile::row_bytes % 1024 == 0, "the thread's chunks are a multiple of the swizzle's period apart");
    static_assert(across == chunks || across * 16 % Tile::row_bytes == 0, "and whole panels");

    global_span<const T> chunk;
    extent stride;  ///< distance between times
    word place;     ///< offset in a tile
    int left;       ///< number of times from the thread's first to the end

    /// The vectors [first, end).
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static tile_source of(Simt simt, const global_span<const T>& head, extent time_stride,
                                                      int first, int end) {
        const int row = simt.thread() / across, column = simt.thread() % across * in_chunk;
        return {head.from(static_cast<extent>(first + row) * time_stride + column), time_stride,
                Tile{{0}}.at(static_cast<word>(row), static_cast<word>(column)).offset, end - first - row};
    }
    /// Starts copying a tile. Vectors beyond the end become zeros, as do elements beyond `width`, a multiple of 8. The
    /// address of such a chunk may be anything, since nothing of it is read.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void fetch(Simt simt, const Tile& to, int width) const {
        HALFTONE_UNROLL for (int c = 0; c < chunks; c += across) {
            const int column = (simt.thread() % across + c) * in_chunk;
            if (column >= Tile::head_size) return;
            const int there = column < width ? left : 0;
            HALFTONE_UNROLL for (int r = 0; r < static_cast<int>(Tile::rows); r += at_once) {
                const word down = static_cast<word>(c) * 16 / Tile::row_bytes * Tile::rows + static_cast<word>(r);
                simt.async_copy16(typename Tile::chunk_span{to.base + place + down * Tile::row_bytes, 1},
                                  chunk.from(r * stride + c * in_chunk), r < there ? in_chunk : 0);
            }
        }
    }
    HALFTONE_HD HALFTONE_INLINE void next_tile() {
        chunk = chunk.from(static_cast<int>(Tile::rows) * stride);
        left -= static_cast<int>(Tile::rows);
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
