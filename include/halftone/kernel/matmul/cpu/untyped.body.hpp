// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in untyped.hpp that are no templates.
#pragma once

#include <algorithm>

#include <halftone/kernel/matmul/cpu/untyped.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A part of a coded b that is decoded: (k, wide) at row `depth` and column `column` of what was asked for.
struct decoded_piece {
    extent depth, column, k, wide;
    const std::byte* data;
    extent k_stride, column_stride;
};
/// Calls body(piece) for all pieces of the (k, wide) at (p, j) of a coded b; each is decoded to the stack, where L1 or L2 has
/// it until it is read.
template <class Body>
void for_decoded(const untyped_b& b, extent p, extent j, extent k, extent wide, const Body& body) {
    alignas(64) std::byte decoded[coded_bytes];
    if (b.column_stride == 1) {
        const extent width = b.element == 2 ? coded_columns_of_two_bytes : coded_columns;
        for (extent column = 0; column < wide; column += width) {
            const extent count = std::min(width, wide - column);
            for (extent depth = 0; depth < k; depth += panel_depth) {
                const extent high = std::min(panel_depth, k - depth);
                b.coded.decode(b.coded, p + depth, high, j + column, count, decoded, width);
                body(decoded_piece{depth, column, high, count, decoded, width, 1});
            }
        }
        return;
    }
    // An odd number of cache lines from column to column, so that these fall into different sets.
    const extent stride = planning::odd_line_stride(k, b.element);
    for (extent column = 0; column < wide; column += coded_columns) {
        const extent count = std::min(coded_columns, wide - column);
        b.coded.decode(b.coded, j + column, count, p, k, decoded, stride);
        body(decoded_piece{0, column, k, count, decoded, 1, stride});
    }
}

HALFTONE_OUT_OF_LINE void untyped_b::pack_piece(extent p, extent j, extent k, extent wide, const product_unit& unit,
                                                std::byte* panels, std::size_t panel_step_bytes) const {
    if (!is_coded()) return pack(at(p, j), row_stride, column_stride, k, wide, panels, panel_step_bytes);
    for_decoded(*this, p, j, k, wide, [&](const decoded_piece& piece) {
        std::byte* const to = panels + static_cast<std::size_t>(piece.column / unit.columns) * panel_step_bytes +
                              unit.panel_bytes(piece.depth);
        pack(piece.data, piece.k_stride, piece.column_stride, piece.k, piece.wide, to, panel_step_bytes);
    });
}

HALFTONE_OUT_OF_LINE void untyped_b::multiply_piece(extent high, extent k, const std::byte* a_rows, extent a_stride,
                                                    extent p, extent j, extent wide, const product_unit& unit, float* c,
                                                    extent c_stride, bool add) const {
    if (!is_coded())
        return multiply_unpacked(high, k, a_rows, a_stride, at(p, j), row_stride, column_stride, wide, c, c_stride,
                                 add);
    if (coded.multiply_few != no_function && column_stride != 1) {
        constexpr extent sixteen = 16;
        const extent columns = wide / sixteen * sixteen;
        for (extent i = 0; i < high && !add; ++i) std::fill_n(c + i * c_stride, columns, 0.0f);
        coded.multiply_few(
            {coded, high, k, j, p, columns, reinterpret_cast<const float*>(a_rows), a_stride, c, c_stride});
        j += columns, wide -= columns, c += columns;
    }
    for_decoded(*this, p, j, k, wide, [&](const decoded_piece& piece) {
        multiply_unpacked(high, piece.k, a_rows + piece.depth * unit.element, a_stride, piece.data, piece.k_stride,
                          piece.column_stride, piece.wide, c + piece.column, c_stride, add || piece.depth > 0);
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
