// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in hidden.hpp that are no templates.
#pragma once

#include <halftone/kernel/attention/cpu/hidden.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE void clear_panel_rows(const detail::product_unit& unit, std::byte* panel, extent first, extent last) {
    if (unit.element == 4) {
        if (first < last)
            std::memset(panel + first * unit.columns * 4, 0,
                        static_cast<std::size_t>((last - first) * unit.columns * 4));
        return;
    }
    auto* const pairs = reinterpret_cast<bfloat16*>(panel);
    for (extent k = first; k < last; ++k) {
        for (extent c = 0; c < unit.columns; ++c) pairs[(k / 2 * unit.columns + c) * 2 + k % 2] = bfloat16(0.0f);
    }
}

HALFTONE_OUT_OF_LINE void add_to_column(const detail::product_unit& unit, extent rows, extent depth, const std::byte* a,
                          const std::byte* panel, float* c, extent column) {
    unit_sums sums;
    for (extent i = 0; i < rows; i += unit.rows) {
        const extent high = std::min<extent>(unit.rows, rows - i);
        std::memset(sums.values, 0, sizeof sums.values);
        for (extent r = 0; r < high; ++r) sums.values[r * unit.columns + column] = c[(i + r) * unit.columns + column];
        unit.multiply(high, depth, a + i * detail::panel_stride * unit.element, panel, sums.values, unit.columns, true,
                      nullptr);
        for (extent r = 0; r < high; ++r) c[(i + r) * unit.columns + column] = sums.values[r * unit.columns + column];
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
