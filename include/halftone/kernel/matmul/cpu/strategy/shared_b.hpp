// SPDX-License-Identifier: MIT
/// \file
/// The strategy of large products (Goto and van de Geijn 2008): b is packed into panels that all threads share; each block
/// of c meets them.
///
///                     slice of b, packed by all threads: L3 (16 MiB)
///                     +--------+--------+--------+
///                     | panels | panels |  ...   |   k_chunk
///                     +--------+--------+--------+
///       a                 |
///     +------+        +---v----+--------+--------+
///     |block |------->| block  |        |        |   block_rows (96), its sums in L2
///     +------+        +--------+--------+--------+
///     |      |        |        |        |        |   a task: one block of c
///      k_piece         block_columns (1,024)
///
/// - Packed: the slice once, by all threads together; a block of a by the task that needs it, a piece of k at a time, unless
///   a is read in place, or is packed once because more than two groups of columns meet it.
/// - L2: the block of a (96 x 512 bfloat16: 96 KiB) and its sums (96 x 1,024 floats: 384 KiB). L1: one panel, half of it.
/// - Wins for more rows than c_stationary takes, and for any shape that fits nothing else. All threads wait until b is
///   packed: 96 rows or more a thread hide that.
#pragma once

#include <halftone/kernel/matmul/cpu/strategy/vector_product.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class shared_b_product : vector_product {
  public:
    explicit shared_b_product(const product_task& task) : vector_product(task) {}

    void run() const {
        const extent pieces = ceil_div(plan_.k_chunk, plan_.k_piece), columns = std::min(plan_.slice_columns, n_),
                     panels = ceil_div(columns, unit_.columns), groups = ceil_div(columns, plan_.block_columns);
        const bool is_one_chunk = plan_.k_chunk >= k_, packs_a_once = !in_place() && plan_.packs_a_once;
        const workspace::lease rows(device_.scratch(), packs_a_once ? times(blocks_ * pieces, plan_.block_bytes) : 0);
        const workspace::lease packed(device_.scratch(), times(panels * pieces, plan_.panel_bytes));
        const workspace::lease waiting(device_.scratch(), is_one_chunk ? 0 : times(blocks_ * groups, plan_.sums_bytes));
        for (extent left = 0; left < n_; left += plan_.slice_columns) {
            for (extent begin = 0; begin < std::max<extent>(k_, 1); begin += plan_.k_chunk) {
                const slice s(*this, left, begin);
                pack(s, packs_a_once && (left == 0 || !is_one_chunk) ? rows.data() : nullptr, packed.data());
                multiply(s, packs_a_once ? rows.data() : nullptr, packed.data(),
                         is_one_chunk ? nullptr : waiting.data());
            }
        }
    }

  private:
    /// All panels of the slice; and all rows of a into `rows`, unless that is nullptr.
    void pack(const slice& s, std::byte* rows, std::byte* packed) const {
        constexpr extent together = tuning::packed_together;
        const extent of_a = rows == nullptr ? 0 : blocks_ * s.pieces;
        device_.parallel_for(of_a + s.pieces * ceil_div(s.panels, together), [&](extent index) {
            if (index < of_a) return pack_block_of_all(s, index, rows);
            index -= of_a;
            const extent piece = index % s.pieces, first = index / s.pieces * together;
            pack_panels(s, first, std::min(together, s.panels - first), piece, packed + panel_offset(s, first, piece),
                        plan_.panel_bytes);
        });
    }
    /// `waiting`: a place for the sums of all blocks, which wait there for the next chunk of k; nullptr: there is one chunk.
    void multiply(const slice& s, const std::byte* rows, const std::byte* packed, std::byte* waiting) const {
        device_.parallel_for(
            blocks_ * s.groups, plan_.block_bytes + plan_.sums_bytes, [&](extent index, std::byte* scratch) {
                std::byte* const sums =
                    waiting == nullptr ? scratch + plan_.block_bytes : waiting + times(index, plan_.sums_bytes);
                multiply_group(s, index / s.groups, index % s.groups, rows, packed, scratch,
                               reinterpret_cast<float*>(sums));
            });
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
