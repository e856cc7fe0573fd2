// SPDX-License-Identifier: MIT
/// \file
/// The operands of one piece of a product on the CPU, as the bodies that multiply them see them (product.hpp).
#pragma once

#include <cstddef>

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A block of a, packed or where it lies. Elements of a row lie side by side, rows `stride` elements apart. Or `k_major`:
/// k_major_rows rows have what they have of one k side by side, k by k, or pairs of k where a unit multiplies pairs; the
/// next rows begin `stride` elements behind these, which have room for up to a multiple of eight k.
struct block_of_a {
    const void* first;
    extent stride;
    bool k_major = false;
};
/// As high as tiles, or a multiple of that.
inline constexpr int k_major_rows = 12;

/// How a block of a lies, as far as tiles ask. Rows a multiple of 4 KiB apart lie in the same cache set, which has no
/// room for twelve.
enum class a_layout { row_major, row_major_aliased, k_major };
inline a_layout a_layout_of(const block_of_a& a, extent element) {
    return a.k_major ? a_layout::k_major : a.stride * element % 4096 == 0 ? a_layout::row_major_aliased : a_layout::row_major;
}
/// Of at most so many rows at once.
constexpr int tile_rows(a_layout how, int most) { return how == a_layout::row_major_aliased && most > 8 ? 8 : most; }

/// A tile's rows of a, a_stride elements apart, of which so many are there, and a panel of b, over several pieces of k:
/// each begins so many bytes behind the one before.
struct deep_operands {
    extent rows;
    const void* a;
    extent a_stride;
    std::size_t a_step_bytes;
    const void* b;
    std::size_t b_step_bytes;
};

/// The largest k of one block, unless a unit likes deeper ones.
inline constexpr extent panel_depth = 256;
/// Elements from row to row of a packed block of a; not a power of two, so that rows fall on different cache sets.
inline constexpr extent panel_stride = panel_depth + 32;
/// So much of k of operands that are split (split.hpp) is summed apart: the pieces of 32 rows and of 32 columns stay in the
/// first-level cache.
inline constexpr extent split_depth = 128;

/// Few rows of a, b where it lies, its rows k_stride apart, and c, up to whole vectors of columns.
template <class A, class T>
struct small_m_product {
    extent rows, k, columns;
    const A* a;
    extent a_stride;
    const T* b;
    extent k_stride;
    float* c;
    extent c_stride;
    bool add;  ///< to c; else what is there does not count

    /// The row for a tile's i-th: the last stands for those that miss.
    extent row_for(int i) const { return i < rows ? i : rows - 1; }
    small_m_product part(extent row, extent high, extent column, extent wide) const {
        return {high, k, wide, a + row * a_stride, a_stride, b + column, k_stride, c + row * c_stride + column, c_stride, add};
    }
};

/// Up to so many rows of a are multiplied by b where it lies, however it does; more where its rows are read on.
inline constexpr extent small_m = 4;

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
