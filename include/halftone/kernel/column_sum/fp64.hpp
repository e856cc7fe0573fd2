// SPDX-License-Identifier: MIT
/// \file
/// Column sums in double: column_sum.hpp has the rules, common/fp64/each.hpp the contract.
#pragma once

#include <halftone/kernel/column_sum/column_sum.hpp>
#include <halftone/kernel/common/fp64/each.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

template <class Device, class X, class Y>
void sum_columns(Device& device, const view<X, 2>& x, const view<Y, 1>& out, write_mode mode) {
    expect_rows("column_sum", "x", x, x.shape());
    expect("column_sum", "out", out, {x.extent_of(1)});
    sum_rows(device, x.extent_of(0), x.extent_of(1), 1, element_term<X>{rows_of<X>(x)}, 1.0, out.data(), mode);
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
