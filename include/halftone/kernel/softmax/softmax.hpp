// SPDX-License-Identifier: MIT
/// \file
/// Softmax and log-softmax of every row: y = exp(s x) / (sum of exp(s x)), and its logarithm, with a scale s.
///
///     ht::softmax<ht::amp_bf16>(device, scores, probabilities, 0.125);
///     ht::softmax_gradients<ht::amp_bf16>(device, probabilities, dy, dscores, 0.125);
///     kernel::log_softmax<cpu>::forward<bfloat16, float>(device, {.x = logits, .y = log_probabilities});   // they call it
///
/// Numeric contract: the row's maximum (for a negative s: minimum) is subtracted first, so that nothing overflows, and
/// the difference is multiplied by s: a constant added to a whole row does not change the accuracy of y. Everything is
/// in float (with doubles: in double, as common/fp64/each.hpp says), where differences beyond the largest number are
/// infinite; y is rounded once. An element of -infinity gives exactly 0 (log_softmax: -infinity); a row of only
/// -infinity gives NaN, as does a row with a NaN or +infinity. All this is as in PyTorch. For a 16-bit y an exponential
/// has a relative error of up to (0.875 + d / 16) 2^-18 on a CPU, where d is the distance to the maximum, and less on a
/// GPU, where exponentials below 2^-126 are 0: about a hundredth of the error of rounding y to bfloat16. Any leading
/// dimension.
#pragma once

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Softmax, or its logarithm.
enum class softmax_form { plain, logarithm };

/// The arguments of the forward pass.
template <class X, class Y>
struct softmax_forward {
    const_view<X, 2> x;         ///< (rows, width)
    view<Y, 2> y;               ///< (rows, width); may be x if the types agree
    statistic<X, Y> scale = 1;  ///< s
};

/// The arguments of the backward pass, which needs the forward pass's result, but not x.
template <class X, class Y>
struct softmax_backward {
    const_view<Y, 2> y;         ///< (rows, width), the forward pass's result
    const_view<Y, 2> dy;        ///< (rows, width)
    view<X, 2> dx;              ///< (rows, width); may be dy if the types agree
    statistic<X, Y> scale = 1;  ///< the forward pass's
    write_mode mode = write_mode::overwrite;
};

/// forward and backward of one device. Throw shape_error.
template <class Device>
struct softmax;

/// forward and backward of one device for y = s x - log(sum of exp(s x)). Throw shape_error.
template <class Device>
struct log_softmax;

/// Throws shape_error if the arguments do not fit together.
template <class X, class Y>
void check(const softmax_forward<X, Y>& a) {
    expect_rows("softmax", "x", a.x, a.x.shape());
    expect_written_rows("softmax", "y", a.y, a.x.shape());
}

/// Throws shape_error if the arguments do not fit together.
template <class X, class Y>
void check(const softmax_backward<X, Y>& a) {
    expect_rows("softmax backward", "y", a.y, a.y.shape());
    expect_rows("softmax backward", "dy", a.dy, a.y.shape());
    expect_written_rows("softmax backward", "dx", a.dx, a.y.shape());
}

}  // namespace kernel

namespace detail {

/// What softmax and log_softmax below share. Kernel: kernel::softmax or kernel::log_softmax.
template <class P, template <class> class Kernel, class Device, class X, class Y>
void run_softmax(Device& device, const X& x, const Y& y, double scale) {
    using arguments = kernel::softmax_forward<element_in<X>, element_in<Y>>;
    static_assert(check_function<P, element_in<X>, element_in<Y>>());
    static_assert(check_ranks<2, X, Y>());
    expect_apart_or_same(device, "softmax", "x", x, "y", y);
    Kernel<Device>::forward(
        device, arguments{.x = as_view(x), .y = as_view(y), .scale = static_cast<decltype(arguments::scale)>(scale)});
}
/// What their gradients share.
template <class P, template <class> class Kernel, class Device, class Y, class Dy, class Dx>
void run_softmax_gradients(Device& device, const Y& y, const Dy& dy, const Dx& dx, double scale, write_mode mode) {
    using arguments = kernel::softmax_backward<element_in<Dx>, element_in<Y>>;
    static_assert(check_function<P, element_in<Y>, element_in<Dx>>());
    static_assert(check_ranks<2, Y, Dy, Dx>());
    expect_apart_or_same(device, "softmax backward", "y", y, "dx", dx);
    expect_apart_or_same(device, "softmax backward", "dy", dy, "dx", dx);
    Kernel<Device>::backward(device, arguments{.y = as_view(y),
                                               .dy = as_view(dy),
                                               .dx = as_view(dx),
                                               .scale = static_cast<decltype(arguments::scale)>(scale),
                                               .mode = mode});
}

}  // namespace detail

/// y = exp(scale x) / (the sum of exp(scale x)) for each row: x and y are (rows, width), with any leading dimension,
/// and y may be x if the types agree. The head of this file says how infinities are treated. Throws shape_error.
template <class P, class Device, class X, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Y>)
void softmax(Device& device, const X& x, const Y& y, double scale = 1) {
    detail::run_softmax<P, kernel::softmax>(device, x, y, scale);
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void softmax(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: softmax is called without a policy: ht::softmax<ht::amp_bf16>(device, x, y)");
}

/// The gradient of softmax, from its result y and dy, that of the result: dx = scale y (dy - the sum of dy y). All are
/// (rows, width); dx may be dy if the types agree. `scale` is the forward pass's; `mode` says whether dx is overwritten
/// or added to. Throws shape_error.
template <class P, class Device, class Y, class Dy, class Dx>
    requires(detail::kernel_device<Device> && detail::viewables<Y, Dy, Dx>)
void softmax_gradients(Device& device, const Y& y, const Dy& dy, const Dx& dx, double scale = 1,
                       write_mode mode = write_mode::overwrite) {
    detail::run_softmax_gradients<P, kernel::softmax>(device, y, dy, dx, scale, mode);
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void softmax_gradients(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: softmax_gradients is called without a policy: ht::softmax_gradients<ht::amp_bf16>(device, "
                  "y, dy, dx)");
}

/// y = scale x - log(the sum of exp(scale x)) for each row: x and y are (rows, width), with any leading dimension, and
/// y may be x if the types agree. The head of this file says how infinities are treated. Throws shape_error.
template <class P, class Device, class X, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Y>)
void log_softmax(Device& device, const X& x, const Y& y, double scale = 1) {
    detail::run_softmax<P, kernel::log_softmax>(device, x, y, scale);
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void log_softmax(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: log_softmax is called without a policy: ht::log_softmax<ht::amp_bf16>(device, x, y)");
}

/// The gradient of log_softmax, from its result y and dy, that of the result: dx = scale (dy - exp(y) the sum of dy).
/// All are (rows, width); dx may be dy if the types agree. `scale` is the forward pass's; `mode` says whether dx is
/// overwritten or added to. Throws shape_error.
template <class P, class Device, class Y, class Dy, class Dx>
    requires(detail::kernel_device<Device> && detail::viewables<Y, Dy, Dx>)
void log_softmax_gradients(Device& device, const Y& y, const Dy& dy, const Dx& dx, double scale = 1,
                           write_mode mode = write_mode::overwrite) {
    detail::run_softmax_gradients<P, kernel::log_softmax>(device, y, dy, dx, scale, mode);
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void log_softmax_gradients(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: log_softmax_gradients is called without a policy: "
                  "ht::log_softmax_gradients<ht::amp_bf16>(device, y, dy, dx)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
