// SPDX-License-Identifier: MIT
/// \file
/// Double backward: losses that contain gradients, such as a gradient penalty.
///
///     ht::tape tape{device, ht::double_backward};
///     auto loss = model.loss(tape, batch);
///     auto grads = scaler.unscale(tape.gradients(scaler.scale(loss), model));      // variables of the tape
///     auto total = ht::add(tape, loss, ht::norm(tape, grads));
///     tape.backward(scaler.scale(total), acc);                                     // the rest of the step is unchanged
///
/// Such a tape accepts operations whose gradients are recorded operations. The others do not compile: a map of an
/// opaque functor, products of 8-bit operands, an operation of your own (ht::apply) whose backward function launches
/// kernels, and a record of your own without a rule. Attention uses its math strategy, linear_cross_entropy stores its
/// logits, mlp stores the input of its gelu, and batch_norm and group_norm their normalised input. The gradient of a sparse embedding's table is dense as a variable, and
/// sparse in the accumulator.
///
/// Numeric contract: forward results are those of a plain tape, except for the roundings of these operations'
/// intermediate results; gradients have the types of the policy, and intermediate results of their formulas are float.
/// Masked operands of attention have no effect in any bit.
#pragma once

#include <halftone/autodiff/double_backward/apply.hpp>
#include <halftone/autodiff/double_backward/attention.hpp>
#include <halftone/autodiff/double_backward/axis_rules.hpp>
#include <halftone/autodiff/double_backward/channel_norm.hpp>
#include <halftone/autodiff/double_backward/conv2d.hpp>
#include <halftone/autodiff/double_backward/free_rules.hpp>
#include <halftone/autodiff/double_backward/loss_rules.hpp>
#include <halftone/autodiff/double_backward/gated.hpp>
#include <halftone/autodiff/double_backward/rules.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class Roles>
struct composition<op::mlp, Roles> {
    template <class Root, class X, class Y, int Rank, class Weight, class Bias>
    static variable<Y, Rank> run(Root& root, const variable<X, Rank>& x, const Weight& up, const Bias& up_bias,
                                 const Weight& down, const Bias& down_bias, const variable<Y, Rank>& residual) {
        const auto pre = linear<Roles>(root, x, up, up_bias);
        const auto hidden = evaluate<op::gelu, storage_of<typename Roles::compute>>(
            root, pre.shape(), halftone::trace<1>(gelu_function{}), pre);
        return linear<Roles>(root, hidden, down, down_bias, residual);
    }
};

template <class Roles>
struct composition<op::linear_cross_entropy, Roles> {
    template <class Root, class X, int Rank, class Weight, int TargetRank>
    static variable<float, 0> run(Root& root, const variable<X, Rank>& x, const Weight& weight,
                                  const const_view<std::int32_t, TargetRank>& targets) {
        return cross_entropy(root, linear<Roles>(root, x, weight, absent{}), targets);
    }
};

/// The error for gradients that are still multiplied by the loss scale.
template <class T>
struct not_unscaled {
    static_assert(sizeof(T) == 0,
                  "halftone: these gradients are still multiplied by the loss scale, and so would be what is computed "
                  "of them: unscale them first, scaler.unscale(tape.gradients(scaler.scale(loss), model))");
};

}  // namespace detail

/// The sum of the squares of all elements, in float.
template <recording_context Context, class X, int Rank>
variable<float, 0> sum_of_squares(Context&& context, const variable<X, Rank>& x) {
    return detail::reduce<op::sum, float>(context, 1.0, [](auto a) { return halftone::square(a); }, x);
}
/// The sum of the squares of all elements of all gradients, in float; the gradients' sums are added in order.
template <recording_context Context, class Device>
variable<float, 0> sum_of_squares(Context&& context, const gradient_variables<Device>& gradients) {
    variable<float, 0> total;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        const auto squares = sum_of_squares(context, gradients[i]);
        total = i == 0 ? squares : add(context.root(), total, squares);
    }
    return total;
}

/// The Euclidean norm of all gradients together. Its derivative at 0 is 0.
template <recording_context Context, class Device>
variable<float, 0> norm(Context&& context, const gradient_variables<Device>& gradients) {
    return map(
        context.root(), [](auto s) { return halftone::where(s == 0.0f, 0.0f, halftone::sqrt(s)); },
        sum_of_squares(context, gradients));
}

// For gradients that are still scaled: fails with not_unscaled's message.
template <recording_context Context, class Scaled>
    requires requires(const Scaled& s) { s.stamp(); }
variable<float, 0> sum_of_squares(Context&&, const Scaled&) {
    static_assert(sizeof(detail::not_unscaled<Scaled>) > 0);
    return {};
}
template <recording_context Context, class Scaled>
    requires requires(const Scaled& s) { s.stamp(); }
variable<float, 0> norm(Context&&, const Scaled&) {
    static_assert(sizeof(detail::not_unscaled<Scaled>) > 0);
    return {};
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
