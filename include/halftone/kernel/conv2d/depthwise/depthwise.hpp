// SPDX-License-Identifier: MIT
/// \file
/// Convolutions whose groups have one channel each, without a matrix: where a device has such kernels, they take the place of
/// products of single rows.
///
///     if (kernel::depthwise<cpu>::takes<Compute, X, W, Y> && p.is_depthwise())
///         kernel::depthwise<cpu>::forward(device, p, x, weight, bias, y);
///
/// Numeric contract: the operands have no more bits than the products' type, so that they are read as they are. Sums in
/// float, tap by tap, a bias first; the weight's gradient: of a row of places in float, of rows and images in double in
/// their order. Each is rounded once.
#pragma once

#include <halftone/kernel/conv2d/lowering/problem.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Specialised for devices that have them: `takes` says of which types, then forward(device, problem, x, weight, bias or
/// nullptr, y), input_gradient(device, problem, weight, dy, dx, mode), weight_gradient(device, problem, x, dy, dweight,
/// mode).
template <class Device>
struct depthwise {
    template <class Compute, class... T>
    static constexpr bool takes = false;
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
