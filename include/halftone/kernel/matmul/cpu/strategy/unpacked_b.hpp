// SPDX-License-Identifier: MIT
/// \file
/// Two strategies that read b in place, since packing it would serve hardly anybody.
///
///     small_m: few rows of a                            narrow_b: one panel of b at most
///
///           b, unpacked, streamed once                             b, unpacked: L1 and L2
///         +--------+--------+--------+                             +----+
///         | task 0 | task 1 | task 2 |  k                          |    |  k
///         +--------+--------+--------+                             +----+
///     +-+ +--------+--------+--------+                     +-----+ +----+
///     |a| |        |        |        |  m <= 48            |task0| |    |  m / (2 threads) rows
///     +-+ +--------+--------+--------+                     |task1| |    |
///     L1   block_columns: 64 to 1,024; sums in registers   +-----+ +----+
///
/// - Packed: a, once, unless it is read in place; b never.
/// - small_m wins up to 4 rows in any layout of b, up to 8 of one whose columns are contiguous on multiply-adds of 16 floats
///   (bench/TRIED.md), and up to 48 (32 on narrow units) of a row-major one whose elements the unit takes: Zen 4, 4 x 768 x 768 1.3 (fp32) and 1.8 (bf16) times packed products, 32 rows 1.3. narrow_b wins where few
///   columns are all there is: 48 x 16 x 3072 2.3, 256 x 16 x 3072 1.15 (fp32, half a panel of sums would be idle).
#pragma once

#include <halftone/kernel/matmul/cpu/strategy/vector_product.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class unpacked_b_product : vector_product {
  public:
    explicit unpacked_b_product(const product_task& task) : vector_product(task) {}

    /// Multiplies by as many columns at a time as a task has, or a panel's where columns of b are contiguous. Where all
    /// rows of b begin equally far off a cache line, the first task's columns end at a line and all others begin on one:
    /// a vector that crosses lines takes twice as long to read (AVX2, 16 x 3072 x 768 floats: 0.61 of the rate on a line,
    /// 0.98 so).
    void run() const {
        const slice s(*this);
        const extent width = b_.column_stride == 1 ? plan_.block_columns : unit_.columns;
        const extent off = s.groups > 1 && squares_ == nullptr ? columns_off_a_line() : 0,
                     groups = ceil_div(n_ + off, plan_.block_columns);
        const workspace::lease blocks(device_.scratch(), packed_a_bytes(s));
        pack_a(s, blocks.data());
        device_.parallel_for(blocks_ * groups, plan_.sums_bytes, [&](extent task, std::byte* scratch) {
            auto* const sums = reinterpret_cast<float*>(scratch);
            const extent block = task / groups, group = task % groups, i = block * plan_.block_rows,
                         rows = rows_of(block), left = std::max<extent>(0, group * plan_.block_columns - off),
                         end = std::min((group + 1) * plan_.block_columns - off, n_);
            for (extent j = left, next; j < end; j = next) {
                next = std::min(end, j == 0 && off != 0 ? line_bytes / b_.element - off : j + width);
                for (extent piece = 0; piece < s.pieces; ++piece) {
                    const extent p = s.first_of(piece);
                    b_.multiply_piece(rows, s.length_of(piece),
                                      in_place() ? a_.at(i, p) : packed_block(blocks.data(), block * s.pieces + piece),
                                      in_place() ? a_.row_stride : plan_.a_stride, p, j, next - j, unit_,
                                      sums + (j - left), plan_.sums_stride, p > 0);
                }
            }
            epilogue_.finish(epilogue_.epilogue, sums, plan_.sums_stride, i, left, rows, end - left, false);
            if (squares_ != nullptr) squares_->take(i, left, rows, end - left);
        });
    }

  private:
    static constexpr extent line_bytes = 64;

    /// How many columns behind the beginning of a cache line the first one is; 0 where that differs from row to row, and
    /// where vectors (half of a panel) are so short that few cross lines.
    extent columns_off_a_line() const {
        if (b_.is_coded()) return 0;
        const auto address = static_cast<extent>(reinterpret_cast<std::uintptr_t>(b_.at(0, 0)));
        const bool is_same_in_all_rows = b_.column_stride == 1 && b_.row_stride * b_.element % line_bytes == 0;
        return is_same_in_all_rows && unit_.columns / 2 * b_.element >= line_bytes / 2
                   ? address % line_bytes / b_.element
                   : 0;
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
