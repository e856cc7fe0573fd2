// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in untyped.hpp that are no templates.
#pragma once

#include <algorithm>

#include <halftone/kernel/matmul/cpu/untyped.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Calls body(column, count, piece, k_stride, column_stride) for up to coded_columns columns at a time of the (k, wide) at (p, j) of
/// a coded b, decoded to the stack, where L1 or L2 has them until they are read.
template <class Body>
void for_decoded(const untyped_b& b, extent p, extent j, extent k, extent wide, const Body& body) {
    alignas(64) std::byte decoded[coded_bytes];
    for (extent column = 0; column < wide; column += coded_columns) {
        const extent count = std::min(coded_columns, wide - column);
        if (b.column_stride == 1) {
            for (extent row = 0; row < k; ++row)
                b.coded.decode(b.coded, p + row, j + column, count, decoded + row * coded_columns * b.element);
            body(column, count, decoded, coded_columns, extent{1});
        } else {
            // An odd number of cache lines from column to column, so that these fall into different sets.
            const extent stride = planning::odd_line_stride(k, b.element);
            for (extent c = 0; c < count; ++c)
                b.coded.decode(b.coded, j + column + c, p, k, decoded + c * stride * b.element);
            body(column, count, decoded, extent{1}, stride);
        }
    }
}

HALFTONE_OUT_OF_LINE void untyped_b::pack_piece(extent p, extent j, extent k, extent wide, extent panel_columns,
                                                std::byte* panels, std::size_t panel_step_bytes) const {
    if (!is_coded()) return pack(at(p, j), row_stride, column_stride, k, wide, panels, panel_step_bytes);
    for_decoded(*this, p, j, k, wide, [&](extent column, extent count, const std::byte* piece, extent k_apart, extent columns_apart) {
        std::byte* const to = panels + static_cast<std::size_t>(column / panel_columns) * panel_step_bytes;
        pack(piece, k_apart, columns_apart, k, count, to, panel_step_bytes);
    });
}

HALFTONE_OUT_OF_LINE void untyped_b::multiply_piece(extent high, extent k, const void* a_rows, extent a_stride, extent p,
                                                    extent j, extent wide, float* c, extent c_stride, bool add) const {
    if (!is_coded())
        return multiply_unpacked(high, k, a_rows, a_stride, at(p, j), row_stride, column_stride, wide, c, c_stride, add);
    for_decoded(*this, p, j, k, wide, [&](extent column, extent count, const std::byte* piece, extent k_apart, extent columns_apart) {
        multiply_unpacked(high, k, a_rows, a_stride, piece, k_apart, columns_apart, count, c + column, c_stride, add);
    });
}

HALFTONE_OUT_OF_LINE strided_lines untyped_b::lines_of(extent p, extent j, extent k, extent wide) const {
    if (is_coded()) return column_stride == 1 ? coded.lines_of(p, k, j, wide) : coded.lines_of(j, wide, p, k);
    if (column_stride == 1) return {at(p, j), k, wide * element, row_stride * element};
    return {at(p, j), wide, k * element, column_stride * element};
}

HALFTONE_OUT_OF_LINE product_problem problem_of(const product_unit& unit, const cpu& device, const untyped_a& a, const untyped_b& b) {
    constexpr extent line = 64;
    const bool begins_on_line = reinterpret_cast<std::uintptr_t>(a.data) % line == 0;
    return {.m = a.rows,
            .n = b.columns,
            .k = a.columns,
            .unit = unit,
            .a = {.is_k_contiguous = a.column_stride == 1,
                  .is_row_contiguous = a.row_stride == 1,
                  .has_unit_type = a.has_unit_type,
                  .begins_rows_on_lines = begins_on_line && a.row_stride * a.element % line == 0,
                  .can_be_k_major = a.pack_k_major != no_function},
            .b = {.is_row_major = b.column_stride == 1,
                  .has_unit_type = b.has_unit_type,
                  .element = static_cast<int>(b.element),
                  .can_be_unpacked = b.multiply_unpacked != no_function},
            .threads = device.threads(),
            .caches = device.caches()};
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
