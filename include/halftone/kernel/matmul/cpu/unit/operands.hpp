// SPDX-License-Identifier: MIT
/// \file
/// The operands of one piece of a product on the CPU, as the bodies that multiply them see them (unit.hpp).
#pragma once

#include <cstddef>

#include <halftone/kernel/matmul/cpu/tuning.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A block of a, packed or in place, in one of two layouts.
///
///     row-major   (rows, k): rows are `stride` elements apart
///     k-major     (rows / k_major_rows, k, k_major_rows): groups of k_major_rows rows, each with what they have of one k
///                 side by side (of a pair of k, where a unit multiplies pairs). Groups are `stride` elements apart and
///                 have room for k up to a multiple of eight.
struct block_of_a {
    const void* first;
    extent stride;
    bool k_major = false;
};

/// The layout of a block as tiles are compiled for it. Rows a multiple of 4 KiB apart fall into one cache set of L1, which
/// holds eight lines (twelve on some processors), not the twelve rows of a tile: tiles of eight rows read them.
enum class a_layout { row_major, row_major_aliased, k_major };
inline a_layout a_layout_of(const block_of_a& a, extent element) {
    return a.k_major ? a_layout::k_major : a.stride * element % 4096 == 0 ? a_layout::row_major_aliased : a_layout::row_major;
}
/// Rows of a tile of that layout, at most `most`.
constexpr int tile_rows(a_layout layout, int most) { return layout == a_layout::row_major_aliased && most > 8 ? 8 : most; }

/// A tile's rows of a, of which `rows` exist, and a panel of b, over several pieces of k: each piece begins so many bytes
/// behind the one before.
struct deep_operands {
    extent rows;
    const void* a;
    extent a_stride;
    std::size_t a_step_bytes;
    const void* b;
    std::size_t b_step_bytes;
};

/// Few rows of a (rows, k), unpacked b (k, columns), and c (rows, columns), which has room for whole vectors of columns.
template <class A, class T>
struct small_m_product {
    extent rows, k, columns;
    const A* a;
    extent a_stride;
    const T* b;
    extent k_stride;
    float* c;
    extent c_stride;
    bool add;  ///< to c; else c is overwritten

    /// The row of a that a tile's row i reads: where a tile has more rows than a, the last one again.
    extent row_for(int i) const { return i < rows ? i : rows - 1; }
    small_m_product part(extent row, extent high, extent column, extent wide) const {
        return {high, k, wide, a + row * a_stride, a_stride, b + column, k_stride, c + row * c_stride + column, c_stride, add};
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
