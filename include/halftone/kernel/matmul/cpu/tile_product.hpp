// SPDX-License-Identifier: MIT
/// \file
/// The loops of a matrix product on matrix tiles.
///
/// Tiles multiply so fast that sums must not travel: 32 x 32 of them stay in tiles while all of k passes by, or what
/// fits the second-level cache of it, and go through the epilogue from the first-level cache. A block of a's rows stays
/// in the second-level cache, read where they lie if lines of the cache do so, and panels of b, which all threads have
/// packed, come by. Where a has few rows who takes some panels packs them, and nobody waits for b.
///
/// Only what an epilogue reads from memory is asked for ahead, while its tile is multiplied. The processor follows panels by
/// itself, into the second-level cache, and what a program asks for waits in the few line buffers that tiles are loaded
/// through.
#pragma once

#include <algorithm>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/common/squares/cpu.hpp>
#include <halftone/kernel/matmul/cpu/blocked.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// How a product on tiles is cut. Any cut gives the same bits, so it may follow the number of threads.
struct tile_plan {
    bool shares_b = false;  ///< else who uses a panel packs it
    extent pass;            ///< pieces of k (panel_depth) that sums stay in tiles for
    extent rows;            ///< of a block
    extent columns;         ///< of a block
    extent slice;           ///< columns of b that are packed at a time

    tile_plan(extent m, extent n, extent k, const detail::product_unit& unit, int threads) {
        constexpr extent near_bytes = extent{768} << 10, slice_bytes = extent{16} << 20, most_pass = 8, small_m = 256,
                         most_rows = 384, most_columns = 1024;
        const extent depths = ceil_div(k, detail::panel_depth), wide = round_up_to(n, unit.columns);
        pass = ceil_div(depths, ceil_div(depths, most_pass));
        const extent piece_bytes = detail::panel_depth * unit.element;  // of a row, or of a column
        const extent fitting = downward(near_bytes / (pass * piece_bytes), unit.rows);
        rows = round_up_to(m, unit.rows);
        slice = wide;
        if (rows <= std::max(fitting, small_m)) {
            // Side by side in memory, what a task packs comes faster.
            const extent side_by_side = std::min<extent>(8, near_bytes / 2 / (pass * piece_bytes * unit.columns)),
                         each = threads > 1 ? wide / unit.columns / (2 * threads) : side_by_side;
            columns = std::clamp<extent>(each, 1, std::max<extent>(1, side_by_side)) * unit.columns;
            return;
        }
        shares_b = true;
        rows = std::min(fitting, most_rows);
        columns = std::min({wide, most_columns, downward(slice_bytes / (depths * piece_bytes), unit.columns)});
        // Few tasks leave a thread idle at the end.
        const extent wanted = threads > 1 ? 4 * threads : 1;
        while (ceil_div(m, rows) * ceil_div(n, columns) < wanted && (rows > 128 || columns > 128)) {
            extent& larger = rows > 128 && rows > columns / 2 ? rows : columns;
            larger = larger / 2;
        }
        // Even blocks, so that no thread waits for the other.
        rows = round_up_to(ceil_div(m, ceil_div(m, rows)), unit.rows);
        columns = round_up_to(ceil_div(n, ceil_div(n, columns)), unit.columns);
        slice = std::min(round_up_to(n, columns), downward(slice_bytes / (depths * piece_bytes), columns));
    }

    static extent ceil_div(extent all, extent each) { return std::max<extent>(1, (all + each - 1) / each); }
    static extent round_up_to(extent value, extent step) { return ceil_div(value, step) * step; }
    static extent downward(extent value, extent step) { return std::max<extent>(1, value / step) * step; }
};

/// One product on its way. Nothing here knows types, so that a program holds these loops once.
class tile_product {
  public:
    tile_product(const detail::product_unit& unit, cpu& device, const blocked_operand& a, const blocked_operand& b,
                 const blocked_epilogue& epilogue, const written_squares* squares)
        : unit_(unit),
          device_(device),
          a_(a),
          b_(b),
          epilogue_(epilogue),
          squares_(squares),
          m_(a.rows),
          n_(b.columns),
          k_(a.columns),
          depths_(plan::ceil_div(k_, detail::panel_depth)),
          plan_(m_, n_, k_, unit, device.threads()),
          in_place_(can_be_read_in_place(unit, a)),
          non_temporal_(squares == nullptr && epilogue.stores_non_temporal(epilogue.epilogue, m_, n_)),
          reads_memory_(epilogue.reads_memory(epilogue.epilogue, m_, n_)),
          tile_bytes_(times(unit.rows * detail::panel_stride, static_cast<std::size_t>(unit.element))),
          block_bytes_(in_place_ ? 0 : unit.block_bytes(plan_.rows)),
          panel_bytes_(unit.panel_bytes(std::min(detail::panel_depth, k_))),
          sums_stride_(plan_.columns + 16),  // not a power of two
          sums_bytes_(
              plan_.pass >= depths_ ? 0 : round_up(times(plan_.rows * sums_stride_, sizeof(float)), block_alignment)) {}

