// SPDX-License-Identifier: MIT
/// \file
/// A two-dimensional convolution with learned weights.
///
///     ht::nn::conv2d<ht::at<P, "conv">> conv{store, 64, 128, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}}};
///     auto y = conv(ctx, x);                                 // x: (images, 64, height, width), y: (images, 128, …, …)
///     ht::nn::conv2d_no_bias<ht::at<P, "conv">> conv{store, 64, 64, {3, 3}, {.padding = {1, 1}}};
///     ht::nn::conv2d_no_bias<ht::at<P, "depthwise">> conv{store, 64, 64, {3, 3}, {.padding = {1, 1}, .groups = 64}};
///
/// Numeric contract: that of autodiff/op/conv2d.hpp.
#pragma once

#include <cmath>

#include <halftone/autodiff/op/conv2d.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The weight's shape. Throws argument_error for channels that are not multiples of the groups, and for options that do
/// not describe a valid window.
inline shape<4> conv2d_layer_shape(extent in, extent out, const shape<2>& kernel_size, const conv2d_options& options) {
    check_conv2d_options("nn::conv2d", options);
    if (in < 1 || out < 1 || in % options.groups != 0 || out % options.groups != 0 || kernel_size[0] < 1 ||
        kernel_size[1] < 1) {
        fail<argument_error>("nn::conv2d: ", in, " channels to ", out, " in ", options.groups, " groups by a window of ",
                             kernel_size, "; expected multiples of the groups, and a window of 1 or more");
    }
    return {out, in / options.groups, kernel_size[0], kernel_size[1]};
}
/// PyTorch's initial values of weight and bias: uniform in +-1 / sqrt(number of terms in a sum), which kaiming_uniform_
/// with a = sqrt(5) gives.
inline initial conv2d_layer_initial(extent in, extent out, const shape<2>& kernel_size, const conv2d_options& options) {
    const shape<4> weight = conv2d_layer_shape(in, out, kernel_size, options);
    return {.bound = 1.0f / std::sqrt(static_cast<float>(weight[1] * weight[2] * weight[3]))};
}

}  // namespace detail

namespace nn {

/// The convolution of x with a learned weight, plus a learned bias.
template <class P>
struct conv2d {
    using policy = P;
    using operation = op::conv2d;
    static constexpr bool owns_parameters = true;

    parameter<storage_signature<P, operation>, 4> weight;  // (out, in / groups, height, width)
    parameter<storage_signature<P, operation>, 1> bias;    // (out)
    conv2d_options options;

    /// Weight and bias are initialised as in torch.nn.Conv2d. Throws argument_error for channels that are not multiples
    /// of the groups, and for options that do not describe a valid window.
    conv2d(store& s, extent in, extent out, const shape<2>& kernel_size, const conv2d_options& how = {})
        : conv2d(s, in, out, kernel_size, how,
                 halftone::detail::conv2d_layer_initial(in, out, kernel_size, how),
                 halftone::detail::conv2d_layer_initial(in, out, kernel_size, how)) {}
    /// A convolution with given initial values. Also throws argument_error for invalid initial values.
    conv2d(store& s, extent in, extent out, const shape<2>& kernel_size, const conv2d_options& how,
           const initial& weights, const initial& biases = {})
        : weight(s.add<P, operation>("weight", halftone::detail::conv2d_layer_shape(in, out, kernel_size, how), weights)),
          bias(s.add<P, operation>("bias", shape<1>{out}, biases)),
          options(how) {}

    /// x: (images, in, height, width); the result is (images, out, rows, columns), in the policy's `output`. Throws
    /// shape_error.
    template <class Context, class X>
    auto operator()(Context&& ctx, const variable<X, 4>& x) const {
        return halftone::conv2d<layer_roles<P, operation, Context, X>>(ctx, x, weight, bias, options);
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

/// The convolution of x with a learned weight, without a bias, as before a batch norm.
template <class P>
struct conv2d_no_bias {
    using policy = P;
    using operation = op::conv2d;
    static constexpr bool owns_parameters = true;

    parameter<storage_signature<P, operation>, 4> weight;  // (out, in / groups, height, width)
    conv2d_options options;

    /// The weight is initialised as in torch.nn.Conv2d. Throws argument_error for channels that are not multiples of
    /// the groups, and for options that do not describe a valid window.
    conv2d_no_bias(store& s, extent in, extent out, const shape<2>& kernel_size, const conv2d_options& how = {})
        : conv2d_no_bias(s, in, out, kernel_size, how,
                         halftone::detail::conv2d_layer_initial(in, out, kernel_size, how)) {}
    /// A convolution with given initial values. Also throws argument_error for invalid initial values.
    conv2d_no_bias(store& s, extent in, extent out, const shape<2>& kernel_size, const conv2d_options& how,
                   const initial& weights)
        : weight(s.add<P, operation>("weight", halftone::detail::conv2d_layer_shape(in, out, kernel_size, how), weights)),
          options(how) {}

    /// x: (images, in, height, width); the result is (images, out, rows, columns), in the policy's `output`. Throws
    /// shape_error.
    template <class Context, class X>
    auto operator()(Context&& ctx, const variable<X, 4>& x) const {
        return halftone::conv2d<layer_roles<P, operation, Context, X>>(ctx, x, weight, absent{}, options);
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
