// SPDX-License-Identifier: MIT
/// \file
/// Convolutions whose groups have one channel each, computed without a matrix. On a device that has such kernels, they
/// replace products of single rows.
///
///     if (plan.best().family == conv2d_family::depthwise)
///         kernel::depthwise<cpu>::forward(device, p, x, weight, bias, y);
///
/// Numeric contract: the operands have no more bits than the products' type, so that they are read without rounding.
/// Sums are in float, beginning with the bias, tap by tap. The weight's gradient is summed in float within a row of
/// output positions, and over rows and images in double, in their order. Each result is rounded once.
#pragma once

#include <halftone/kernel/conv2d/lowering/problem.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Specialised for devices that have such kernels: `takes` is true for the types that they support; forward(device,
/// problem, x, weight, bias or nullptr, y), input_gradient(device, problem, weight, dy, dx, mode),
/// weight_gradient(device, problem, x, dy, dweight, mode).
template <class Device>
struct depthwise {
    template <class Compute, class... T>
    static constexpr bool takes = false;
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