    void run() const {
        if (plan_.shares_b) {
            share_b();
        } else {
            run_a_stationary();
        }
    }

  private:
    using plan = tile_plan;

    static std::size_t times(extent count, std::size_t bytes) { return static_cast<std::size_t>(count) * bytes; }

    /// Whether tiles are read from a's rows where they lie: whole tiles, of whole lines of the cache.
    static bool can_be_read_in_place(const detail::product_unit& unit, const blocked_operand& a) {
        constexpr extent line = 64;
        return a.keeps_rows && a.column_stride == 1 && a.columns % unit.k_step == 0 && a.rows % unit.rows == 0 &&
               reinterpret_cast<std::uintptr_t>(a.data) % line == 0 && a.row_stride * a.element % line == 0;
    }

    extent length_of(extent piece) const { return std::min(detail::panel_depth, k_ - piece * detail::panel_depth); }

    /// Some rows of a block, to their place in it; pieces lie block_bytes_ apart.
    void pack_rows(extent i, extent rows, extent piece, extent count, std::byte* to) const {
        for (extent d = piece; d < piece + count; ++d, to += block_bytes_)
            a_.pack_a(a_.at(i, d * detail::panel_depth), a_.row_stride, a_.column_stride, rows, length_of(d), to,
                      detail::panel_stride);
    }
    /// Some panels of one piece, side by side.
    void pack_panels(extent column, extent count, extent piece, std::byte* to) const {
        b_.pack_b(b_.at(piece * detail::panel_depth, column), b_.row_stride, b_.column_stride, length_of(piece),
                  std::min(count * unit_.columns, n_ - column), to, panel_bytes_);
    }

    /// Some pieces of k: those of a pass.
    struct depth_range {
        extent first, count;
    };
    /// The passes of a product, one after the other.
    template <class Body>
    void for_passes(const Body& body) const {
        for (extent first = 0; first < depths_; first += plan_.pass)
            body(depth_range{first, std::min(plan_.pass, depths_ - first)});
    }

    /// A tile's rows of a, packed or not, by one panel. Sums of all passes but the last wait at `sums`.
    void multiply(extent i, const std::byte* rows, extent column, const std::byte* panel, std::size_t step_bytes,
                  const depth_range& pass, float* sums) const {
        const extent k = pass.first * detail::panel_depth, length = std::min(pass.count * detail::panel_depth, k_ - k);
        const extent high = std::min<extent>(unit_.rows, m_ - i);
        const detail::deep_operands operands =
            in_place_
                ? detail::deep_operands{high,  a_.at(i, k), a_.row_stride, times(detail::panel_depth, sizeof(bfloat16)),
                                        panel, step_bytes}
                : detail::deep_operands{high, rows, detail::panel_stride, block_bytes_, panel, step_bytes};
        const float* const before = pass.first > 0 ? sums : nullptr;
        if (pass.first + pass.count < depths_)
            return unit_.multiply_through(length, operands, before, sums_stride_, sums, sums_stride_, nullptr);
        const result_block results{i, column, high, std::min<extent>(unit_.columns, n_ - column)};
        detail::lookahead ahead;
        if (reads_memory_)
            epilogue_.expect_operands(epilogue_.epilogue, results, plan::ceil_div(length, unit_.k_step), ahead);
        alignas(64) float last[32 * 32];
        unit_.multiply_through(length, operands, before, sums_stride_, last, unit_.columns,
                               reads_memory_ ? &ahead : nullptr);
        finish(results, last);
    }
    void finish(const result_block& results, const float* sums) const {
        const auto store = [&](const auto& function, const auto& to) {
            function(results.rows, sums, unit_.columns, to.at(results.row, results.column), to.stride, non_temporal_);
        };
        const bool is_wide = results.columns == unit_.columns;
        if (is_wide && unit_.store_rows != nullptr && epilogue_.plain.data != nullptr) {
            store(unit_.store_rows, epilogue_.plain);
        } else if (is_wide && unit_.store_rows_rounded != nullptr && epilogue_.plain_rounded.data != nullptr) {
            store(unit_.store_rows_rounded, epilogue_.plain_rounded);
        } else {
            epilogue_.finish(epilogue_.epilogue, sums, unit_.columns, results.row, results.column, results.rows,
                             results.columns, non_temporal_);
        }
        if (squares_ != nullptr) squares_->take(results.row, results.column, results.rows, results.columns);
    }
    template <class Body>
    void with_unit(const Body& body) const {
        if (unit_.enter != nullptr) unit_.enter();
        body();
        if (non_temporal_) detail::end_non_temporal();
        if (unit_.leave != nullptr) unit_.leave();
    }

