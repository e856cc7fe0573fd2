// SPDX-License-Identifier: MIT
/// \file
/// Root mean square normalisation (Zhang and Sennrich 2019): normalises every row to mean square 1, then applies a gain
/// a column.
///
///     kernel::rms_norm<cpu>::forward<bfloat16, float, bfloat16>(
///         device, {.x = x, .gain = gain, .y = y, .rstd = rstd, .epsilon = 1e-6f});
///
/// Numeric contract: the mean square in float; y is rounded once, after the gain. Rows whose squares overflow or
/// underflow float are computed in double (care/limits.hpp). The backward pass computes in float from the saved rstd,
/// which is rounded to float; dx is rounded once; the sum over rows, dgain, has a tree that depends on the shape.
/// Doubles are computed in double throughout (kernel/common/fp64/each.hpp), rows whose squares overflow or underflow
/// with a power of two. Any leading dimension.
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
struct rms_norm_forward {
    const_view<X, 2> x;     ///< (rows, width)
    const_view<W, 1> gain;  ///< (width)
    view<Y, 2> y;           ///< (rows, width)
    view<statistic<X, W, Y>, 1> rstd{};  ///< (rows), 1 / sqrt(mean square + epsilon), or without data: not wanted
    statistic<X, W, Y> epsilon = 1e-6f;
};

template <class X, class W, class Y, class G>
struct rms_norm_backward {
    const_view<X, 2> x;         ///< (rows, width)
    const_view<W, 1> gain;      ///< (width)
    const_view<Y, 2> dy;        ///< (rows, width)
    const_view<statistic<X, W, Y>, 1> rstd;  ///< (rows), the forward pass's result
    view<X, 2> dx;              ///< (rows, width); may be dy if the types agree
    view<G, 1> dgain{};         ///< (width), or without data: frozen
    write_mode dx_mode = write_mode::overwrite;
    write_mode parameter_mode = write_mode::add;
};

template <class X, class W, class Y>
void check(const rms_norm_forward<X, W, Y>& a) {
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    expect_rows("rms_norm", "x", a.x, a.x.shape());
    expect("rms_norm", "gain", a.gain, {width});
    expect_written_rows("rms_norm", "y", a.y, a.x.shape());
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
    expect_written_rows("rms_norm backward", "dx", a.dx, a.x.shape());
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

/// y = x rstd gain for each row, with the row's rstd = 1 / sqrt(mean of squares + epsilon) (Zhang and Sennrich 2019). x
/// and y: (rows, width), with any leading dimension; gain: (width). rstd, (rows), float, or double if a view holds
/// doubles, is needed by rms_norm_gradients; without data it is not stored. Throws shape_error, and argument_error for
/// an epsilon that is negative or NaN.
template <class P, class Device, class X, class Gain, class Y, class Rstd>
    requires(detail::kernel_device<Device> && detail::viewables<X, Gain, Y, Rstd>)
void rms_norm(Device& device, const X& x, const Gain& gain, const Y& y, const Rstd& rstd, double epsilon = 1e-6) {
    using arguments = kernel::rms_norm_forward<detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Y>>;
    static_assert(detail::check_function<P, detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Y>>());
    static_assert(detail::check_ranks<2, X, Y>() && detail::check_ranks<1, Gain, Rstd>());
    detail::expect_apart_or_same(device, "rms_norm", "x", x, "y", y);
    detail::expect_apart(device, "rms_norm", "gain", gain, "y", y);
    kernel::rms_norm<Device>::forward(device, arguments{.x = as_view(x),
                                                        .gain = as_view(gain),
                                                        .y = as_view(y),
                                                        .rstd = as_view(rstd),
                                                        .epsilon = static_cast<decltype(arguments::epsilon)>(epsilon)});
}
/// y = x rstd gain for each row without storing rstd, if no gradient is needed.
template <class P, class Device, class X, class Gain, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Gain, Y>)
void rms_norm(Device& device, const X& x, const Gain& gain, const Y& y, double epsilon = 1e-6) {
    using kept = view<kernel::statistic<detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Y>>, 1>;
    rms_norm<P>(device, x, gain, y, kept{}, epsilon);
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void rms_norm(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: rms_norm is called without a policy: ht::rms_norm<ht::amp_bf16>(device, x, gain, y)");
}

/// The gradients of rms_norm, from dy, that of its result: dx (rows, width), which may be dy if the types agree, and,
/// summed over all rows, dgain (width), which may be without data if it is not wanted. rstd is the forward pass's
/// result. The modes say whether dgain, and dx, are overwritten or added to. Throws shape_error.
template <class P, class Device, class X, class Gain, class Dy, class Rstd, class Dx, class Dgain>
    requires(detail::kernel_device<Device> && detail::viewables<X, Gain, Dy, Rstd, Dx, Dgain>)
void rms_norm_gradients(Device& device, const X& x, const Gain& gain, const Dy& dy, const Rstd& rstd, const Dx& dx,
                        const Dgain& dgain, write_mode parameter_mode = write_mode::overwrite,
                        write_mode dx_mode = write_mode::overwrite) {
    using arguments = kernel::rms_norm_backward<detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Dy>,
                                                detail::element_in<Dgain>>;
    static_assert(detail::check_function<P, detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Dy>>());
    static_assert(detail::check_ranks<2, X, Dy, Dx>() && detail::check_ranks<1, Gain, Rstd, Dgain>());
    detail::expect_apart_or_same(device, "rms_norm backward", "x", x, "dx", dx);
    detail::expect_apart_or_same(device, "rms_norm backward", "dy", dy, "dx", dx);
    detail::expect_apart(device, "rms_norm backward", "gain", gain, "dx", dx);
    kernel::rms_norm<Device>::backward(device, arguments{.x = as_view(x),
                                                         .gain = as_view(gain),
                                                         .dy = as_view(dy),
                                                         .rstd = as_view(rstd),
                                                         .dx = as_view(dx),
                                                         .dgain = as_view(dgain),
                                                         .dx_mode = dx_mode,
                                                         .parameter_mode = parameter_mode});
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void rms_norm_gradients(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: rms_norm_gradients is called without a policy: "
                  "ht::rms_norm_gradients<ht::amp_bf16>(device, x, gain, dy, rstd, dx, dgain)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
