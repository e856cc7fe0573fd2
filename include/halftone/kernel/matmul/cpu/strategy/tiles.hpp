// SPDX-License-Identifier: MIT
/// \file
/// The two strategies of matrix tiles. Tiles multiply so fast that sums must not travel: 32 x 32 of them stay in tiles while
/// all of k passes by, or what fits L2 of it, and go through the epilogue from L1.
///
///     tiles_a_stationary                                tiles_shared_b
///
///            b: 1 to 8 panels, packed by their task            slice of b, packed by all threads: L3 (16 MiB)
///            +----+.......                                     +--------+--------+
///            |    |  k of a pass                               | panels |  ...   |  all k
///            +----+.......                                     +--------+--------+
///       a       |                                         a        |
///     +-----+ +-v--+                                    +-----+ +--v-----+
///     | L2  |>|    |  32 x 32 sums at a time            | L2  |>|        |  block_rows (384)
///     +-----+ +----+                                    +-----+ +--------+
///      a pass  block_columns                             a pass  block_columns (1,024)
///
/// - Packed: a in whole tiles by all threads at once, or by the task that needs a block of it, or not at all where it is in
///   place on whole cache lines; b as above. A pass is up to 2,048 of k; sums of all passes but the last wait in memory.
/// - L1: 512 of k of the panel (32 KiB), which stay there for all rows of the block. L2: a block of a (768 KiB).
/// - tiles_a_stationary wins up to 256 rows and while a block of that k fits L2: no thread waits for b. Larger a: b shared.
///
/// Only what an epilogue reads from memory is prefetched, while its tile is multiplied. The processor follows panels by
/// itself, into L2, and what a program prefetches waits in the few line buffers that tiles are loaded through.
#pragma once

#include <algorithm>
#include <cstddef>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/matmul/cpu/plan.hpp>
#include <halftone/kernel/matmul/cpu/untyped.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What both products by tiles share: the task, its pieces of k, and the tiles' functions.
class tile_product {
  protected:
    explicit tile_product(const product_task& task)
        : unit_(task.unit),
          tiles_(*task.unit.tiles),
          device_(task.device),
          a_(task.a),
          b_(task.b),
          epilogue_(task.epilogue),
          squares_(task.squares),
          plan_(task.plan),
          m_(a_.rows),
          n_(b_.columns),
          k_(a_.columns),
          pieces_(std::max<extent>(1, ceil_div(k_, panel_depth))),
          pass_pieces_(plan_.k_chunk / panel_depth),
          group_panels_(plan_.block_columns / unit_.columns),
          in_place_(plan_.a == source_of_a::in_place),
          non_temporal_(squares_ == nullptr && epilogue_.stores_non_temporal(epilogue_.epilogue, m_, n_)),
          reads_memory_(epilogue_.reads_memory(epilogue_.epilogue, m_, n_)),
          tile_bytes_(times(unit_.rows * panel_stride, static_cast<std::size_t>(unit_.element))) {}

    static std::size_t times(extent count, std::size_t bytes) { return static_cast<std::size_t>(count) * bytes; }
    extent length_of(extent piece) const { return std::min(panel_depth, k_ - piece * panel_depth); }

    /// Rows (rows, k) of a block for several pieces of k, each to its place in the block: pieces are block_bytes apart.
    void pack_rows(extent i, extent rows, extent piece, extent count, std::byte* to) const {
        for (extent p = piece; p < piece + count; ++p, to += plan_.block_bytes)
            a_.pack(a_.at(i, p * panel_depth), a_.row_stride, a_.column_stride, rows, length_of(p), to, panel_stride);
    }
    /// Some panels (k, columns) of one piece, one behind the other.
    void pack_panels(extent column, extent count, extent piece, std::byte* to) const {
        b_.pack_piece(piece * panel_depth, column, length_of(piece), std::min(count * unit_.columns, n_ - column),
                      unit_, to, plan_.panel_bytes);
    }

    /// The pieces of k of one pass.
    struct pass {
        extent first, count;
    };
    /// body(pass) for all of k, one after the other.
    template <class Body>
    void for_passes(const Body& body) const {
        for (extent first = 0; first < pieces_; first += pass_pieces_)
            body(pass{first, std::min(pass_pieces_, pieces_ - first)});
    }
    /// body() as a worker of the unit.
    template <class Body>
    void as_worker(const Body& body) const {
        unit_.begin_worker();
        body();
        if (non_temporal_) end_non_temporal();
        unit_.end_worker();
    }