    void share_b() const {
        const workspace::lease packed(device_.scratch(), times(plan_.slice / unit_.columns * depths_, panel_bytes_));
        for (extent left = 0; left < n_; left += plan_.slice) {
            const extent panels = plan::ceil_div(std::min(plan_.slice, n_ - left), unit_.columns);
            pack_b(left, panels, packed.data());
            multiply_by_shared_panels(left, panels, packed.data());
        }
    }
    void pack_b(extent left, extent panels, std::byte* packed) const {
        constexpr extent together = 4;  // that a task packs
        device_.parallel_for(depths_ * plan::ceil_div(panels, together), [&](extent index) {
            const extent piece = index % depths_, first = index / depths_ * together;
            pack_panels(left + first * unit_.columns, std::min(together, panels - first), piece,
                        packed + times(piece * panels + first, panel_bytes_));
        });
    }
    void multiply_by_shared_panels(extent left, extent panels, const std::byte* packed) const {
        const extent group_panels = plan_.columns / unit_.columns, groups = plan::ceil_div(panels, group_panels);
        const std::size_t a_bytes = times(plan_.pass, block_bytes_), step_bytes = times(panels, panel_bytes_);
        device_.parallel_for(
            plan::ceil_div(m_, plan_.rows) * groups, a_bytes + sums_bytes_, [&](extent index, std::byte* scratch) {
                const extent top = index / groups * plan_.rows, bottom = std::min(top + plan_.rows, m_);
                const extent first = index % groups * group_panels, end = std::min(first + group_panels, panels);
                with_unit([&] {
                    for_passes([&](const depth_range& pass) {
                        if (!in_place_) pack_rows(top, bottom - top, pass.first, pass.count, scratch);
                        for (extent j = first; j < end; ++j) {
                            const std::byte* const panel = packed + times(pass.first * panels + j, panel_bytes_);
                            const std::byte* rows = scratch;
                            auto* sums = reinterpret_cast<float*>(scratch + a_bytes) + (j - first) * unit_.columns;
                            for (extent i = top; i < bottom; i += unit_.rows) {
                                multiply(i, rows, left + j * unit_.columns, panel, step_bytes, pass, sums);
                                rows += tile_bytes_;
                                sums += unit_.rows * sums_stride_;
                            }
                        }
                    });
                });
            });
    }

    void pack_a(std::byte* block) const {
        const extent together = 4 * unit_.rows;  // that a task packs
        device_.parallel_for(depths_ * plan::ceil_div(m_, together), [&](extent index) {
            const extent piece = index % depths_, i = index / depths_ * together;
            pack_rows(i, std::min(together, m_ - i), piece, 1,
                      block + times(piece, block_bytes_) + times(i / unit_.rows, tile_bytes_));
        });
    }
    /// All of a is one block.
    void run_a_stationary() const {
        const workspace::lease all_of_a(device_.scratch(), times(depths_, block_bytes_));
        if (!in_place_) pack_a(all_of_a.data());
        const extent group_panels = plan_.columns / unit_.columns, panels = plan::ceil_div(n_, unit_.columns);
        const std::size_t step_bytes = times(group_panels, panel_bytes_), panels_bytes = times(plan_.pass, step_bytes);
        device_.parallel_for(
            plan::ceil_div(panels, group_panels), panels_bytes + sums_bytes_, [&](extent group, std::byte* scratch) {
                const extent first = group * group_panels, count = std::min(group_panels, panels - first);
                with_unit([&] {
                    for_passes([&](const depth_range& pass) {
                        for (extent d = 0; d < pass.count; ++d)
                            pack_panels(first * unit_.columns, count, pass.first + d, scratch + times(d, step_bytes));
                        for (extent j = 0; j < count; ++j) {
                            const std::byte* rows = all_of_a.data() + times(pass.first, block_bytes_);
                            auto* sums = reinterpret_cast<float*>(scratch + panels_bytes) + j * unit_.columns;
                            for (extent i = 0; i < m_; i += unit_.rows) {
                                multiply(i, rows, (first + j) * unit_.columns, scratch + times(j, panel_bytes_), step_bytes,
                                         pass, sums);
                                rows += tile_bytes_;
                                sums += unit_.rows * sums_stride_;
                            }
                        }
                    });
                });
            });
    }

    const detail::product_unit& unit_;
    cpu& device_;
    const blocked_operand& a_;
    const blocked_operand& b_;
    const blocked_epilogue& epilogue_;
    const written_squares* squares_;  // of results; none: nobody asks for them
    extent m_, n_, k_, depths_;
    tile_plan plan_;
    bool in_place_, non_temporal_, reads_memory_;
    std::size_t tile_bytes_, block_bytes_;  // of a tile's rows of a, packed, and a block's; of one piece of k
    std::size_t panel_bytes_;               // of one piece
    extent sums_stride_;
    std::size_t sums_bytes_;  // of a block, where they wait for further passes
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
