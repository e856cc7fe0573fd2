// SPDX-License-Identifier: MIT
/// \file
/// What the strategies of vector units share: packing a block or some panels, multiplying one by the other, and what
/// becomes of the sums. Nothing here knows types.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/matmul/cpu/plan.hpp>
#include <halftone/kernel/matmul/cpu/untyped.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class vector_product {
  protected:
    explicit vector_product(const product_task& task)
        : unit_(task.unit),
          vectors_(*task.unit.vectors),
          device_(task.device),
          a_(task.a),
          b_(task.b),
          epilogue_(task.epilogue),
          squares_(task.squares),
          plan_(task.plan),
          m_(a_.rows),
          n_(b_.columns),
          k_(a_.columns),
          blocks_(plan_.blocks(m_)),
          group_panels_(plan_.block_columns / unit_.columns) {}

    /// Some columns of b, and a chunk of k: what is packed at a time. All of b, unless a strategy says otherwise.
    struct slice {
        extent left, begin, length, piece, pieces, panels, groups;

        explicit slice(const vector_product& of, extent first_column = 0, extent first_k = 0)
            : left(first_column),
              begin(first_k),
              length(std::min(of.plan_.k_chunk, of.k_ - first_k)),
              piece(of.plan_.k_piece),
              pieces(std::max<extent>(1, ceil_div(length, piece))),
              panels(ceil_div(std::min(of.plan_.slice_columns, of.n_ - first_column), of.unit_.columns)),
              groups(ceil_div(panels, of.group_panels_)) {}

        extent length_of(extent index) const { return std::min(piece, length - index * piece); }
        extent first_of(extent index) const { return begin + index * piece; }
    };

    static std::size_t times(extent count, std::size_t bytes) { return static_cast<std::size_t>(count) * bytes; }
    bool in_place() const { return plan_.a == source_of_a::in_place; }
    bool k_major() const { return plan_.a == source_of_a::packed_k_major; }
    extent rows_of(extent block) const { return std::min(plan_.block_rows, m_ - block * plan_.block_rows); }

    // ---- Packing -----------------------------------------------------------------------------------------------------

    void pack_block(const slice& s, extent block, extent piece, std::byte* to) const {
        const extent i = block * plan_.block_rows, p = s.first_of(piece), rows = rows_of(block), k = s.length_of(piece);
        if (k_major()) {
            a_.pack_k_major(a_.at(i, p), a_.column_stride, rows, k, to, plan_.a_stride);
        } else {
            a_.pack(a_.at(i, p), a_.row_stride, a_.column_stride, rows, k, to, plan_.a_stride);  // (rows, k)
        }
    }
    /// Where the block of that number is, among blocks packed one behind the other.
    const std::byte* packed_block(const std::byte* blocks, extent index) const {
        return in_place() ? nullptr : blocks + times(index, plan_.block_bytes);
    }
    /// Bytes of all of a, packed: (blocks, pieces).
    std::size_t packed_a_bytes(const slice& s) const {
        return in_place() ? 0 : times(blocks_ * s.pieces, plan_.block_bytes);
    }
    void pack_block_of_all(const slice& s, extent index, std::byte* all) const {
        pack_block(s, index / s.pieces, index % s.pieces, all + times(index, plan_.block_bytes));
    }
    /// All of a, by all threads.
    void pack_a(const slice& s, std::byte* to) const {
        if (in_place()) return;
        device_.parallel_for(blocks_ * s.pieces, [&](extent index) { pack_block_of_all(s, index, to); });
    }
    /// `count` panels from number `first` on, step_bytes from one to the next.
    void pack_panels(const slice& s, extent first, extent count, extent piece, std::byte* to,
                     std::size_t step_bytes) const {
        const extent p = s.first_of(piece), j = s.left + first * unit_.columns;
        b_.pack_piece(p, j, s.length_of(piece), std::min(count * unit_.columns, n_ - j), unit_, to,
                      step_bytes);  // (k, columns)
    }

    // ---- Multiplying -------------------------------------------------------------------------------------------------

    /// sums = or += a block of rows times one panel over one piece of k; where k ends, the results themselves are stored
    /// if unit_stores.
    void multiply(const slice& s, extent block, extent piece, const std::byte* rows, extent panel_number,
                  const std::byte* panel, float* sums, lookahead* ahead) const {
        const extent i = block * plan_.block_rows, j = s.left + panel_number * unit_.columns, p = s.first_of(piece),
                     high = rows_of(block), k = unit_.run(s.length_of(piece));
        const bool add = s.begin + piece > 0;
        const block_of_a a =
            in_place() ? block_of_a{a_.at(i, p), a_.row_stride} : block_of_a{rows, plan_.a_stride, k_major()};
        const auto end = [&](auto* function, const auto& result) {
            function(high, k, a, panel, add ? sums : nullptr, plan_.sums_stride, result.at(i, j), result.stride, ahead);
            if (squares_ != nullptr) squares_->take(i, j, high, unit_.columns);
        };
        if (p + s.piece >= k_ && unit_stores(s, panel_number)) {
            if (epilogue_.plain) return end(vectors_.multiply_last, epilogue_.plain);
            return end(vectors_.multiply_last_rounded, epilogue_.plain_rounded);
        }
        const bool half = !k_major() && n_ - j <= unit_.columns / 2;
        (half ? vectors_.multiply_half_panel : vectors_.multiply)(high, k, a, panel, sums, plan_.sums_stride, add,
                                                                  ahead);
    }
    /// Whether the unit itself stores the results of that panel: the epilogue only stores, and the panel is whole.
    bool unit_stores(const slice& s, extent panel) const {
        const bool can = epilogue_.plain || (vectors_.multiply_last_rounded != no_function && epilogue_.plain_rounded);
        return can && s.left + (panel + 1) * unit_.columns <= n_;
    }
    /// Sends sums (rows, columns) of a block, from a panel on, through the epilogue, where k has ended; but for those that
    /// the unit has stored.
    void finish(const slice& s, extent block, extent panel, extent columns, const float* sums) const {
        if (s.begin + plan_.k_chunk < k_) return;
        for (; columns > 0 && unit_stores(s, panel); ++panel, columns -= unit_.columns) sums += unit_.columns;
        if (columns <= 0) return;
        const extent i = block * plan_.block_rows, j = s.left + panel * unit_.columns, rows = rows_of(block);
        columns = std::min(columns, n_ - j);
        epilogue_.finish(epilogue_.epilogue, sums, plan_.sums_stride, i, j, rows, columns, false);
        if (squares_ != nullptr) squares_->take(i, j, rows, columns);
    }
    /// A block of rows by a group of packed panels, all of this slice's k. `all_rows`: all of a, packed; nullptr: this
    /// block's rows are packed here, into `scratch`. `sums`: (block_rows, block_columns).
    void multiply_group(const slice& s, extent block, extent group, const std::byte* all_rows, const std::byte* panels,
                        std::byte* scratch, float* sums) const {
        const bool packs = !in_place() && all_rows == nullptr;
        const extent first = group * group_panels_, end = std::min(first + group_panels_, s.panels);
        for (extent piece = 0; piece < s.pieces; ++piece) {
            if (packs) pack_block(s, block, piece, scratch);
            const std::byte* const rows = packs ? scratch : packed_block(all_rows, block * s.pieces + piece);
            for (extent panel = first; panel < end; ++panel) {
                multiply(s, block, piece, rows, panel, panels + panel_offset(s, panel, piece),
                         sums + (panel - first) * unit_.columns, nullptr);
            }
        }
        finish(s, block, first, plan_.block_columns, sums);
    }
    /// Where a panel of one piece is in a packed slice: (pieces, panels).
    std::size_t panel_offset(const slice& s, extent panel, extent piece) const {
        return times(piece * s.panels + panel, plan_.panel_bytes);
    }

    const product_unit& unit_;
    const product_unit::vector_functions& vectors_;
    cpu& device_;
    const untyped_a& a_;
    const untyped_b& b_;
    const untyped_epilogue& epilogue_;
    const kernel::written_squares* squares_;
    const product_plan& plan_;
    extent m_, n_, k_;
    extent blocks_;        ///< of rows
    extent group_panels_;  ///< panels of a block of c
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
