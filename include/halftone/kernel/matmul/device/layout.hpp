// SPDX-License-Identifier: MIT
/// \file
/// How the operands and results of a product lie in a GPU's memory: what plan.hpp looks at, and kernels are launched with.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// How rows of a matrix can be accessed: in chunks of 16 bytes, or element by element.
enum class row_access { chunks, elements };

constexpr row_access operator&(row_access a, row_access b) { return a == b ? a : row_access::elements; }

/// The contiguous axis: depth, which is summed over, or the outer axis, the rows of a or the columns of b.
enum class along { depth, outer };

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
