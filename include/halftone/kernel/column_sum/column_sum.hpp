// SPDX-License-Identifier: MIT
/// \file
/// Sums down the columns of a matrix: the gradient of a bias.
///
///     ht::column_sum(device, dy, dbias, ht::write_mode::add);
///
/// Numeric contract: sums in float, by a tree that depends on the shape alone; rounded once to the element type of
/// `out`.
#pragma once

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// run(device, x, out, mode): out[j] = (or +=) the sum over i of x[i][j]; x is (rows, width) with any leading
/// dimension, out is (width). Throws shape_error.
template <class Device>
struct column_sum;

}  // namespace kernel

/// out[j] = (or += by `mode`) the sum over i of x[i][j]: the gradient of a bias. x: (rows, width), with any leading
/// dimension; out: (width). It takes no policy, since sums are in float under every policy, and in double if a view
/// holds doubles. Throws shape_error.
template <class Device, class X, class Out>
    requires(detail::kernel_device<Device> && detail::viewables<X, Out>)
void column_sum(Device& device, const X& x, const Out& out, write_mode mode = write_mode::overwrite) {
    static_assert(detail::check_ranks<2, X>() && detail::check_ranks<1, Out>());
    detail::expect_apart(device, "column_sum", "x", x, "out", out);
    kernel::column_sum<Device>::run(device, as_view(x), as_view(out), mode);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
