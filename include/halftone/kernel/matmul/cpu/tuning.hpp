// SPDX-License-Identifier: MIT
/// \file
/// Every constant that decides how a matrix product on the CPU is cut, with the machine and the figure behind it.
///
/// The machines, two threads each (bench/README.md, bench/TRIED.md; figures are rates, new over old, in turn):
///
///     Zen 3   AVX2, 32 KiB L1, 512 KiB L2 a core, 32 MiB L3
///     Zen 4   AVX512-BF16, 32 KiB L1, 1 MiB L2 a core, 32 MiB L3
///     Zen 5   AVX512-BF16, 48 KiB L1, 1 MiB L2 a core, 32 MiB L3
///     Xeon    AMX (Emerald Rapids), 48 KiB L1, 2 MiB L2 a core, L3 shared by the socket
///
/// "A guess" says that no figure is behind a constant: it was chosen together with the code around it and was not
/// varied alone since.
///
/// Budgets of bytes are the smaller one of a constant and a share of the cache that the machine reports
/// (exec/cpu/cache_sizes.hpp). With 512 KiB of L2 (2 MiB for tiles) and 16 MiB of L3 or more, as on all four machines, the
/// constants alone decide; smaller caches make smaller blocks.
#pragma once

#include <algorithm>
#include <cstddef>

#include <halftone/exec/cpu/cache_sizes.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

// Geometry of packed operands, which attention's products share.

/// k of one packed block or panel, unless a unit takes deeper ones. 256: a panel of 32 floats by 256 k is 32 KiB, one of
/// bfloat16 16 KiB, half of an L1: a guess. VDPBF16PS takes 512 (unit/choose.hpp): Zen 4 1.05 with what came along.
inline constexpr extent panel_depth = 256;
/// Elements from row to row of a packed block of a: 32 more than its k, so that rows fall into different cache sets.
inline constexpr extent panel_stride = panel_depth + 32;
/// k of split operands that is summed before it is added to the result: the pieces of 32 rows and 32 columns by 128 k are
/// 48 KiB with three pieces, an L1 of the Xeon. Part of the numeric contract (unit/split.hpp): changing it changes bits.
inline constexpr extent split_depth = 128;
/// Rows that k-major packing groups: the 12 rows of the tiles of 512-bit vectors.
inline constexpr int k_major_rows = 12;
/// k between two prefetches of a running tile: each asks for a line or two. A guess.
inline constexpr extent lookahead_depth = 16;
/// k of a panel that stays in L1 for the next rows on AMX; deeper k is streamed past it. Xeon, in a trial of other loops at
/// 2,048 square: 512 of k 2,710 GFLOP/s, 256 2,368, 704 2,517, 1,024 2,405.
inline constexpr extent l1_resident_depth = 2 * panel_depth;
/// Up to so many rows any unit that reads b unpacked takes it in any layout. Zen 4: 4 x 768 x 768 1.3 (fp32), 1.8 (bf16).
inline constexpr int small_m = 4;
/// Up to so many rows multiply-adds of 16 floats take unpacked b whose columns are contiguous. Xeon with AVX-512 and no AMX,
/// under other load, in turn: 8 x 50304 x 768 1.75 (bf16), 2.0 (fp32); 8 x 3072 x 768 2.3, 2.1.
inline constexpr int small_m_by_columns_wide = 8;

