// SPDX-License-Identifier: MIT
/// \file
/// Two strategies of few rows: a thread takes a group of panels that nobody has taken, packs them, multiplies all of a by
/// them, and forgets them. No thread waits for another's packing.
///
///     a_stationary                                      c_stationary
///
///              b: a group, one piece of k at a time              b: a group, one piece of k at a time
///              +----+.......                                     +----+.......
///              |    |       k_piece: L1                          |    |       k_piece: L1
///              +----+.......                                     +----+.......
///       a        |                                        a         |
///     +-----+  +-v--+                                   +--+      +-v--+
///     |     |->|    |                                   |  |----->|    |  sums of all m rows of the group: L2
///     | L2  |  |    |                                   |  |      | L2 |  (384 KiB: 1,024 rows by 96 columns)
///     +-----+  +----+                                   +--+      +----+
///      all k    block_columns: 1 or 2 panels         one k_piece   block_columns: 64 to 128
///
/// - Packed: a once for all threads (or in place); where packed a exceeds L3, by each thread again for its groups, a piece
///   of k at a time. b by the thread that multiplies by it, whose next panels' source is prefetched meanwhile, as are the
///   results' places.
/// - a_stationary wins while packed a fits L2 (384 KiB): 256 rows by 768 k of bfloat16. On a Zen 5 it is 1.06 (fp32) and 1.04
///   (fp16) times as fast as what comes next at 64 x 768 x 768, and as fast (0.96 to 1.02) at larger ones. c_stationary wins up to 1,024 rows
///   of bfloat16 (768 of floats): on a Zen 4 1.05 (bf16) and 1.02 (fp32) times shared_b, over 14 shapes. On AVX2, whose
///   processors have smaller caches, shared_b wins from 129 rows on (Zen 3: 1.07 to 1.1).
#pragma once

#include <halftone/kernel/matmul/cpu/strategy/vector_product.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class private_panels_product : vector_product {
  public:
    explicit private_panels_product(const product_task& task)
        : vector_product(task),
          all_(*this),
          ends_in_one_piece_(plan_.ends_in_one_piece(k_)),
          tasks_(std::min<extent>(device_.threads(), all_.panels)) {}

    void run() const {
        const bool packs_once = !in_place() && plan_.packs_a_once,
                   packs_for_groups = !in_place() && !plan_.packs_a_once;
        const workspace::lease all_of_a(device_.scratch(), packs_once ? packed_a_bytes(all_) : 0);
        if (packs_once) pack_a(all_, all_of_a.data());
        const std::size_t all_sums_bytes = times(ends_in_one_piece_ ? 1 : blocks_, plan_.sums_bytes),
                          panels_bytes = times(group_panels_, plan_.panel_bytes),
                          blocks_bytes = packs_for_groups ? times(blocks_, plan_.block_bytes) : 0;

        std::atomic<extent> next_panel{0};
        const auto after = [&](const stage& s) {
            return s.piece + 1 < all_.pieces ? stage{s.piece + 1, s.first, s.count} : claim(next_panel);
        };
        device_.parallel_for(tasks_, all_sums_bytes + panels_bytes + blocks_bytes, [&](extent, std::byte* scratch) {
            std::byte *const panels = scratch + all_sums_bytes, *const blocks = panels + panels_bytes;
            for (stage now = claim(next_panel), next; now.count > 0; now = next) {
                next = after(now);
                pack_panels(all_, now.first, now.count, now.piece, panels, plan_.panel_bytes);
                for (extent block = 0; block < blocks_ && packs_for_groups; ++block)
                    pack_block(all_, block, now.piece, blocks + times(block, plan_.block_bytes));
                lookahead ahead;
                ahead.add(source_of(next), now.count * prefetches(m_, now.piece));
                multiply_all_rows(now, panels, packs_once ? all_of_a.data() : blocks, reinterpret_cast<float*>(scratch),
                                  ahead);
            }
        });
    }

  private:
    /// Some panels of one piece of k, which a thread packs together.
    struct stage {
        extent piece, first, count;
    };
    /// Panels that nobody has taken: a group of them, fewer where few are left, so that threads end together.
    stage claim(std::atomic<extent>& next) const {
        extent first = next.load(std::memory_order_relaxed), count = 0;
        do {
            const extent left = all_.panels - first;
            if (left <= 0) return {0, 0, 0};
            count = std::min(group_panels_, ceil_div(left, 2 * tasks_));
        } while (!next.compare_exchange_weak(first, first + count, std::memory_order_relaxed));
        return {0, first, count};
    }
    /// The memory that packing those panels reads.
    strided_lines source_of(const stage& s) const {
        const extent j = s.first * unit_.columns, columns = std::min(s.count * unit_.columns, n_ - j),
                     k = all_.length_of(s.piece), p = all_.first_of(s.piece);
        if (s.count == 0) return {};
        return b_.lines_of(p, j, k, columns);
    }
    /// How often tiles of so many rows prefetch.
    extent prefetches(extent rows, extent piece) const {
        return std::max<extent>(1, rows / unit_.rows * ceil_div(all_.length_of(piece), lookahead_depth));
    }

    /// sums (m, count panels) = or += all blocks of a times those panels; after the last piece of k, the results.
    void multiply_all_rows(const stage& now, const std::byte* panels, const std::byte* blocks, float* sums,
                           lookahead& ahead) const {
        const bool is_last = now.piece + 1 == all_.pieces;
        const extent block_floats = ends_in_one_piece_ ? 0 : static_cast<extent>(plan_.sums_bytes / sizeof(float)),
                     panel_floats = ends_in_one_piece_ ? 0 : unit_.columns;
        const auto multiply_one = [&](extent block, extent panel) {
            const extent row = block * plan_.block_rows, column = (now.first + panel) * unit_.columns,
                         high = rows_of(block), packed = plan_.packs_a_once ? block * all_.pieces + now.piece : block;
            ahead.keep(1);
            if (is_last && !unit_stores(all_, now.first + panel)) {
                epilogue_.prefetch_block(epilogue_.epilogue,
                                         {row, column, high, std::min<extent>(unit_.columns, n_ - column)},
                                         prefetches(high, now.piece), ahead);
            }
            multiply(all_, block, now.piece, packed_block(blocks, packed), now.first + panel,
                     panels + times(panel, plan_.panel_bytes), sums + block * block_floats + panel * panel_floats,
                     &ahead);
            if (ends_in_one_piece_) finish(all_, block, now.first + panel, unit_.columns, sums);
        };
        // Rows that do not stay in L2 come into it once, for all panels.
        if (plan_.rows_inside) {
            for (extent panel = 0; panel < now.count; ++panel) {
                for (extent block = 0; block < blocks_; ++block) multiply_one(block, panel);
            }
        } else {
            for (extent block = 0; block < blocks_; ++block) {
                for (extent panel = 0; panel < now.count; ++panel) multiply_one(block, panel);
            }
        }
        if (!is_last || ends_in_one_piece_) return;
        for (extent block = 0; block < blocks_; ++block)
            finish(all_, block, now.first, now.count * unit_.columns, sums + block * block_floats);
    }

    slice all_;
    bool ends_in_one_piece_;
    extent tasks_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
