// SPDX-License-Identifier: MIT
/// \file
/// Elementwise losses, which compare a prediction with a target of its shape, and further reductions: the dot product
/// and the norm.
///
///     auto loss = ht::huber_loss(ctx, prediction, target, 0.5f);
///     auto loss = ht::binary_cross_entropy_with_logits(ctx, logits, labels);         // labels: 0 to 1, of any number type
///     auto length = ht::norm(ctx, x);
///
/// A loss is the mean over all elements: a float in regions, by its category, and also on a bare tape, where PyTorch
/// gives the inputs' type (for doubles a double). Gradients flow into both inputs. A target may also be a view of host
/// memory or of the device's; memory that the device can read must stay unchanged until the backward pass has run.
///
/// Numeric contract: kernel/sum's, with one rounding at the end.
#pragma once

#include <halftone/autodiff/op/reduce.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class Root, class T, int Rank>
const variable<T, Rank>& as_target(Root&, const variable<T, Rank>& target) {
    return target;
}
template <class Root, class T, int Rank>
variable<std::remove_const_t<T>, Rank> as_target(Root& root, const view<T, Rank>& target) {
    return root.to_device(target);
}

template <class Op, class Context, class F, class X, class T, int Rank>
auto mean_of(Context&& context, const F& f, const variable<X, Rank>& prediction, const variable<T, Rank>& target) {
    using Y = loss_output<policy_of<Context>, Op, X, T>;
    if (!(prediction.shape() == target.shape())) {
        fail<shape_error>(Op::name, ": the prediction is ", prediction.shape(), ", the target ", target.shape());
    }
    return detail::reduce<Op, Y>(context, 1.0 / static_cast<double>(prediction.size()), f, prediction, target);
}

}  // namespace detail

/// The mean of |prediction - target|.
template <recording_context Context, class X, int Rank, class Target>
auto l1_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target) {
    return detail::mean_of<op::l1_loss>(
        context, [](auto x, auto t) { return halftone::abs(x - t); }, prediction,
        detail::as_target(context.root(), target));
}

/// The mean of d^2 / (2 beta) if |d| < beta, otherwise of |d| - beta / 2, where d is prediction - target. Throws
/// argument_error for a beta that is not positive.
template <recording_context Context, class X, int Rank, class Target>
auto smooth_l1_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target, double beta = 1) {
    if (!(beta > 0))
        fail<argument_error>("smooth_l1_loss: beta is ", beta,
                             "; expected a positive number: l1_loss is the limit at 0");
    const double half = 0.5 * beta, scale = 0.5 / beta;
    return detail::mean_of<op::smooth_l1_loss>(
        context,
        [=](auto x, auto t) {
            const auto d = x - t;
            return halftone::where(halftone::abs(d) < beta, scale * halftone::square(d), halftone::abs(d) - half);
        },
        prediction, detail::as_target(context.root(), target));
}

/// The mean of d^2 / 2 if |d| < delta, otherwise of delta (|d| - delta / 2), where d is prediction - target (Huber
/// 1964). Throws argument_error for a delta that is not positive.
template <recording_context Context, class X, int Rank, class Target>
auto huber_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target, double delta = 1) {
    if (!(delta > 0)) fail<argument_error>("huber_loss: delta is ", delta, "; expected a positive number");
    return detail::mean_of<op::huber_loss>(
        context,
        [=](auto x, auto t) {
            const auto d = x - t;
            return halftone::where(halftone::abs(d) < delta, 0.5 * halftone::square(d),
                                   delta * (halftone::abs(d) - 0.5 * delta));
        },
        prediction, detail::as_target(context.root(), target));
}

/// The mean of -target log(p) - (1 - target) log(1 - p), where p is sigmoid(logit); computed from the logit, so that it
/// neither overflows nor cancels.
template <recording_context Context, class X, int Rank, class Target>
auto binary_cross_entropy_with_logits(Context&& context, const variable<X, Rank>& logits, const Target& target) {
    return detail::mean_of<op::binary_cross_entropy_with_logits>(
        context, [](auto x, auto t) { return (halftone::max(x, 0) - x * t) + halftone::softplus(-halftone::abs(x)); },
        logits, detail::as_target(context.root(), target));
}

/// The mean of -target log(p) - (1 - target) log(1 - p), each logarithm at least -100. The gradient of p is PyTorch's,
/// (p - target) / max(p (1 - p), 1e-12), which does not vanish at p = 0 and 1. Banned under autocast to low precision,
/// as in PyTorch: it does not compile there.
template <recording_context Context, class X, int Rank, class Target>
auto binary_cross_entropy(Context&& context, const variable<X, Rank>& p, const Target& target) {
    return detail::mean_of<op::binary_cross_entropy>(
        context,
        [](auto x, auto t) { return symbolic::binary_cross_entropy(x, t); }, p, detail::as_target(context.root(), target));
}

/// The sum over all elements of a b. Throws shape_error.
template <class As = by_category, recording_context Context, class A, class B, int Rank>
auto dot(Context&& context, const variable<A, Rank>& a, const variable<B, Rank>& b) {
    if (!(a.shape() == b.shape())) fail<shape_error>("dot: one input is ", a.shape(), ", the other ", b.shape());
    return detail::reduce<op::dot, chosen_output<As, policy_of<Context>, op::dot, A, B>>(
        context, 1.0, detail::multiply_function{}, a, b);
}

/// The square root of the sum of all squares, which are summed in float (for doubles in double): numbers beyond 2^63
/// (2^511) overflow. Its gradient at zero is zero.
template <class As = by_category, recording_context Context, class X, int Rank>
auto norm(Context&& context, const variable<X, Rank>& x) {
    const auto squares = detail::reduce<op::norm, detail::loss_type<X>>(
        context, 1.0, [](auto a) { return halftone::square(a); }, x);
    return detail::pointwise<op::norm, chosen_output<As, policy_of<Context>, op::norm, X>>(
        context, [](auto s) { return halftone::where(s == 0, 0, halftone::sqrt(s)); }, squares);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
