// SPDX-License-Identifier: MIT
/// \file
/// What the steps of optimizers share where a table's gradient is sparse: each row in it is a run of elements of the
/// table.
#pragma once

#include <halftone/kernel/expect.hpp>
#include <halftone/memory/gradient_rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The checks of a step's arguments `a`, whose gradient is that of `rows`. Throws shape_error, argument_error.
template <class Arguments, class Accumulate>
void check_rows(const char* operation, Arguments a, const gradient_rows<Accumulate>& rows) {
    a.gradient = {nullptr, a.master.shape()};
    check(a);
    const extent room = rows.indices.extent_of(0), width = rows.values.extent_of(1);
    expect(operation, "indices", rows.indices, {room});
    expect(operation, "values", rows.values, {room, width});
    if (width < 1 ? a.master.size() != 0 : a.master.size() % width != 0)
        fail<shape_error>(operation, ": a table of ", a.master.size(), " numbers and a gradient of rows of ", width);
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
