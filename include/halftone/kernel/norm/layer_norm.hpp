// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation (Ba, Kiros, Hinton 2016): every row to mean 0 and variance 1, then a gain and a bias per column.
///
///     kernel::layer_norm<cpu>::forward<bfloat16, float, bfloat16>(
///         device, {.x = x, .gain = gain, .bias = bias, .y = y, .mean = mean, .rstd = rstd, .epsilon = 1e-5f});
///
/// Numeric contract: mean, then variance around it (divided by the width), in two passes and in float; y is rounded
/// once. A row whose mean that could put off by more than a 64th of its deviation, and one whose squares leave float's range,
/// is taken in double: a constant row gives exactly the bias, {1, 2, 3, 4} times 1e30 what {1, 2, 3, 4} gives without epsilon
/// (care/limits.hpp). The backward pass works in float from the saved mean and rstd, which are rounded to float; dx is rounded
/// once; the sums over rows that give dgain and dbias follow a tree fixed by the shape. Of doubles: all in double
/// (kernel/common/fp64/each.hpp), rows that need care by a power of two and a corrected mean. Rows may lie apart.
#pragma once

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/norm/norm.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class X, class W, class Y>
struct layer_norm_forward {
    const_view<X, 2> x;       ///< (rows, width)
    const_view<W, 1> gain;    ///< (width)
    const_view<W, 1> bias{};  ///< (width), or none
    view<Y, 2> y;             ///< (rows, width)
    view<statistic<X, W, Y>, 1> mean{};    ///< (rows), or none: not wanted
    view<statistic<X, W, Y>, 1> rstd{};    ///< (rows), 1 / sqrt(variance + epsilon), or none
    statistic<X, W, Y> epsilon = 1e-5f;
};

template <class X, class W, class Y, class G>
struct layer_norm_backward {
    const_view<X, 2> x;         ///< (rows, width)
    const_view<W, 1> gain;      ///< (width)
    const_view<Y, 2> dy;        ///< (rows, width)
    const_view<statistic<X, W, Y>, 1> mean;  ///< (rows), as the forward pass left it
    const_view<statistic<X, W, Y>, 1> rstd;  ///< (rows)
    view<X, 2> dx;              ///< (rows, width); may be dy where the types agree
    view<G, 1> dgain{};         ///< (width), or none: frozen
    view<G, 1> dbias{};         ///< (width), or none
    write_mode dx_mode = write_mode::overwrite;
    write_mode parameter_mode = write_mode::add;
};

template <class X, class W, class Y>
void check(const layer_norm_forward<X, W, Y>& a) {
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    expect_rows("layer_norm", "x", a.x, a.x.shape());
    expect("layer_norm", "gain", a.gain, {width});
    expect_optional("layer_norm", "bias", a.bias, {width});
    expect_rows("layer_norm", "y", a.y, a.x.shape());
    expect_optional("layer_norm", "mean", a.mean, {rows});
    expect_optional("layer_norm", "rstd", a.rstd, {rows});
    if (!(a.epsilon >= 0)) fail<argument_error>("layer_norm: epsilon is ", a.epsilon, "; expected 0 or more");
}

template <class X, class W, class Y, class G>
void check(const layer_norm_backward<X, W, Y, G>& a) {
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    expect_rows("layer_norm backward", "x", a.x, a.x.shape());
    expect("layer_norm backward", "gain", a.gain, {width});
    expect_rows("layer_norm backward", "dy", a.dy, a.x.shape());
    expect("layer_norm backward", "mean", a.mean, {rows});
    expect("layer_norm backward", "rstd", a.rstd, {rows});
    expect_rows("layer_norm backward", "dx", a.dx, a.x.shape());
    expect_optional("layer_norm backward", "dgain", a.dgain, {width});
    expect_optional("layer_norm backward", "dbias", a.dbias, {width});
}

/// forward and backward of one device. Throw shape_error, and argument_error for an epsilon that is negative or NaN.
template <class Device>
struct layer_norm {
    template <class X, class W, class Y>
    static void forward(Device& device, const layer_norm_forward<X, W, Y>& a) {
        check(a);
        norm<Device>::forward(device, a);
    }
    template <class X, class W, class Y, class G>
    static void backward(Device& device, const layer_norm_backward<X, W, Y, G>& a) {
        check(a);
        norm<Device>::backward(device, a);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
