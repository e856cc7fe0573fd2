// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in matmul.hpp that are no templates.
#pragma once

#include <halftone/kernel/matmul/matmul.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE void check_matmul_operand(const char* which, const untyped_matrix& v) {
    if (v.stride_of(0) != 1 && v.stride_of(1) != 1 && v.size() > 1) {
        fail<shape_error>("matmul: neither axis of ", which, " ", v.shape(), " is contiguous; its strides are ",
                          v.strides());
    }
}

HALFTONE_OUT_OF_LINE void check_matmul_shapes(const untyped_matrix& a, const untyped_matrix& b, const untyped_matrix& c) {
    if (a.extent_of(1) != b.extent_of(0)) {
        fail<shape_error>("matmul: the inner extents differ: a is ", a.shape(), ", b is ", b.shape(), "; b needs ",
                          a.extent_of(1), " rows");
    }
    const shape<2> expected{a.extent_of(0), b.extent_of(1)};
    if (!(c.shape() == expected))
        fail<shape_error>("matmul: c is ", c.shape(), "; ", a.shape(), " times ", b.shape(), " gives ", expected);
    check_matmul_operand("a", a);
    check_matmul_operand("b", b);
    detail::expect_whole_rows("matmul", "c", c);
    detail::expect_elements_once("matmul", "c", c);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
