// SPDX-License-Identifier: MIT
/// \file
/// Sums down the columns of a matrix: the gradient of a bias.
///
///     kernel::column_sum<cpu>::run(device, dy, dbias, ht::write_mode::add);
///
/// Numeric contract: in float, by a tree that the shape fixes; rounded once to the element type of the sums.
#pragma once

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// run(device, x, out, mode): out[j] = (or +=) the sum over i of x[i][j]; x is (rows, width), and its rows may lie
/// apart, out is (width). Throws shape_error.
template <class Device>
struct column_sum;

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
