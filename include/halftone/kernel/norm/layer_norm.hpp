// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation (Ba, Kiros, Hinton 2016): normalises every row to mean 0 and variance 1, then applies a gain and
/// a bias a column.
///
///     kernel::layer_norm<cpu>::forward<bfloat16, float, bfloat16>(
///         device, {.x = x, .gain = gain, .bias = bias, .y = y, .mean = mean, .rstd = rstd, .epsilon = 1e-5f});
///
/// Numeric contract: the mean, then the variance around it (divided by the width), in two passes in float; y is rounded
/// once. Rows in which the rounding of the mean could exceed a 64th of the deviation, and rows whose squares overflow
/// or underflow float, are computed in double: a constant row gives exactly the bias, and {1, 2, 3, 4} times 1e30 gives
/// what {1, 2, 3, 4} gives without epsilon (care/limits.hpp). The backward pass computes in float from the saved mean
/// and rstd, which are rounded to float, so that its normalised x is off by up to 2^-24 |mean| rstd, by 0.05 at a mean
/// of 1e4 and a deviation of 0.011 (batch norm's is not: kernel/channel_norm); dx is rounded once; the sums over rows,
/// dgain and dbias, have a tree that depends on the shape. Doubles are computed in double throughout
/// (kernel/common/fp64/each.hpp), rows that need care with a power of two and a corrected mean. Any leading dimension.
#pragma once

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/norm/norm.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class X, class W, class Y>
struct layer_norm_forward {
    const_view<X, 2> x;       ///< (rows, width)
    const_view<W, 1> gain;    ///< (width)
    const_view<W, 1> bias{};  ///< (width), or without data
    view<Y, 2> y;             ///< (rows, width)
    view<statistic<X, W, Y>, 1> mean{};    ///< (rows), or without data: not wanted
    view<statistic<X, W, Y>, 1> rstd{};    ///< (rows), 1 / sqrt(variance + epsilon), or without data
    statistic<X, W, Y> epsilon = 1e-5f;
};

template <class X, class W, class Y, class G>
struct layer_norm_backward {
    const_view<X, 2> x;         ///< (rows, width)
    const_view<W, 1> gain;      ///< (width)
    const_view<Y, 2> dy;        ///< (rows, width)
    const_view<statistic<X, W, Y>, 1> mean;  ///< (rows), the forward pass's result
    const_view<statistic<X, W, Y>, 1> rstd;  ///< (rows), likewise
    view<X, 2> dx;              ///< (rows, width); may be dy if the types agree
    view<G, 1> dgain{};         ///< (width), or without data: frozen
    view<G, 1> dbias{};         ///< (width), or without data
    write_mode dx_mode = write_mode::overwrite;
    write_mode parameter_mode = write_mode::add;
};

