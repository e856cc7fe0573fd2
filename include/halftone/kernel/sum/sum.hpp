// SPDX-License-Identifier: MIT
/// \file
/// The sum over all elements of a pointwise function of one or several tensors, times a factor: sums, means, squared
/// errors.
///
///     const auto e = ht::trace<2>([](auto x, auto y) { return ht::square(x - y); });
///     kernel::sum<cpu>::run(device, e, ht::make_pack(x, y), 1.0 / n, out);          // x, y: (n); out: one value
///
/// Numeric contract: the function is evaluated in float, as by a map; pieces of sum_piece elements are summed in float,
/// along at most kernel::sum_depth additions; the pieces, and the factor, in double by a tree that the number of
/// elements fixes; the result is rounded once. Of doubles, or into one: all in double (kernel/common/fp64/each.hpp).
#pragma once

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/map/expression/derivative.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Elements whose sum is one float.
inline constexpr extent sum_piece = 16384;

/// run(device, expression, inputs, factor, out): out = factor times the sum over i of expression(inputs[i]…). Inputs
/// are a pack of contiguous views of rank 1 and one length, out is a view of rank 0. The sum of nothing is 0. Throws
/// shape_error.
///
/// The gradient of input k is a map: factor dout derivative<k>(expression).
template <class Device>
struct sum;

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
