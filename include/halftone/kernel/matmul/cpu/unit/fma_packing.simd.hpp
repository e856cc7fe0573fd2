// SPDX-License-Identifier: MIT
/// \file
/// Packing into floats, for products by multiply-add (fma.simd.hpp).
///
///     a block:  (rows, k), block_stride floats from row to row
///     b panel:  (k, fma_columns)
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstddef>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/policy/promotion.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Columns of a panel.
inline constexpr int fma_columns = 2 * f32::lanes;

/// n values of `from`, rounded to Compute where that holds less than T.
template <class Compute, class T>
HALFTONE_INLINE f32 load_as(const T* from, int n) {
    const f32 x = n == f32::lanes ? load(from) : load(from, n);
    if constexpr (contains<Compute, T>) {
        return x;
    } else {
        return round_as<Compute>(x);
    }
}

/// The first n of a vector's values, else zeros; n may be negative or larger than the vector.
template <class Compute, class T>
HALFTONE_INLINE f32 load_first_as(const T* from, extent n) {
    if (n <= 0) return splat(0.0f);
    return load_as<Compute>(from, static_cast<int>(n < f32::lanes ? n : f32::lanes));
}

/// to (rows, width) = from, both row-major; rows of `to` are padded with zeros to whole vectors.
template <class Compute, class T>
void copy_rows(const T* from, extent from_stride, float* to, extent to_stride, extent rows, extent width) {
    for (extent i = 0; i < rows; ++i) {
        for (extent j = 0; j < width; j += f32::lanes) {
            const int n = static_cast<int>(width - j < f32::lanes ? width - j : f32::lanes);
            store(to + i * to_stride + j, load_as<Compute>(from + i * from_stride + j, n));
        }
    }
}

/// to (width, rows) = the transpose of from (rows, width), both row-major; rows of `to` are padded to whole vectors.
template <class Compute, class T>
void copy_transposed(const T* from, extent from_stride, float* to, extent to_stride, extent rows, extent width) {
    for (extent i = 0; i < rows; i += f32::lanes) {
        const extent high = rows - i < f32::lanes ? rows - i : f32::lanes;
        for (extent j = 0; j < width; j += f32::lanes) {
            const extent wide = width - j < f32::lanes ? width - j : f32::lanes;
            f32 square[f32::lanes];  // (rows, width), transposed to (width, rows)
            for (extent r = 0; r < f32::lanes; ++r) {
                square[r] =
                    r < high ? load_as<Compute>(from + (i + r) * from_stride + j, static_cast<int>(wide)) : splat(0.0f);
            }
            transpose(square);
            for (extent r = 0; r < wide; ++r) store(to + (j + r) * to_stride + i, square[r]);
        }
    }
}

/// Packs a (rows, k) into rows block_stride apart. The other strides are a's, in elements; one of them is 1.
template <class Compute, class T>
void pack_a(const void* source, extent row_stride, extent k_stride, extent rows, extent k, void* block,
            extent block_stride) {
    const auto* from = static_cast<const T*>(source);
    auto* to = static_cast<float*>(block);
    if (k_stride == 1) return copy_rows<Compute>(from, row_stride, to, block_stride, rows, k);
    copy_transposed<Compute>(from, k_stride, to, block_stride, k, rows);
}

/// Packs b (k, columns) into panels (k, fma_columns) that begin panel_step_bytes apart; missing columns of the last one are
/// zeros. One of the strides is 1.
template <class Compute, class T>
void pack_b(const void* source, extent k_stride, extent column_stride, extent k, extent columns, void* panels,
            std::size_t panel_step_bytes) {
    const auto* from = static_cast<const T*>(source);
    auto* to = static_cast<float*>(panels);
    const auto panel_step = static_cast<extent>(panel_step_bytes / sizeof(float));
    if (column_stride == 1) {
        // Each row through all panels: long runs come fastest from memory.
        for (extent p = 0; p < k; ++p, from += k_stride) {
            float* row = to + p * fma_columns;
            for (extent j = 0; j < columns; j += fma_columns, row += panel_step) {
                store(row, load_first_as<Compute>(from + j, columns - j));
                store(row + f32::lanes, load_first_as<Compute>(from + j + f32::lanes, columns - j - f32::lanes));
            }
        }
        return;
    }
    for (extent j = 0; j < columns; j += fma_columns, from += fma_columns * column_stride, to += panel_step) {
        const extent wide = columns - j < fma_columns ? columns - j : fma_columns;
        if (wide < fma_columns) {
            for (extent p = 0; p < k * fma_columns; p += f32::lanes) store(to + p, splat(0.0f));
        }
        copy_transposed<Compute>(from, column_stride, to, fma_columns, wide, k);
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
