// SPDX-License-Identifier: MIT
/// \file
/// Root mean square normalisation (Zhang and Sennrich 2019): every row to mean square 1, then a gain per column.
///
///     kernel::rms_norm<cpu>::forward<bfloat16, float, bfloat16>(
///         device, {.x = x, .gain = gain, .y = y, .rstd = rstd, .epsilon = 1e-6f});
///
/// Numeric contract: the mean square in float; y is rounded once, after the gain. A row whose squares leave float's range is
/// taken in double (care/limits.hpp). The backward pass works in float from the saved rstd, which is rounded to float; dx is
/// rounded once; the sum over rows that gives dgain follows a tree fixed by the shape. Of doubles: all in double
/// (kernel/common/fp64/each.hpp), rows whose squares leave its range by a power of two. Rows may lie apart.
#pragma once

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/norm/norm.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class X, class W, class Y>
struct rms_norm_forward {
    const_view<X, 2> x;     ///< (rows, width)
    const_view<W, 1> gain;  ///< (width)
    view<Y, 2> y;           ///< (rows, width)
    view<statistic<X, W, Y>, 1> rstd{};  ///< (rows), 1 / sqrt(mean square + epsilon), or none: not wanted
    statistic<X, W, Y> epsilon = 1e-6f;
};

template <class X, class W, class Y, class G>
struct rms_norm_backward {
    const_view<X, 2> x;         ///< (rows, width)
    const_view<W, 1> gain;      ///< (width)
    const_view<Y, 2> dy;        ///< (rows, width)
    const_view<statistic<X, W, Y>, 1> rstd;  ///< (rows), as the forward pass left it
    view<X, 2> dx;              ///< (rows, width); may be dy where the types agree
    view<G, 1> dgain{};         ///< (width), or none: frozen
    write_mode dx_mode = write_mode::overwrite;
    write_mode parameter_mode = write_mode::add;
};

template <class X, class W, class Y>
void check(const rms_norm_forward<X, W, Y>& a) {
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    expect_rows("rms_norm", "x", a.x, a.x.shape());
    expect("rms_norm", "gain", a.gain, {width});
    expect_rows("rms_norm", "y", a.y, a.x.shape());
    expect_optional("rms_norm", "rstd", a.rstd, {rows});
    if (!(a.epsilon >= 0)) fail<argument_error>("rms_norm: epsilon is ", a.epsilon, "; expected 0 or more");
}

template <class X, class W, class Y, class G>
void check(const rms_norm_backward<X, W, Y, G>& a) {
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    expect_rows("rms_norm backward", "x", a.x, a.x.shape());
    expect("rms_norm backward", "gain", a.gain, {width});
    expect_rows("rms_norm backward", "dy", a.dy, a.x.shape());
    expect("rms_norm backward", "rstd", a.rstd, {rows});
    expect_rows("rms_norm backward", "dx", a.dx, a.x.shape());
    expect_optional("rms_norm backward", "dgain", a.dgain, {width});
}

/// forward and backward of one device. Throw shape_error, and argument_error for an epsilon that is negative or NaN.
template <class Device>
struct rms_norm {
    template <class X, class W, class Y>
    static void forward(Device& device, const rms_norm_forward<X, W, Y>& a) {
        check(a);
        norm<Device>::forward(device, a);
    }
    template <class X, class W, class Y, class G>
    static void backward(Device& device, const rms_norm_backward<X, W, Y, G>& a) {
        check(a);
        norm<Device>::backward(device, a);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
