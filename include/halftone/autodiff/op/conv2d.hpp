// SPDX-License-Identifier: MIT
/// \file
/// Two-dimensional convolution on a tape; kernel/conv2d has the formula and the options.
///
///     auto y = ht::conv2d(ctx, x, weight, bias, {.stride = {2, 2}, .padding = {1, 1}});     // x: (N, C, H, W)
///     auto y = ht::conv2d(ctx, x, weight, {.groups = channels});                            // no bias; depthwise
///     auto y = ht::conv2d<roles>(ctx, x, weight, bias, options);                            // as nn::conv2d calls it
///
/// weight: (outputs, C / groups, height, width), bias: (outputs); each a variable or a parameter of a store.
///
/// Numeric contract: that of kernel::conv2d, in the types in which ht::linear computes: the forward product in the
/// roles' `compute`, the gradients in their `input_grad` and `weight_grad`, with the weight as the forward pass read
/// it. Gradients of parameters are float sums, rounded once to `accumulate`. For the backward pass x is stored without
/// unfolding, and unfolded again there.
#pragma once

#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/conv2d/conv2d.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A bias, as an operation that computes in Compute reads it.
template <class Compute>
no_bias bias_for(const absent&) {
    return {};
}
template <class Compute, class Bias>
auto bias_for(const Bias& bias) {
    return values_for<Compute>(bias);
}
template <class Bias>
void check_conv2d_bias(const Bias& bias, extent outputs) {
    if constexpr (!is_absent<Bias>) {
        if (bias.shape()[0] != outputs)
            fail<shape_error>("conv2d: bias is ", bias.shape(), "; expected ", shape<1>{outputs});
    }
}

/// The gradient of a convolution's bias: out[o] = (or +=) the sum of dy's channel o.
template <class Device, class G, class T>
void sum_channels(Device& device, const view<const G, 4>& dy, T* out, write_mode mode) {
    kernel::axis_reduction<Device>::run(
        device, kernel::reduction<G, T>{
                    .x = dy.data(), .layout = kernel::axis_layout_of(dy, axes<0, 2, 3>), .y = out, .mode = mode});
}

template <class Roles, class X, class Y, class Weight, class Bias>
struct conv2d_record {
    using operation = op::conv2d;
    variable<X, 4> x;  // empty if the weight is frozen
    gradient_of<X, 4> dx;
    gradient_of<Y, 4> dy;
    Weight weight;
    Bias bias;
    conv2d_options options;

    conv2d_problem problem() const { return conv2d_problem::of(operation::name, dx.shape(), weight.shape(), options); }

    template <class Tape>
    void propagate(Tape& tape) {
        const auto p = problem();
        const auto g = as_const(dy.view());
        tape.template note_gradients_as<typename Roles::input_grad>();
        tape.template note_gradients_as<typename Roles::weight_grad>();
        if (const auto to = tape.gradient_target(dx)) {
            conv2d_input_gradient<typename Roles::input_grad>(tape.device(), p,
                                                              values_for<typename Roles::compute>(weight), g,
                                                              view(to.data, dx.shape()), to.mode);
        }
        if (const auto to = tape.gradient_target(weight)) {
            conv2d_weight_gradient<typename Roles::weight_grad>(tape.device(), p, as_const(x.view()), g,
                                                                view(to.data, weight.shape()), to.mode);
        }
        if constexpr (!is_absent<Bias>) {
            if (const auto to = tape.gradient_target(bias)) sum_channels(tape.device(), g, to.data, to.mode);
        }
    }
};

template <class T>
concept conv2d_bias = is_absent<T> || weight_of_rank<T, 1>;

}  // namespace detail

/// The convolution of x with the weight, plus bias, as a layer computes it in its roles. x: (images, channels, height,
/// width), weight: (outputs, channels / groups, height, width), bias: (outputs) or `absent`; the result: (images, outputs,
/// rows, columns), in the type of the role `output`. Throws shape_error, argument_error.
template <class Roles, class Context, class X, class Weight, class Bias>
    requires(!detail::type_choice<Roles>)
auto conv2d(Context&& context, const variable<X, 4>& x, const Weight& weight, const Bias& bias,
            const conv2d_options& options = {}) {
    static_assert(detail::check_roles_given<Roles>());
    using compute = typename Roles::compute;
    using Y = typename Roles::output;
    auto& root = context.root();
    const auto p = detail::conv2d_problem::of(op::conv2d::name, x.shape(), weight.shape(), options);
    detail::check_conv2d_bias(bias, p.outputs);
    const auto range = root.template range<Roles>(op::conv2d::name);
    const bool wanted = detail::wants_gradient(x, weight, bias);
    auto y = root.template make<Y>(p.result(), wanted);
    detail::conv2d_forward<compute>(root.device(), p, as_const(x.view()), detail::values_for<compute>(weight),
                                    detail::bias_for<compute>(bias), y.view());
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            root.record(detail::conv2d_record<Roles, X, Y, Weight, Bias>{weight.is_frozen() ? variable<X, 4>{} : x,
                                                                         gradient_of(x), gradient_of(y), weight, bias,
                                                                         options});
        }
    }
    return y;
}

namespace detail {

template <class As, class Context, class X, class W, class B>
auto free_conv2d(Context&& context, const variable<X, 4>& x, const W& weight, const B& bias,
                 const conv2d_options& options) {
    return halftone::conv2d<product_roles<As, Context, op::conv2d, X, element_of<W>>>(context, x, as_weight(weight),
                                                                                      as_weight(bias), options);
}

}  // namespace detail

/// The convolution of x with the weight, without a bias. x: (images, channels, height, width), weight: (outputs,
/// channels / groups, height, width), a variable or a parameter of a store. In a region it computes in, and returns,
/// the policy's `compute` type; on a bare tape the type that the operands promote to; with As, type As. Throws
/// shape_error and argument_error. Source: torch.nn.functional.conv2d.
template <class As = by_category, recording_context Context, class X, detail::weight_of_rank<4> Weight>
    requires detail::type_choice<As>
auto conv2d(Context&& context, const variable<X, 4>& x, const Weight& weight, const conv2d_options& options = {}) {
    return detail::free_conv2d<As>(context, x, weight, absent{}, options);
}
/// The convolution of x with the weight, as that without a bias, plus a bias (outputs), which is a variable, a
/// parameter or `absent`.
template <class As = by_category, recording_context Context, class X, detail::weight_of_rank<4> Weight,
          detail::conv2d_bias Bias>
    requires detail::type_choice<As>
auto conv2d(Context&& context, const variable<X, 4>& x, const Weight& weight, const Bias& bias,
            const conv2d_options& options = {}) {
    return detail::free_conv2d<As>(context, x, weight, bias, options);
}
// Variables of another rank: fails with a message.
template <class As = by_category, recording_context Context, class X, int Rank, class... Rest>
    requires(Rank != 4)
void conv2d(Context&&, const variable<X, Rank>&, const Rest&...) {
    static_assert(detail::check_conv2d_ranks<view<X, Rank>>());
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