    /// One panel and the rows that meet it in a pass.
    struct panel_of_block {
        extent top, bottom;       ///< rows of a
        const std::byte* rows;    ///< packed, one piece of them; pieces are block_bytes apart
        extent column;            ///< the panel's first one
        const std::byte* panel;   ///< one piece of it
        std::size_t piece_bytes;  ///< from one piece of the panel to the next
        float* sums;              ///< (rows, sums_stride) from the top on, for passes to come
    };
    /// All tiles of rows by that panel.
    void multiply(const panel_of_block& block, const pass& now) const {
        const std::byte* rows = block.rows;
        float* sums = block.sums;
        for (extent i = block.top; i < block.bottom; i += unit_.rows) {
            multiply_tile(i, rows, block, now, sums);
            rows += tile_bytes_;
            sums += unit_.rows * plan_.sums_stride;
        }
    }

    const product_unit& unit_;
    const product_unit::tile_functions& tiles_;
    cpu& device_;
    const untyped_a& a_;
    const untyped_b& b_;
    const untyped_epilogue& epilogue_;
    const kernel::written_squares* squares_;
    const product_plan& plan_;
    extent m_, n_, k_;
    extent pieces_;        ///< of panel_depth of k
    extent pass_pieces_;   ///< of a pass
    extent group_panels_;  ///< panels of a block of c
    bool in_place_, non_temporal_, reads_memory_;
    std::size_t tile_bytes_;  ///< from one tile's packed rows to the next one's

  private:
    /// A tile's rows of a by one panel. Sums of all passes but the last wait at `sums`.
    void multiply_tile(extent i, const std::byte* rows, const panel_of_block& block, const pass& now,
                       float* sums) const {
        const extent k = now.first * panel_depth, length = std::min(now.count * panel_depth, k_ - k);
        const extent high = std::min<extent>(unit_.rows, m_ - i);
        const deep_operands operands =
            in_place_
                ? deep_operands{high,        a_.at(i, k),      a_.row_stride, times(panel_depth, sizeof(bfloat16)),
                                block.panel, block.piece_bytes}
                : deep_operands{high, rows, panel_stride, plan_.block_bytes, block.panel, block.piece_bytes};
        const float* const before = now.first > 0 ? sums : nullptr;
        if (now.first + now.count < pieces_)
            return tiles_.multiply(length, operands, before, plan_.sums_stride, sums, plan_.sums_stride, nullptr);
        const result_block results{i, block.column, high, std::min<extent>(unit_.columns, n_ - block.column)};
        lookahead ahead;
        if (reads_memory_) {
            const extent prefetches = std::max<extent>(1, ceil_div(length, unit_.k_step));
            epilogue_.prefetch_operands(epilogue_.epilogue, results, prefetches, ahead);
        }
        alignas(64) float last[32 * 32];  // (rows, columns) of a tile
        tiles_.multiply(length, operands, before, plan_.sums_stride, last, unit_.columns,
                        reads_memory_ ? &ahead : nullptr);
        finish(results, last);
    }
    void finish(const result_block& results, const float* sums) const {
        const auto store = [&](auto* function, const auto& to) {
            function(results.rows, sums, unit_.columns, to.at(results.row, results.column), to.stride, non_temporal_);
        };
        const bool is_whole = results.columns == unit_.columns;
        if (is_whole && tiles_.store != no_function && epilogue_.plain) {
            store(tiles_.store, epilogue_.plain);
        } else if (is_whole && tiles_.store_rounded != no_function && epilogue_.plain_rounded) {
            store(tiles_.store_rounded, epilogue_.plain_rounded);
        } else {
            epilogue_.finish(epilogue_.epilogue, sums, unit_.columns, results.row, results.column, results.rows,
                             results.columns, non_temporal_);
        }
        if (squares_ != nullptr) squares_->take(results.row, results.column, results.rows, results.columns);
    }
};

/// b is packed by all threads, slice by slice; a task is a block of c.
class tiles_shared_b_product : tile_product {
  public:
    explicit tiles_shared_b_product(const product_task& task) : tile_product(task) {}

