// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in untyped.hpp that are no templates.
#pragma once

#include <halftone/kernel/matmul/cpu/untyped.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

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
