// SPDX-License-Identifier: MIT
/// \file
/// Convolutions as matrix products whose second operand is never stored: on a device that has such kernels, each thread
/// unfolds the few columns that it multiplies next. The input's gradient is such a sum, too: of dy, by the weight with its taps
/// in reverse order, and outputs and channels exchanged. With stride s, the s x s sets of elements of the input whose rows and
/// columns leave the same remainders are sums of their own, over the taps that see them.
///
///     if (plan.best().family == conv2d_family::implicit) kernel::implicit_conv2d<Device>::forward<Compute>(device, p, ...);
///
/// The weight's gradient is a product whose first operand is never stored.
///
/// Numeric contract: that of conv2d.hpp; the input's gradient is one sum in float over outputs and taps, the weight's gradient one
/// over the positions of all images. No result depends on the number of threads.
#pragma once

#include <halftone/kernel/conv2d/lowering/problem.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Specialised for devices that have such kernels: `takes` is true for the types that they support, takes_problem(device,
/// problem) for what they are faster for; forward<Compute>(device, problem, x, weight, epilogue, y) and
/// input_gradient<Compute>(device, problem, dy, weight, epilogue, dx), where epilogue(group) is one of matmul/epilogue.hpp;
/// weight_gradient<Compute>(device, problem, x, dy, epilogue, dweight).
template <class Device>
struct implicit_conv2d {
    template <class Compute, class... T>
    static constexpr bool takes = false;
};

}  // namespace kernel

}  // namespace HALFTONE_ABI
}  // namespace halftone
