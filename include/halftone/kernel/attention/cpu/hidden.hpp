// SPDX-License-Identifier: MIT
/// \file
/// Products over keys or queries of which a mask hides some, where masked operands may hold an infinity or a NaN.
///
/// A masked weight is zero, and zero times a finite number adds nothing; but zero times an infinity or a NaN is NaN. So
/// for tiles with masked elements the packed operands are tested, and if one is not finite, each row of results is
/// computed again with zeros in place of the operands that are masked for it, by the same units and in the same order:
/// the result has the bits that it has with finite operands.
///
/// Numeric contract: masked operands have no effect in any bit (only the sign of a zero may differ); visible ones enter
/// the sums unchanged.
#pragma once

#include <cstring>

#include <halftone/kernel/attention/cpu/tiles.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The sums of a product unit's block, on the stack.
struct unit_sums {
    static constexpr extent most = 32 * 32;
    alignas(64) float values[most];
};

/// Whether rows [first, last) of a panel's k hold an infinity or a NaN.
template <class T>
bool any_not_finite_in_panel(const attention_engine<T>& engine, const std::byte* panel, extent first, extent last) {
    const detail::product_unit& unit = engine.unit;
    // Pairs of k are side by side.
    const extent each = unit.element == 2 ? 2 : 1, from = first / each * each, to = round_up(last, each);
    if (first >= last) return false;
    return engine.any_not_finite(panel + from * unit.columns * unit.element, 1, (to - from) * unit.columns, 0);
}

/// Sets rows [first, last) of a panel's k to zero.
void clear_panel_rows(const detail::product_unit& unit, std::byte* panel, extent first, extent last);

/// c (rows x columns) = or += a times a panel of b over `depth` of k, where row i sees only the k in [first(i),
/// last(i)). a begins with a whole row of a block; `spare` has room for a panel.
template <class First, class Last>
void multiply_seen(const detail::product_unit& unit, extent rows, extent depth, const std::byte* a, const std::byte* panel,
                   float* c, extent c_stride, bool add, std::byte* spare, const First& first, const Last& last) {
    unit_sums sums;
    const auto width = static_cast<std::size_t>(unit.columns) * sizeof(float);
    for (extent i = 0; i < rows; ++i) {
        const extent begin = i / unit.rows * unit.rows, high = std::min<extent>(unit.rows, rows - begin);
        std::memcpy(spare, panel, static_cast<std::size_t>(unit.run(depth) * unit.columns * unit.element));
        clear_panel_rows(unit, spare, 0, std::min(first(i), depth));
        clear_panel_rows(unit, spare, std::max<extent>(0, last(i)), depth);
        std::memset(sums.values, 0, sizeof sums.values);
        float* const mine = sums.values + (i - begin) * unit.columns;
        if (add) std::memcpy(mine, c + i * c_stride, width);
        unit.multiply(high, depth, a + begin * detail::panel_stride * unit.element, spare, sums.values, unit.columns, add,
                      nullptr);
        std::memcpy(c + i * c_stride, mine, width);
    }
}

/// c (rows x columns) = or += a times a panel of b over `depth` of k, where row i sees the k for which sees(i, k)
/// holds, in any order.
template <class Sees>
void multiply_where_seen(const detail::product_unit& unit, extent rows, extent depth, const std::byte* a,
                         const std::byte* panel, float* c, extent c_stride, bool add, std::byte* spare, const Sees& sees) {
    unit_sums sums;
    const auto width = static_cast<std::size_t>(unit.columns) * sizeof(float);
    for (extent i = 0; i < rows; ++i) {
        const extent begin = i / unit.rows * unit.rows, high = std::min<extent>(unit.rows, rows - begin);
        std::memcpy(spare, panel, static_cast<std::size_t>(unit.run(depth) * unit.columns * unit.element));
        for (extent k = 0; k < unit.run(depth); ++k) {
            if (k >= depth || !sees(i, k)) clear_panel_rows(unit, spare, k, k + 1);
        }
        std::memset(sums.values, 0, sizeof sums.values);
        float* const mine = sums.values + (i - begin) * unit.columns;
        if (add) std::memcpy(mine, c + i * c_stride, width);
        unit.multiply(high, unit.run(depth), a + begin * detail::panel_stride * unit.element, spare, sums.values,
                      unit.columns, add, nullptr);
        std::memcpy(c + i * c_stride, mine, width);
    }
}

/// Column `column` of c (rows x columns) += a times a panel of b over `depth` of k.
void add_to_column(const detail::product_unit& unit, extent rows, extent depth, const std::byte* a,
                   const std::byte* panel, float* c, extent column);

/// c (rows x columns) += a times a panel of b over `depth` of k, where column i sees the k below last(i) alone, which no
/// later column falls short of. a's hidden elements become zeros.
template <class Last>
void multiply_seen_by_columns(const detail::product_unit& unit, extent rows, extent depth, std::byte* a, const std::byte* panel,
                              float* c, const Last& last) {
    unit_sums sums;
    extent cleared = depth;
    for (extent column = unit.columns - 1; column >= 0; --column) {
        const extent seen = std::clamp<extent>(last(column), 0, depth);
        const auto bytes = static_cast<std::size_t>((cleared - seen) * unit.element);
        for (extent i = 0; i < rows; ++i) std::memset(a + (i * detail::panel_stride + seen) * unit.element, 0, bytes);
        cleared = seen;
        for (extent i = 0; i < rows; i += unit.rows) {
            const extent high = std::min<extent>(unit.rows, rows - i);
            std::memset(sums.values, 0, sizeof sums.values);
            for (extent r = 0; r < high; ++r)
                sums.values[r * unit.columns + column] = c[(i + r) * unit.columns + column];
            unit.multiply(high, depth, a + i * detail::panel_stride * unit.element, panel, sums.values, unit.columns, true,
                          nullptr);
            for (extent r = 0; r < high; ++r)
                c[(i + r) * unit.columns + column] = sums.values[r * unit.columns + column];
        }
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/attention/cpu/hidden.body.hpp>
#endif
