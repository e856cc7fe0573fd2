// SPDX-License-Identifier: MIT
/// \file
/// Two-dimensional convolution (cross-correlation, as in every deep learning library) and its gradients.
///
///     ht::conv2d<ht::amp_bf16>(device, x, weight, bias, y, {.stride = {2, 2}, .padding = {1, 1}});
///     ht::conv2d_input<ht::amp_bf16>(device, weight, dy, dx, options);
///     ht::conv2d_weight<ht::amp_bf16>(device, x, dy, dweight, options, ht::write_mode::add);
///
///     x (images, channels, height, width)             weight (outputs, channels / groups, kernel height, kernel width)
///     y (images, outputs, rows, columns)              rows = (height + 2 padding - dilation (kernel - 1) - 1) / stride + 1
///
/// y[n][o][i][j] = bias[o] + the sum over c, k, l of weight[o][c][k][l] x[n][c'][i stride + k dilation - padding][j …],
/// where c' is channel c of o's group, and x is 0 outside of the image. A depthwise convolution has as many groups as
/// channels.
///
/// Numeric contract: the elements under the sliding window are unfolded into a matrix (kernel/unfold, im2col), and the
/// forward pass and both gradients are matrix products with kernel::matmul's contract: operands are rounded to the
/// policy's `compute` type, sums are in float, the bias is added to the sum, and the result is rounded once. The
/// input's gradient adds up to one float for each tap (element of the window), and is rounded once; on a CPU without tiles
/// (AMX) it is one sum over outputs and taps. The weight's gradient is summed over the images in float, in their order. If a
/// view has doubles, everything is computed in double. On a CPU the result for an image does not depend on the other
/// images of the batch, to the last bit, and depthwise convolutions are summed tap by tap without a matrix
/// (conv2d/depthwise).
///
/// Scratch memory: the unfolded matrix, of at most 8 MiB on a CPU and 64 MiB on a GPU, or of one row of output
/// positions if that needs more; if several images share a product, also their results. For the input's gradient: the
/// matrix in float, of at least one channel of one image. On a CPU without tiles (AMX), with windows of up to 256 elements and
/// strides up to 16, no pass has a matrix (conv2d/implicit): the forward pass and the input's gradient need the packed weight,
/// which in float the forward pass reads in place, and the weight's gradient needs 4 MiB, and if dy is larger than that, the
/// gradient in float; each thread needs blocks for its L2. ht::workspace_bytes returns the exact size. A window of one element
/// with stride 1 and no padding needs no scratch memory.
#pragma once

#include <halftone/kernel/conv2d/lowering/products.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// True, or a compile-time error with a message, for a call with views of another rank.
template <class... V>
consteval bool check_conv2d_ranks() {
    static_assert(((view_of<V>::rank == 4) && ...),
                  "halftone: conv2d takes images (batch, channels, height, width) and a weight (outputs, channels / "
                  "groups, height, width), all of rank 4");
    return true;
}

/// The checked problem of a call; `y` is the result, or its gradient.
template <class X, class W, class Y>
conv2d_problem checked_conv2d(const char* operation, const view<X, 4>& x, const view<W, 4>& weight, const char* y_name,
                              const view<Y, 4>& y, const conv2d_options& options) {
    const auto p = conv2d_problem::of(operation, x.shape(), weight.shape(), options);
    kernel::expect(operation, "weight", weight, p.weight());
    kernel::expect(operation, y_name, y, p.result());
    return p;
}

}  // namespace detail

