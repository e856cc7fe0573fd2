// SPDX-License-Identifier: MIT
/// \file
/// Checks of kernels' arguments, with messages of one form:
///
///     layer_norm: gain is (128); expected (256)
#pragma once

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Throws shape_error if the view has another shape or is not contiguous.
template <class T, int Rank>
void expect(const char* operation, const char* argument, const view<T, Rank>& v, const shape<Rank>& expected) {
    if (!(v.shape() == expected))
        fail<shape_error>(operation, ": ", argument, " is ", v.shape(), "; expected ", expected);
    detail::expect_contiguous(operation, argument, v);
}

/// Throws shape_error unless an optional view has the expected shape and is contiguous; one without data passes.
template <class T, int Rank>
void expect_optional(const char* operation, const char* argument, const view<T, Rank>& v, const shape<Rank>& expected) {
    if (v.data() != nullptr) expect(operation, argument, v, expected);
}

/// Throws shape_error unless a matrix has the expected shape and whole rows, with any leading dimension.
template <class T>
void expect_rows(const char* operation, const char* argument, const view<T, 2>& v, const shape<2>& expected) {
    if (!(v.shape() == expected))
        fail<shape_error>(operation, ": ", argument, " is ", v.shape(), "; expected ", expected);
    detail::expect_whole_rows(operation, argument, v);
}

/// Throws shape_error unless a matrix that is written to has the expected shape and whole rows, none of which appears
/// twice.
template <class T>
void expect_written_rows(const char* operation, const char* argument, const view<T, 2>& v, const shape<2>& expected) {
    expect_rows(operation, argument, v, expected);
    detail::expect_elements_once(operation, argument, v);
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
