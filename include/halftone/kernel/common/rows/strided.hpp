// SPDX-License-Identifier: MIT
/// \file
/// Rows of a matrix with any leading dimension, such as a padded matrix.
///
///     const strided_rows<const T> rows(a.x);
///     body(rows.from(cut.begin(piece)), cut.rows_of(piece), width);        // there: rows[i] is a pointer to row i
#pragma once

#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class T>
struct strided_rows {
    T* p;
    extent stride;

    strided_rows(T* first, extent row_stride) : p(first), stride(row_stride) {}
    explicit strided_rows(const view<T, 2>& v) : p(v.data()), stride(v.stride_of(0)) {}

    T* operator[](extent row) const { return p + row * stride; }
    strided_rows from(extent row) const { return {p + row * stride, stride}; }
};

/// Calls body(first, count) for the rows of a piece, for bodies that need contiguous rows: once for all of them, or, if
/// the rows are strided, once for each.
template <class Body>
void for_runs(const row_partition& partition, extent piece, bool together, const Body& body) {
    const extent first = partition.begin(piece), count = partition.rows_of(piece);
    if (together) return body(first, count);
    for (extent i = 0; i < count; ++i) body(first + i, 1);
}

/// The second row of a matrix, nullptr if it has only one: the alignment of the first two tells that of all others.
template <class T>
T* second_row(const view<T, 2>& v) {
    return v.extent_of(0) > 1 ? v.data() + v.stride_of(0) : nullptr;
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