    void run() const {
        const workspace::lease packed(device_.scratch(),
                                      times(plan_.slice_columns / unit_.columns * pieces_, plan_.panel_bytes));
        for (extent left = 0; left < n_; left += plan_.slice_columns) {
            const extent panels = ceil_div(std::min(plan_.slice_columns, n_ - left), unit_.columns);
            pack_b(left, panels, packed.data());
            multiply_slice(left, panels, packed.data());
        }
    }

  private:
    /// packed: (pieces, panels).
    void pack_b(extent left, extent panels, std::byte* packed) const {
        constexpr extent together = tuning::packed_together;
        device_.parallel_for(pieces_ * ceil_div(panels, together), [&](extent index) {
            const extent piece = index % pieces_, first = index / pieces_ * together;
            pack_panels(left + first * unit_.columns, std::min(together, panels - first), piece,
                        packed + times(piece * panels + first, plan_.panel_bytes));
        });
    }
    void multiply_slice(extent left, extent panels, const std::byte* packed) const {
        const extent groups = ceil_div(panels, group_panels_);
        const std::size_t a_bytes = times(pass_pieces_, plan_.block_bytes),
                          piece_bytes = times(panels, plan_.panel_bytes);
        device_.parallel_for(
            plan_.blocks(m_) * groups, a_bytes + plan_.sums_bytes, [&](extent index, std::byte* scratch) {
                const extent top = index / groups * plan_.block_rows, bottom = std::min(top + plan_.block_rows, m_),
                             first = index % groups * group_panels_, end = std::min(first + group_panels_, panels);
                auto* const sums = reinterpret_cast<float*>(scratch + a_bytes);
                as_worker([&] {
                    for_passes([&](const pass& now) {
                        if (!in_place_) pack_rows(top, bottom - top, now.first, now.count, scratch);
                        for (extent j = first; j < end; ++j) {
                            multiply({.top = top,
                                      .bottom = bottom,
                                      .rows = scratch,
                                      .column = left + j * unit_.columns,
                                      .panel = packed + times(now.first * panels + j, plan_.panel_bytes),
                                      .piece_bytes = piece_bytes,
                                      .sums = sums + (j - first) * unit_.columns},
                                     now);
                        }
                    });
                });
            });
    }
};

/// a is one block, packed once; a task packs a group of panels, multiplies all of a by them, and forgets them.
class tiles_a_stationary_product : tile_product {
  public:
    explicit tiles_a_stationary_product(const product_task& task) : tile_product(task) {}

    void run() const {
        const workspace::lease all_of_a(device_.scratch(), times(pieces_, plan_.block_bytes));
        if (!in_place_) pack_a(all_of_a.data());
        const extent panels = ceil_div(n_, unit_.columns);
        const std::size_t piece_bytes = times(group_panels_, plan_.panel_bytes),
                          panels_bytes = times(pass_pieces_, piece_bytes);
        device_.parallel_for(
            ceil_div(panels, group_panels_), panels_bytes + plan_.sums_bytes, [&](extent group, std::byte* scratch) {
                const extent first = group * group_panels_, count = std::min(group_panels_, panels - first);
                auto* const sums = reinterpret_cast<float*>(scratch + panels_bytes);
                as_worker([&] {
                    for_passes([&](const pass& now) {
                        for (extent p = 0; p < now.count; ++p)
                            pack_panels(first * unit_.columns, count, now.first + p, scratch + times(p, piece_bytes));
                        for (extent j = 0; j < count; ++j) {
                            multiply({.top = 0,
                                      .bottom = m_,
                                      .rows = all_of_a.data() + times(now.first, plan_.block_bytes),
                                      .column = (first + j) * unit_.columns,
                                      .panel = scratch + times(j, plan_.panel_bytes),
                                      .piece_bytes = piece_bytes,
                                      .sums = sums + j * unit_.columns},
                                     now);
                        }
                    });
                });
            });
    }

  private:
    /// block: (pieces, rows).
    void pack_a(std::byte* block) const {
        const extent together = tuning::packed_together * unit_.rows;
        device_.parallel_for(pieces_ * ceil_div(m_, together), [&](extent index) {
            const extent piece = index % pieces_, i = index / pieces_ * together;
            pack_rows(i, std::min(together, m_ - i), piece, 1,
                      block + times(piece, plan_.block_bytes) + times(i / unit_.rows, tile_bytes_));
        });
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
