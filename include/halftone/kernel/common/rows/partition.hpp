// SPDX-License-Identifier: MIT
/// \file
/// How rows are partitioned into pieces for threads.
///
///     const kernel::row_partition cut = kernel::partition_rows(rows, width);
///     device.parallel_for(cut.count, [&](extent piece) { body(cut.begin(piece), cut.rows_of(piece)); });
///
/// Numeric contract: a partition depends on the shape alone, so that no sum over pieces depends on the number of
/// threads. A term of a row's sum passes through at most `sum_depth(width)` additions in float.
#pragma once

#include <halftone/number/integer.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// `rows` in pieces of `each`; the last piece may be smaller.
struct row_partition {
    extent rows, each, count;

    HALFTONE_HD constexpr extent begin(extent piece) const { return piece * each; }
    HALFTONE_HD constexpr extent rows_of(extent piece) const {
        return each < rows - begin(piece) ? each : rows - begin(piece);
    }
};

/// Elements in a piece: some microseconds of work, much more than the overhead of distributing a piece.
inline constexpr extent piece_elements = 16384;

constexpr row_partition partition_rows(extent rows, extent width, extent elements = piece_elements) {
    const extent fitting = elements / (width < 1 ? 1 : width);
    const extent each = fitting < 1 ? 1 : fitting;
    return {rows, each, detail::ceil_div(rows, each)};
}

/// Elements in a piece of a pass without sums: larger pieces if there are enough for all threads, since long contiguous
/// runs of memory are read faster.
constexpr extent longer_piece(extent elements) {
    return elements >= 1024 * piece_elements ? 8 * piece_elements : piece_elements;
}

/// The partition for sums over rows, with one partial sum per piece: few pieces, each with enough rows that writing its
/// partial sum costs little compared with reading the rows.
constexpr row_partition partition_rows_for_sums(extent rows, extent width) {
    constexpr extent most_pieces = 64, least_rows = 16;
    extent each = partition_rows(rows, width).each;
    if (each < least_rows) each = least_rows;
    if (each < detail::ceil_div(rows, most_pieces)) each = detail::ceil_div(rows, most_pieces);
    return {rows, each, detail::ceil_div(rows, each)};
}

/// The largest number of additions that a term of a sum over `width` elements passes through: a chain in each lane of
/// four vectors, then the row's remainder, the four vectors, and the lanes.
constexpr extent sum_depth(extent width) { return width / 16 + 9; }

/// Distance between partial sums, in floats: whole cache lines, so that no two threads write to one line.
constexpr extent partial_stride(extent width) { return round_up(width, 16); }

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
