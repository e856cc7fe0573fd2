// SPDX-License-Identifier: MIT
/// \file
/// How the operands and results of a product lie in a GPU's memory: what plan.hpp looks at, and kernels are launched with.
#pragma once

#include <halftone/config.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// How rows of a matrix can be accessed: in chunks of 16 bytes, or element by element.
enum class row_access { chunks, elements };

constexpr row_access operator&(row_access a, row_access b) { return a == b ? a : row_access::elements; }

/// The contiguous axis: depth, which is summed over, or the outer axis, the rows of a or the columns of b.
enum class along { depth, outer };

/// The contiguous lines of a matrix (outer, depth).
struct operand_lines {
    along axis;
    extent leading;  ///< from one line to the next, in elements; 0 if there is one alone
};
/// At least one of the strides is 1. Of a single row or column both axes are contiguous: depth, unless it is 1.
constexpr operand_lines lines_of(const shape<2>& extents, const shape<2>& strides) {
    const bool along_outer = strides[0] == 1 && (strides[1] != 1 || extents[1] == 1);
    const extent lines = extents[along_outer ? 1 : 0], leading = strides[along_outer ? 1 : 0];
    return {along_outer ? along::outer : along::depth, lines <= 1 ? 0 : leading};
}
/// How lines are read that are this many bytes apart, the first of which begins at a multiple of 16 bytes or does not.
constexpr row_access access_of(extent leading_bytes, bool first_is_chunk) {
    return leading_bytes % 16 == 0 && first_is_chunk ? row_access::chunks : row_access::elements;
}

/// Whether all matrices of a batch are aligned as the first one is, of which this is the leading dimension.
constexpr bool are_alike(extent leading_bytes, extent apart_bytes) {
    return apart_bytes % 16 == 0 || leading_bytes % 16 != 0;
}

/// Rows that are no multiples of 16 bytes apart are divided into 8 sets, in each of which they are (row_maps.hpp).
inline constexpr int most_row_sets = 8;

/// How the results of a product by warpgroups are stored.
struct result_storing {
    bool in_bulk = false;  ///< by bulk copies
    int sets = 1;          ///< of rows (row_maps.hpp)
    int most_offset = 0;   ///< of a set's rows in its map
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
