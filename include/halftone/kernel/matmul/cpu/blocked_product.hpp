// SPDX-License-Identifier: MIT
/// \file
/// The loops of a matrix product on the CPU.
///
/// b is packed into panels that all threads share, slice by slice. Whoever takes a block of c goes through k in pieces of
/// some hundred and packs that much of its rows of a, unless all of a is packed beforehand; they stay in the second-level
/// cache while the panels of b pass by, as do the block's sums, which go through the epilogue at the end (Goto and van de
/// Geijn 2008). Where a has few rows, a thousand at most, b is not shared (plan.hpp): who takes some panels packs them,
/// multiplies all of a by them while the source of the next ones and the places of the results come near, and forgets
/// them. Where b is little, each thread packs all of it. Rows of a that a unit can read where they lie are not packed at
/// all, nor is b where a has hardly any rows. A transposed a, as gradients of weights have, is packed as it lies, k by k,
/// where a unit can read it so.
#pragma once

#include <atomic>
#include <cstdint>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/common/squares/cpu.hpp>
#include <halftone/kernel/matmul/cpu/blocked.hpp>
#include <halftone/kernel/matmul/cpu/plan.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// One product on its way. Nothing here knows types, so that a program holds these loops once.
class blocked_product {
  public:
    blocked_product(const detail::product_unit& unit, cpu& device, const blocked_operand& a, const blocked_operand& b,
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
          in_place_(can_be_read_in_place(unit, a)),
          plan_(m_, n_, k_, unit, largest_small_m(unit, b), device.threads()),
          k_major_(can_be_packed_k_major(a, plan_)),
          block_stride_(k_major_ ? detail::k_major_rows * plan_.piece : odd_line_stride(plan_.piece, unit.element)),
          block_bytes_(unit.block_bytes(plan_.rows, k_major_ ? plan_.piece : block_stride_)),
          panel_bytes_(unit.panel_bytes(std::min(plan_.piece, plan_.depth))),
          // Rows of sums are not a power of two apart.
          sums_stride_(finishes_at_once() ? unit.columns : plan_.columns + 16),
          sums_bytes_(
              round_up(times(plan::round_up_to(plan_.rows, unit.rows) * sums_stride_, sizeof(float)), block_alignment)),
          blocks_(plan::ceil_div(m_, plan_.rows)),
          group_panels_(plan_.columns / unit.columns) {}

    void run() const {
        switch (plan_.kept) {
            case stationary::rows:
                return run_rows_stationary();
            case stationary::b:
                return run_b_stationary();
            case stationary::b_per_thread:
                return run_b_per_thread();
            case stationary::small_m:
                return run_small_m();
        }
    }

  private:
    using plan = blocked_plan;
    static constexpr extent line_bytes = 64;

    /// Whether products read rows of a where they lie.
    static bool can_be_read_in_place(const detail::product_unit& unit, const blocked_operand& a) {
        return a.keeps_rows && a.column_stride == 1 && a.columns % unit.k_multiple == 0;
    }

    /// How many rows of a meet b where it lies. Rows of b are read again from the second-level cache by every tile of a's:
    /// where they are what the unit multiplies, or become such at once. Columns would have to be turned again.
    static extent largest_small_m(const detail::product_unit& unit, const blocked_operand& b) {
        if (b.multiply_small_m == nullptr) return 0;
        const extent by_rows_of_b = unit.columns >= 32 ? 48 : 32;
        return b.column_stride == 1 && (b.keeps_rows || b.element == 2) ? by_rows_of_b : detail::small_m;
    }

    /// Whether a's columns, which lie side by side as in the transpose of a matrix, are packed without being turned.
    static bool can_be_packed_k_major(const blocked_operand& a, const blocked_plan& plan) {
        const bool is_transposed = a.row_stride == 1 && a.column_stride != 1;
        return a.pack_a_k_major != nullptr && is_transposed && plan.kept != stationary::small_m;
    }

    /// Elements from row to row of a packed block: an odd number of lines, so that rows fall on different cache sets.
    static extent odd_line_stride(extent piece, extent element) {
        return (plan::ceil_div(piece * element, line_bytes) | 1) * line_bytes / element;
    }
    static std::size_t times(extent count, std::size_t bytes) { return static_cast<std::size_t>(count) * bytes; }

    /// A slice of b's columns and a chunk of k.
    struct part {
        extent left, begin, length, piece, depths, panels, groups;

        part(const blocked_product& of, extent first_column, extent first_k)
            : left(first_column),
              begin(first_k),
              length(std::min(of.plan_.depth, of.k_ - first_k)),
              piece(of.plan_.piece),
              depths(std::max<extent>(1, plan::ceil_div(length, piece))),
              panels(plan::ceil_div(std::min(of.plan_.slice_columns, of.n_ - first_column), of.unit_.columns)),
              groups(plan::ceil_div(panels, of.group_panels_)) {}

        extent length_of(extent depth) const { return std::min(piece, length - depth * piece); }
        extent first_of(extent depth) const { return begin + depth * piece; }
    };

    void pack_block(const part& p, extent block, extent depth, std::byte* to) const {
        const extent i = block * plan_.rows, from = p.first_of(depth), high = std::min(plan_.rows, m_ - i),
                     length = p.length_of(depth);
        if (k_major_) return a_.pack_a_k_major(a_.at(i, from), a_.column_stride, high, length, to, block_stride_);
        a_.pack_a(a_.at(i, from), a_.row_stride, a_.column_stride, high, length, to, block_stride_);
    }
    const std::byte* packed_rows(const std::byte* blocks, extent index) const {
        return in_place_ ? nullptr : blocks + times(index, block_bytes_);
    }
    /// `count` panels from number `first` on, so many bytes apart.
    void pack_panels(const part& p, extent first, extent count, extent depth, std::byte* to, std::size_t step_bytes) const {
        const extent from = p.first_of(depth), j = p.left + first * unit_.columns;
        b_.pack_b(b_.at(from, j), b_.row_stride, b_.column_stride, p.length_of(depth),
                  std::min(count * unit_.columns, n_ - j), to, step_bytes);
    }
    /// The products of a block of rows with a panel of one depth, added to sums; where k ends, stored where they belong
    /// if stores_at_once.
    void multiply(const part& p, extent block, extent depth, const std::byte* rows, extent number,
                  const std::byte* panel, float* sums, detail::lookahead* ahead) const {
        const extent i = block * plan_.rows, high = std::min(plan_.rows, m_ - i), length = unit_.run(p.length_of(depth)),
                     j = p.left + number * unit_.columns, from = p.first_of(depth);
        const bool add = p.begin + depth > 0;
        const detail::block_of_a a =
            in_place_ ? detail::block_of_a{a_.at(i, from), a_.row_stride} : detail::block_of_a{rows, block_stride_, k_major_};
        const auto end = [&](const auto& function, const auto& result) {
            function(high, length, a, panel, add ? sums : nullptr, sums_stride_, result.at(i, j), result.stride, ahead);
            if (squares_ != nullptr) squares_->take(i, j, high, unit_.columns);
        };
        if (from + p.piece >= k_ && stores_at_once(p, number)) {
            if (epilogue_.plain.data != nullptr) return end(unit_.multiply_last, epilogue_.plain);
            return end(unit_.multiply_last_rounded, epilogue_.plain_rounded);
        }
        if (unit_.multiply_half != nullptr && !k_major_ && n_ - j <= unit_.columns / 2) {
            unit_.multiply_half(high, length, a, panel, sums, sums_stride_, add, ahead);
        } else {
            unit_.multiply_rows(high, length, a, panel, sums, sums_stride_, add, ahead);
        }
    }
    /// Whether the unit itself stores the results of that panel.
    bool stores_at_once(const part& p, extent panel) const {
        const bool can = (unit_.multiply_last != nullptr && epilogue_.plain.data != nullptr) ||
                         (unit_.multiply_last_rounded != nullptr && epilogue_.plain_rounded.data != nullptr);
        return can && plan_.kept != stationary::small_m && p.left + (panel + 1) * unit_.columns <= n_;
    }
    /// Sends sums of `columns` from a panel on through the epilogue, where k has ended, but for those that are stored.
    void finish(const part& p, extent block, extent panel, extent columns, const float* sums) const {
        if (p.begin + plan_.depth < k_) return;
        for (; columns > 0 && stores_at_once(p, panel); ++panel, columns -= unit_.columns) sums += unit_.columns;
        if (columns <= 0) return;
        const extent i = block * plan_.rows, j = p.left + panel * unit_.columns, rows = std::min(plan_.rows, m_ - i);
        columns = std::min(columns, n_ - j);
        epilogue_.finish(epilogue_.epilogue, sums, sums_stride_, i, j, rows, columns, false);
        if (squares_ != nullptr) squares_->take(i, j, rows, columns);
    }

    /// Of all of a, packed.
    std::size_t a_bytes(const part& p) const { return in_place_ ? 0 : times(blocks_ * p.depths, block_bytes_); }
    /// The block and the depth of that number, to their place among them all.
    void pack_into(const part& p, extent index, std::byte* all) const {
        pack_block(p, index / p.depths, index % p.depths, all + times(index, block_bytes_));
    }
    void pack_a(const part& p, std::byte* to) const {
        if (in_place_) return;
        device_.parallel_for(blocks_ * p.depths, [&](extent index) { pack_into(p, index, to); });
    }

    /// One piece holds all of k, where the sums of one block by one panel are all that is held.
    bool finishes_at_once() const { return plan_.kept == stationary::rows && k_ <= plan_.piece; }

    /// Some panels of one depth, that a thread packs together.
    struct stage {
        extent depth, first, count;
    };
    /// Panels that nobody has taken: a group of them, fewer where few are left, so that threads end together.
    stage claim_panels(const part& p, std::atomic<extent>& next, extent threads) const {
        extent first = next.load(std::memory_order_relaxed), count = 0;
        do {
            const extent left = p.panels - first;
            if (left <= 0) return {0, 0, 0};
            count = std::min(group_panels_, plan::ceil_div(left, 2 * threads));
        } while (!next.compare_exchange_weak(first, first + count, std::memory_order_relaxed));
        return {0, first, count};
    }
    detail::strided_lines source_of(const part& p, const stage& s) const {
        const extent j = s.first * unit_.columns, wide = std::min(s.count * unit_.columns, n_ - j),
                     deep = p.length_of(s.depth), from = p.first_of(s.depth);
        if (s.count == 0) return {};
        if (b_.column_stride == 1) return {b_.at(from, j), deep, wide * b_.element, b_.row_stride * b_.element};
        return {b_.at(from, j), wide, deep * b_.element, b_.column_stride * b_.element};
    }

    void run_rows_stationary() const {
        const part p(*this, 0, 0);
        const bool packs_once = !in_place_ && plan_.a_is_packed_once, packs_often = !in_place_ && !plan_.a_is_packed_once;
        const workspace::lease all_of_a(device_.scratch(), packs_once ? a_bytes(p) : 0);
        if (packs_once) pack_a(p, all_of_a.data());
        const std::size_t all_sums_bytes = times(finishes_at_once() ? 1 : blocks_, sums_bytes_),
                          panels_bytes = times(group_panels_, panel_bytes_),
                          blocks_bytes = packs_often ? times(blocks_, block_bytes_) : 0;

        std::atomic<extent> next_panel{0};
        const extent tasks = std::min<extent>(device_.threads(), p.panels);
        const auto after = [&](const stage& s) {
            return s.depth + 1 < p.depths ? stage{s.depth + 1, s.first, s.count} : claim_panels(p, next_panel, tasks);
        };
        device_.parallel_for(tasks, all_sums_bytes + panels_bytes + blocks_bytes, [&](extent, std::byte* scratch) {
            std::byte *const panels = scratch + all_sums_bytes, *const blocks = panels + panels_bytes;
            for (stage now = claim_panels(p, next_panel, tasks), next; now.count > 0; now = next) {
                next = after(now);
                pack_panels(p, now.first, now.count, now.depth, panels, panel_bytes_);
                for (extent block = 0; block < blocks_ && packs_often; ++block)
                    pack_block(p, block, now.depth, blocks + times(block, block_bytes_));
                detail::lookahead ahead;
                ahead.add(source_of(p, next), now.count * prefetches(p, m_, now.depth));
                multiply_by(p, now, panels, packs_once ? all_of_a.data() : blocks, reinterpret_cast<float*>(scratch),
                            ahead);
            }
        });
    }
    /// How often tiles of so many rows ask for memory.
    extent prefetches(const part& p, extent rows, extent depth) const {
        return std::max<extent>(1, rows / unit_.rows * plan::ceil_div(p.length_of(depth), detail::lookahead_depth));
    }
    void multiply_by(const part& p, const stage& now, const std::byte* panels, const std::byte* blocks, float* sums,
                     detail::lookahead& ahead) const {
        const bool is_last = now.depth + 1 == p.depths;
        const extent block_floats = finishes_at_once() ? 0 : static_cast<extent>(sums_bytes_ / sizeof(float));
        const auto multiply_one = [&](extent block, extent panel) {
            const extent column = (now.first + panel) * unit_.columns;
            const extent rows = plan_.a_is_packed_once ? block * p.depths + now.depth : block;
            const extent row = block * plan_.rows, high = std::min(plan_.rows, m_ - row);
            ahead.keep(1);
            if (is_last && !stores_at_once(p, now.first + panel)) {
                epilogue_.expect(epilogue_.epilogue, {row, column, high, std::min<extent>(unit_.columns, n_ - column)},
                                 prefetches(p, high, now.depth), ahead);
            }
            multiply(p, block, now.depth, packed_rows(blocks, rows), now.first + panel,
                     panels + times(panel, panel_bytes_),
                     sums + block * block_floats + (finishes_at_once() ? 0 : panel * unit_.columns), &ahead);
            if (finishes_at_once()) finish(p, block, now.first + panel, unit_.columns, sums);
        };
        // Rows that do not stay in the second-level cache come into it once, for all panels.
        constexpr std::size_t staying_bytes = std::size_t{512} << 10;
        if (times(blocks_, block_bytes_) <= staying_bytes) {
            for (extent panel = 0; panel < now.count; ++panel) {
                for (extent block = 0; block < blocks_; ++block) multiply_one(block, panel);
            }
        } else {
            for (extent block = 0; block < blocks_; ++block) {
                for (extent panel = 0; panel < now.count; ++panel) multiply_one(block, panel);
            }
        }
        if (!is_last || finishes_at_once()) return;
        for (extent block = 0; block < blocks_; ++block)
            finish(p, block, now.first, now.count * unit_.columns, sums + block * block_floats);
    }

    /// Few rows of a by b where it lies: as many columns as a task has, or, where columns' elements lie side by side, few.
    /// Where rows of b begin off a cache line, all alike, all columns but the first begin on one: a vector that reaches into
    /// a second line takes twice as long to read (AVX2, 16 x 3072 x 768 floats: 0.61 of the rate on a line, 0.98 so).
    void run_small_m() const {
        const part p(*this, 0, 0);
        const extent width = b_.column_stride == 1 ? plan_.columns : unit_.columns;
        const extent off = p.groups > 1 && squares_ == nullptr ? columns_off_a_line() : 0,
                     groups = plan::ceil_div(n_ + off, plan_.columns);
        const workspace::lease blocks(device_.scratch(), a_bytes(p));
        pack_a(p, blocks.data());
        device_.parallel_for(blocks_ * groups, sums_bytes_, [&](extent task, std::byte* scratch) {
            auto* const sums = reinterpret_cast<float*>(scratch);
            const extent block = task / groups, group = task % groups, i = block * plan_.rows,
                         rows = std::min(plan_.rows, m_ - i), left = std::max<extent>(0, group * plan_.columns - off),
                         end = std::min((group + 1) * plan_.columns - off, n_);
            for (extent j = left, next; j < end; j = next) {
                next = std::min(end, j == 0 && off != 0 ? line_bytes / b_.element - off : j + width);
                for (extent depth = 0; depth < p.depths; ++depth) {
                    const extent from = depth * plan_.piece;
                    b_.multiply_small_m(rows, std::min(plan_.piece, k_ - from),
                                    in_place_ ? a_.at(i, from) : packed_rows(blocks.data(), block * p.depths + depth),
                                    in_place_ ? a_.row_stride : block_stride_, b_.at(from, j), b_.row_stride,
                                    b_.column_stride, next - j, sums + (j - left), sums_stride_, from > 0);
                }
            }
            epilogue_.finish(epilogue_.epilogue, sums, sums_stride_, i, left, rows, end - left, false);
            if (squares_ != nullptr) squares_->take(i, left, rows, end - left);
        });
    }
    /// By how many columns the first one lies behind the beginning of a cache line; 0 where that differs from row to row,
    /// and where vectors (half of a panel) are so short that few reach into a second one.
    extent columns_off_a_line() const {
        const auto address = static_cast<extent>(reinterpret_cast<std::uintptr_t>(b_.at(0, 0)));
        const bool alike = b_.column_stride == 1 && b_.row_stride * b_.element % line_bytes == 0;
        return alike && unit_.columns / 2 * b_.element >= line_bytes / 2 ? address % line_bytes / b_.element : 0;
    }

    void run_b_stationary() const {
        const extent depths = plan::ceil_div(plan_.depth, plan_.piece), columns = std::min(plan_.slice_columns, n_);
        const extent panels = plan::ceil_div(columns, unit_.columns), groups = plan::ceil_div(columns, plan_.columns);
        const bool at_once = plan_.depth >= k_;
        // Whoever packed its own rows would pack them for every group.
        const std::size_t all_rows_bytes = times(blocks_ * depths, block_bytes_);
        const bool shares_rows = !in_place_ && groups > 2 && all_rows_bytes <= plan::slice_bytes;
        const workspace::lease rows(device_.scratch(), shares_rows ? all_rows_bytes : 0);
        const workspace::lease packed(device_.scratch(), times(panels * depths, panel_bytes_));
        const workspace::lease waiting(device_.scratch(), at_once ? 0 : times(blocks_ * groups, sums_bytes_));
        for (extent left = 0; left < n_; left += plan_.slice_columns) {
            for (extent begin = 0; begin < std::max<extent>(k_, 1); begin += plan_.depth) {
                const part p(*this, left, begin);
                pack_operands(p, shares_rows && (left == 0 || !at_once) ? rows.data() : nullptr, packed.data());
                multiply_by_shared_panels(p, shares_rows ? rows.data() : nullptr, packed.data(),
                                          at_once ? nullptr : waiting.data());
            }
        }
    }
    std::size_t place_of(const part& p, extent panel, extent depth) const {
        return times(depth * p.panels + panel, panel_bytes_);
    }
    /// All panels, and all rows of a where there is a place for them.
    void pack_operands(const part& p, std::byte* rows, std::byte* packed) const {
        constexpr extent together = 4;  // that a task packs
        const extent of_a = rows == nullptr ? 0 : blocks_ * p.depths;
        device_.parallel_for(of_a + p.depths * plan::ceil_div(p.panels, together), [&](extent index) {
            if (index < of_a) return pack_into(p, index, rows);
            index -= of_a;
            const extent depth = index % p.depths, first = index / p.depths * together;
            pack_panels(p, first, std::min(together, p.panels - first), depth, packed + place_of(p, first, depth),
                        panel_bytes_);
        });
    }
    /// `rows`: all of a, packed; none: who multiplies them packs them. `waiting` holds sums that wait for the next chunk
    /// of k; none: there is one chunk.
    void multiply_by_shared_panels(const part& p, const std::byte* rows, const std::byte* packed,
                                   std::byte* waiting) const {
        device_.parallel_for(blocks_ * p.groups, block_bytes_ + sums_bytes_, [&](extent index, std::byte* scratch) {
            multiply_block(p, index, rows, packed, scratch,
                           waiting == nullptr ? scratch + block_bytes_ : waiting + times(index, sums_bytes_));
        });
    }
    /// A block of rows by a group of panels, packed.
    void multiply_block(const part& p, extent index, const std::byte* rows, const std::byte* packed, std::byte* scratch,
                        std::byte* sums_of_all) const {
        const bool packs = !in_place_ && rows == nullptr;
        const extent block = index / p.groups, group = index % p.groups;
        const extent first = group * group_panels_, end = std::min(first + group_panels_, p.panels);
        auto* const sums = reinterpret_cast<float*>(sums_of_all);
        for (extent depth = 0; depth < p.depths; ++depth) {
            if (packs) pack_block(p, block, depth, scratch);
            const std::byte* const block_rows = packs ? scratch : packed_rows(rows, block * p.depths + depth);
            for (extent panel = first; panel < end; ++panel) {
                multiply(p, block, depth, block_rows, panel, packed + place_of(p, panel, depth),
                         sums + (panel - first) * unit_.columns, nullptr);
            }
        }
        finish(p, block, first, plan_.columns, sums);
    }

    /// Each thread packs all of b, and takes blocks that nobody has taken.
    void run_b_per_thread() const {
        const part p(*this, 0, 0);
        const std::size_t beside_bytes = block_bytes_ + sums_bytes_;
        std::atomic<extent> next{0};
        device_.parallel_for(
            std::min<extent>(device_.threads(), blocks_), beside_bytes + times(p.panels * p.depths, panel_bytes_),
            [&](extent, std::byte* scratch) {
                const auto claim = [&] { return next.fetch_add(1, std::memory_order_relaxed); };
                extent block = claim();
                for (extent depth = 0; depth < p.depths && block < blocks_; ++depth)
                    pack_panels(p, 0, p.panels, depth, scratch + beside_bytes + place_of(p, 0, depth), panel_bytes_);
                for (; block < blocks_; block = claim())
                    multiply_block(p, block, nullptr, scratch + beside_bytes, scratch, scratch + block_bytes_);
            });
    }

    const detail::product_unit& unit_;
    cpu& device_;
    const blocked_operand& a_;
    const blocked_operand& b_;
    const blocked_epilogue& epilogue_;
    const written_squares* squares_;  // of results; none: nobody asks for them
    extent m_, n_, k_;
    bool in_place_;
    blocked_plan plan_;
    bool k_major_;
    extent block_stride_;
    std::size_t block_bytes_, panel_bytes_;
    extent sums_stride_;
    std::size_t sums_bytes_;
    extent blocks_, group_panels_;
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