template <class X, class W, class Y>
void check(const layer_norm_forward<X, W, Y>& a) {
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    expect_rows("layer_norm", "x", a.x, a.x.shape());
    expect("layer_norm", "gain", a.gain, {width});
    expect_optional("layer_norm", "bias", a.bias, {width});
    expect_written_rows("layer_norm", "y", a.y, a.x.shape());
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
    expect_written_rows("layer_norm backward", "dx", a.dx, a.x.shape());
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

/// y = (x - mean) rstd gain + bias for each row, with the row's mean and rstd = 1 / sqrt(variance + epsilon) (Ba,
/// Kiros, Hinton 2016). x and y: (rows, width), with any leading dimension; gain, bias: (width), of one type, the bias
/// optionally without data. mean and rstd, (rows), float, or double if a view holds doubles, are needed by
/// layer_norm_gradients; without data they are not stored. The head of this file has the numeric contract. Throws
/// shape_error, and argument_error for an epsilon that is negative or NaN.
template <class P, class Device, class X, class Gain, class Bias, class Y, class Mean, class Rstd>
    requires(detail::kernel_device<Device> && detail::viewables<X, Gain, Bias, Y, Mean, Rstd>)
void layer_norm(Device& device, const X& x, const Gain& gain, const Bias& bias, const Y& y, const Mean& mean,
                const Rstd& rstd, double epsilon = 1e-5) {
    using arguments =
        kernel::layer_norm_forward<detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Y>>;
    static_assert(detail::check_function<P, detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Y>>());
    static_assert(detail::check_ranks<2, X, Y>() && detail::check_ranks<1, Gain, Bias, Mean, Rstd>());
    detail::expect_apart_or_same(device, "layer_norm", "x", x, "y", y);
    detail::expect_apart(device, "layer_norm", "gain", gain, "y", y);
    detail::expect_apart(device, "layer_norm", "bias", bias, "y", y);
    kernel::layer_norm<Device>::forward(device,
                                        arguments{.x = as_view(x),
                                                  .gain = as_view(gain),
                                                  .bias = as_view(bias),
                                                  .y = as_view(y),
                                                  .mean = as_view(mean),
                                                  .rstd = as_view(rstd),
                                                  .epsilon = static_cast<decltype(arguments::epsilon)>(epsilon)});
}
/// y = (x - mean) rstd gain + bias for each row without storing mean and rstd, if no gradient is needed.
template <class P, class Device, class X, class Gain, class Bias, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Gain, Bias, Y>)
void layer_norm(Device& device, const X& x, const Gain& gain, const Bias& bias, const Y& y, double epsilon = 1e-5) {
    using kept = view<kernel::statistic<detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Y>>, 1>;
    layer_norm<P>(device, x, gain, bias, y, kept{}, kept{}, epsilon);
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void layer_norm(Device&, const Views&...) {
    static_assert(
        sizeof(Device*) == 0,
        "halftone: layer_norm is called without a policy: ht::layer_norm<ht::amp_bf16>(device, x, gain, bias, y)");
}

/// The gradients of layer_norm, from dy, that of its result: dx (rows, width), which may be dy if the types agree, and,
/// summed over all rows, dgain and dbias (width), either of which may be without data if it is not wanted. mean and
/// rstd are the forward pass's results. The modes say whether dgain and dbias, and dx, are overwritten or added to.
/// Throws shape_error.
template <class P, class Device, class X, class Gain, class Dy, class Mean, class Rstd, class Dx, class Dgain,
          class Dbias>
    requires(detail::kernel_device<Device> && detail::viewables<X, Gain, Dy, Mean, Rstd, Dx, Dgain, Dbias>)
void layer_norm_gradients(Device& device, const X& x, const Gain& gain, const Dy& dy, const Mean& mean,
                          const Rstd& rstd, const Dx& dx, const Dgain& dgain, const Dbias& dbias,
                          write_mode parameter_mode = write_mode::overwrite,
                          write_mode dx_mode = write_mode::overwrite) {
    using arguments = kernel::layer_norm_backward<detail::element_in<X>, detail::element_in<Gain>,
                                                  detail::element_in<Dy>, detail::element_in<Dgain>>;
    static_assert(detail::check_function<P, detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Dy>>());
    static_assert(detail::check_ranks<2, X, Dy, Dx>() && detail::check_ranks<1, Gain, Mean, Rstd, Dgain, Dbias>());
    detail::expect_apart_or_same(device, "layer_norm backward", "x", x, "dx", dx);
    detail::expect_apart_or_same(device, "layer_norm backward", "dy", dy, "dx", dx);
    detail::expect_apart(device, "layer_norm backward", "gain", gain, "dx", dx);
    kernel::layer_norm<Device>::backward(device, arguments{.x = as_view(x),
                                                           .gain = as_view(gain),
                                                           .dy = as_view(dy),
                                                           .mean = as_view(mean),
                                                           .rstd = as_view(rstd),
                                                           .dx = as_view(dx),
                                                           .dgain = as_view(dgain),
                                                           .dbias = as_view(dbias),
                                                           .dx_mode = dx_mode,
                                                           .parameter_mode = parameter_mode});
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void layer_norm_gradients(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: layer_norm_gradients is called without a policy: "
                  "ht::layer_norm_gradients<ht::amp_bf16>(device, x, gain, dy, mean, rstd, dx, dgain, dbias)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