/// y = the convolution of x with the weight, plus bias, with the formula at the top of this file. x: (images, channels,
/// height, width), with any strides; weight: (outputs, channels / groups, height, width); bias: (outputs), or a view
/// without data; y: (images, outputs, rows, columns). Throws shape_error, and argument_error for options that do not
/// describe a valid window. Source: torch.nn.functional.conv2d.
template <class P, class Device, class X, class W, class B, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, W, B, Y>)
void conv2d(Device& device, const X& x, const W& weight, const B& bias, const Y& y, const conv2d_options& options = {}) {
    using namespace detail;
    static_assert(check_function<P, element_in<X>, element_in<W>, element_in<B>, element_in<Y>>());
    static_assert(check_conv2d_ranks<X, W, Y>() && check_ranks<1, B>());
    using compute = unscaled_compute<resolve<P>>;
    const const_view<element_in<X>, 4> in = as_view(x);
    const const_view<element_in<W>, 4> w = as_view(weight);
    const const_view<element_in<B>, 1> beta = as_view(bias);
    const view<element_in<Y>, 4> out = as_view(y);
    const auto p = checked_conv2d("conv2d", in, w, "y", out, options);
    expect_apart(device, "conv2d", "x", x, "y", y);
    expect_apart(device, "conv2d", "weight", weight, "y", y);
    expect_apart(device, "conv2d", "bias", bias, "y", y);
    if (beta.data() == nullptr) return conv2d_forward<compute>(device, p, in, w, no_bias{}, out);
    kernel::expect("conv2d", "bias", beta, {p.outputs});
    conv2d_forward<compute>(device, p, in, w, beta, out);
}

/// dx = (or +=, depending on `mode`) the gradient of conv2d's x, from dy, the gradient of its result. weight: (outputs,
/// channels / groups, height, width), dy: (images, outputs, rows, columns), dx: (images, channels, height, width),
/// contiguous. Throws as conv2d does. Source: torch.nn.grad.conv2d_input.
template <class P, class Device, class W, class G, class X>
    requires(detail::kernel_device<Device> && detail::viewables<W, G, X>)
void conv2d_input(Device& device, const W& weight, const G& dy, const X& dx, const conv2d_options& options = {},
                  write_mode mode = write_mode::overwrite) {
    using namespace detail;
    static_assert(check_function<P, element_in<W>, element_in<G>, element_in<X>>());
    static_assert(check_conv2d_ranks<W, G, X>());
    const const_view<element_in<W>, 4> w = as_view(weight);
    const const_view<element_in<G>, 4> g = as_view(dy);
    const view<element_in<X>, 4> out = as_view(dx);
    const auto p = checked_conv2d("conv2d_input", out, w, "dy", g, options);
    kernel::expect("conv2d_input", "dx", out, p.input());
    expect_apart(device, "conv2d_input", "weight", weight, "dx", dx);
    expect_apart(device, "conv2d_input", "dy", dy, "dx", dx);
    conv2d_input_gradient<unscaled_compute<resolve<P>>>(device, p, w, g, out, mode);
}

/// dweight = (or +=, depending on `mode`) the gradient of conv2d's weight, from dy, the gradient of its result, summed
/// over images. x: (images, channels, height, width), with any strides, dy: (images, outputs, rows, columns), dweight:
/// (outputs, channels / groups, height, width). Throws as conv2d does. Source: torch.nn.grad.conv2d_weight.
template <class P, class Device, class X, class G, class W>
    requires(detail::kernel_device<Device> && detail::viewables<X, G, W>)
void conv2d_weight(Device& device, const X& x, const G& dy, const W& dweight, const conv2d_options& options = {},
                   write_mode mode = write_mode::overwrite) {
    using namespace detail;
    static_assert(check_function<P, element_in<X>, element_in<G>, element_in<W>>());
    static_assert(check_conv2d_ranks<X, G, W>());
    const const_view<element_in<X>, 4> in = as_view(x);
    const const_view<element_in<G>, 4> g = as_view(dy);
    const view<element_in<W>, 4> out = as_view(dweight);
    const auto p = checked_conv2d("conv2d_weight", in, out, "dy", g, options);
    expect_apart(device, "conv2d_weight", "x", x, "dweight", dweight);
    expect_apart(device, "conv2d_weight", "dy", dy, "dweight", dweight);
    conv2d_weight_gradient<unscaled_compute<resolve<P>>>(device, p, in, g, out, mode);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
