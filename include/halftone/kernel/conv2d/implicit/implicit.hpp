// SPDX-License-Identifier: MIT
/// \file
/// Convolutions as matrix products whose second operand is never stored: on a device that has such kernels, each thread
/// unfolds the few columns that it multiplies next. The input's gradient of a convolution with stride 1 is a convolution,
/// too: of dy, by the weight with its taps in reverse order, and outputs and channels exchanged.
///
///     if (detail::takes_implicit<Device, Compute, Y, X, W>(device, p)) kernel::implicit_conv2d<Device>::forward(...);
///
/// Numeric contract: that of conv2d.hpp, and the input's gradient is one sum in float over outputs and taps.
#pragma once

#include <halftone/kernel/conv2d/lowering/problem.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Specialised for devices that have such kernels: `takes` is true for the types that they support, takes_problem(device,
/// problem) for what they are faster for; forward<Compute>(device, problem, x, weight, epilogue, y), where `epilogue` is one
/// of matmul/epilogue.hpp.
template <class Device>
struct implicit_conv2d {
    template <class Compute, class... T>
    static constexpr bool takes = false;
};

}  // namespace kernel

namespace detail {

/// The convolution of dy that gives the gradient of its input, of a problem with stride 1.
inline conv2d_problem reversed(const conv2d_problem& p) {
    const auto axis = [](const kernel::window_axis& of) {
        const extent span = (of.taps - 1) * of.dilation;
        return kernel::window_axis{of.positions, of.taps, of.size, 1, span - of.padding, of.dilation};
    };
    return {p.images, p.outputs, p.channels, p.groups, {axis(p.window.down), axis(p.window.across)}};
}
/// Whether there is one.
inline bool is_reversible(const conv2d_problem& p) {
    const auto fits = [](const kernel::window_axis& of) {
        return of.stride == 1 && of.padding <= (of.taps - 1) * of.dilation;
    };
    return fits(p.window.down) && fits(p.window.across);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