namespace tuning {

constexpr std::size_t kib(std::size_t n) { return n << 10; }
constexpr std::size_t mib(std::size_t n) { return n << 20; }

// ---- Budgets of bytes ------------------------------------------------------------------------------------------------

/// Bytes of L2 for an operand, or the sums of a block, that stays there while the others stream. 384 KiB is 3/4 of the
/// Zen 3's L2; larger ones were not tried alone on the others. Zen 3: sums of up to 2,048 rows 0.88 to 0.93.
inline std::size_t l2_resident_bytes(const cache_sizes& c) { return std::min(kib(384), c.l2 / 4 * 3); }
/// Bytes of L2 for all of b, packed by every thread for itself. Zen 4: 256 x 16 x 3072 in bf16 1.18, 200 x 40 x 1000 in
/// fp32 1.18.
inline std::size_t private_b_bytes(const cache_sizes& c) { return std::min(kib(256), c.l2 / 2); }
/// Bytes of L2 for packed rows of a that are gone through once for each panel; above that the panels are gone through
/// for each block of rows. Zen 3's L2: a guess.
inline std::size_t rows_inside_bytes(const cache_sizes& c) { return std::min(kib(512), c.l2); }
/// Bytes of L3 for the packed slice of b that threads share, or for all of a. Half of a 32 MiB L3: a guess.
inline std::size_t slice_bytes(const cache_sizes& c) { return std::min(mib(16), c.l3); }
/// Bytes of L3 for results that wait there, as sums, for the next chunk of k. Zen 4: chunks where results are below it 1.01
/// to 1.04.
inline std::size_t waiting_sums_bytes(const cache_sizes& c) { return std::min(mib(12), c.l3 / 4 * 3); }
/// Bytes of L2 for tiles' block of a by all k of a pass. Xeon: L2 holds about 1.1 MiB usefully; 256 rows by 2,048 k are 1
/// MiB and 192 rows by 2,048 k, which 768 KiB hold, reached 0.95 of the rate of 256 in a trial.
inline std::size_t tile_block_bytes(const cache_sizes& c) { return std::min(kib(768), c.l2 / 8 * 3); }

// ---- Vector units ----------------------------------------------------------------------------------------------------

/// Rows of a block of c. Zen 3: 144 and 192 rows 1.00.
inline constexpr extent block_rows = 96;
/// Columns of a block of c where b is shared, and of one where k has no more than shallow_depth_stored. Zen 3: 512 1.01,
/// 256 1.00 of their rate with 1,024.
inline constexpr extent block_columns = 1024;
/// Rows and columns below which a block of c is not halved any further to give threads more tasks. A guess.
inline constexpr extent fewest_block_rows = 48, fewest_block_columns = 128;
/// Tasks a thread where b is shared or a is in L2: few tasks leave a thread idle at the end. A guess.
inline constexpr extent tasks_per_thread = 8;
/// Widths of a panel from which a unit counts as one of 512-bit vectors: such processors have an L2 of 1 MiB and more, and
/// narrow ones gain from sharing b from 129 rows on (Zen 3: 1.07 to 1.1).
inline constexpr int wide_columns = 32;
inline constexpr extent most_rows_of_narrow_units = 128;

/// The largest k that is packed in one piece at all. A guess.
inline constexpr extent most_depth = extent{1} << 14;
/// Chunks of k where b is shared. Narrow units: 768 (Zen 3: 1.015 times 512; 256 and 1,024 reach 0.99; long k gains 1.05 to
/// 1.1 from any chunks). Others: 4 KiB of a column, 1,024 floats or 2,048 bfloat16, where results are few enough to wait,
/// else most_depth.
inline constexpr extent narrow_chunk = 768, wide_chunk_bytes = 4096;
/// Multiplications of so little k are over before what they prefetch arrives: with that many rows and columns b is shared.
inline constexpr extent shallow_depth = 128, shallow_rows = 128, shallow_columns = 256;
/// Up to so much k hardly more is done than results stored: wide units take blocks of one tile's rows, along the rows of
/// the result. 1.2 to 2.3 times as fast for such k, on two cores with 512-bit vectors whose model was not noted.
inline constexpr extent shallow_depth_stored = 32, shallow_rows_stored = 12;

/// Rows of a that meet an unpacked row-major b: rows of b are read again from L2 by each tile of rows. Zen 4: 32 rows 1.3
/// (fp32), 48 rows 1.2 (bf16).
inline constexpr extent small_m_wide = 48, small_m_narrow = 32;
/// m n k from which a product is given to more than one thread, and from which a narrow b is worth a strategy of its own.
/// A guess.
inline constexpr extent little_work = extent{1} << 15, narrow_b_work = extent{1} << 17;
/// Rows of a by a b of one panel at most, read unpacked: any unit up to the first; half a panel of floats on wide units,
/// where a whole panel would leave half of the sums idle, up to the second, from so much k on. Zen 4: 256 x 16 x 3072 1.15,
/// 48 x 16 x 3072 2.3.
inline constexpr extent narrow_b_rows = 64, narrow_b_rows_half_panel = 1024, narrow_b_depth = 512;
/// Columns of a task on unpacked b, at least and at most; tasks a thread by columns and by rows. A guess.
inline constexpr extent unpacked_least_columns = 64, unpacked_most_columns = 1024, unpacked_tasks = 4,
                        unpacked_row_tasks = 2;

/// Rows of a block where all of a is in L2 and k is one piece: its results wait in L1 to be stored. A guess.
inline constexpr extent one_piece_rows = 48;
/// Rows whose sums stay in L2: at any k up to the first; up to the others, by the bytes of an element, where k has at most
/// so many pieces or all of a fits slice_bytes. Zen 4: 1.05 (bf16), 1.02 (fp32), geometric mean of 14 shapes; Zen 5:
/// gradients of weights over 8,192 rows 1.04 to 1.09.
inline constexpr extent sums_rows = 256, sums_rows_bf16 = 1024, sums_rows_fp32 = 768, sums_pieces = 8;
/// Columns a thread from which threads pack their own panels, and columns of such a group, at least and at most. A
/// guess.
inline constexpr extent own_panels_columns = 128, least_group_columns = 64, most_group_columns = 128;

/// Limits of the strategy in which each thread packs all of b: k above the first, rows a thread, rows and columns at
/// most. Zen 4: more than 1,024 rows 0.5 to 0.8, many columns of little depth 0.7, less than 96 rows a thread 0.9.
inline constexpr extent private_b_above_depth = 32, private_b_rows = 96, private_b_most_rows = 1024,
                        private_b_most_columns = 128;
/// Turns in which a thread's rows are handed out where each thread packs all of b, at least and at most: the best of
/// these is taken. A guess.
inline constexpr extent private_b_least_turns = 2, private_b_most_turns = 6;
/// Rows of an even share of a small result. Zen 4: 128 x 64 x 3072 1.15 to 1.26, 256 x 16 x 3072 1.08.
inline constexpr extent even_share_rows = 192;

// ---- Tiles (AMX) -----------------------------------------------------------------------------------------------------

/// Pieces of panel_depth that sums stay in tiles for: 2,048 of k. Xeon: 1.2 to 1.6 with what came along.
inline constexpr extent tile_pass_pieces = 8;
/// Rows up to which threads pack their own panels, and rows and columns of a shared block. Guesses.
inline constexpr extent tile_own_panels_rows = 256, tile_block_rows = 384, tile_block_columns = 1024;
/// Panels that a thread packs side by side, which memory delivers faster than one by one. A guess.
inline constexpr extent tile_panels_together = 8;
/// Rows and columns below which a block of tiles is not halved; tasks a thread. Guesses.
inline constexpr extent tile_fewest_rows = 128, tile_fewest_columns = 128, tile_tasks_per_thread = 4;

// ---- All units -------------------------------------------------------------------------------------------------------

/// Panels that one task packs where b is shared, and tiles of rows where a is packed once for tiles. A guess.
inline constexpr extent packed_together = 4;

}  // namespace tuning
}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
