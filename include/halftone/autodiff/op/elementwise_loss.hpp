// SPDX-License-Identifier: MIT
/// \file
/// Elementwise losses, which compare a prediction with a target of its shape, and further reductions: the dot product
/// and the norm.
///
///     auto loss = ht::huber_loss(ctx, prediction, target, 0.5f);
///     auto loss = ht::binary_cross_entropy_with_logits(ctx, logits, labels);         // labels: 0 to 1, of any number type
///     auto length = ht::norm(ctx, x);
///
/// A loss is the mean over all elements, their sum, or, with ht::l1_loss<ht::reduction::none>(ctx, x, target), a loss
/// for each element in the prediction's shape (autodiff/op/reduction.hpp). It is a float in regions, by its category,
/// and also on a bare tape, where PyTorch gives the inputs' type (for doubles a double). Gradients flow into both
/// inputs. A target may also be a view of host memory or of the device's; memory that the device can read must stay
/// unchanged until the backward pass has run.
///
/// Numeric contract: kernel/sum's, with one rounding at the end.
#pragma once

#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/autodiff/op/reduction.hpp>

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

/// The mean of f over all elements, or the sum; with reduction::none as the template argument f of each.
template <class Op, reduction Reduction = reduction::mean, class Context, class F, class X, class T, int Rank>
auto loss_of(Context&& context, const F& f, const variable<X, Rank>& prediction, const variable<T, Rank>& target,
             reduction chosen = reduction::mean) {
    using Y = loss_output<policy_of<Context>, Op, X, T>;
    if (!(prediction.shape() == target.shape())) {
        fail<shape_error>(Op::name, ": the prediction is ", prediction.shape(), ", the target ", target.shape());
    }
    if constexpr (Reduction == reduction::none) {
        return detail::evaluate<Op, Y>(context, prediction.shape(), halftone::trace<2>(f), prediction, target);
    } else {
        check_reduces(Op::name, chosen);
        const double factor = chosen == reduction::sum ? 1.0 : 1.0 / static_cast<double>(prediction.size());
        return detail::reduce<Op, Y>(context, factor, f, prediction, target);
    }
}

struct absolute_difference_function {
    constexpr auto operator()(auto x, auto t) const { return halftone::abs(x - t); }
};
struct smooth_difference_function {
    double beta;
    constexpr auto operator()(auto x, auto t) const {
        const auto d = x - t;
        return halftone::where(halftone::abs(d) < beta, (0.5 / beta) * halftone::square(d), halftone::abs(d) - 0.5 * beta);
    }
};
struct huber_difference_function {
    double delta;
    constexpr auto operator()(auto x, auto t) const {
        const auto d = x - t;
        return halftone::where(halftone::abs(d) < delta, 0.5 * halftone::square(d),
                               delta * (halftone::abs(d) - 0.5 * delta));
    }
};
struct logistic_loss_function {
    constexpr auto operator()(auto x, auto t) const {
        return (halftone::max(x, 0) - x * t) + halftone::softplus(-halftone::abs(x));
    }
};
struct binary_cross_entropy_function {
    constexpr auto operator()(auto x, auto t) const { return symbolic::binary_cross_entropy(x, t); }
};
inline void check_beta(double beta) {
    if (!(beta > 0))
        fail<argument_error>("smooth_l1_loss: beta is ", beta,
                             "; expected a positive number: l1_loss is the limit at 0");
}
inline void check_delta(double delta) {
    if (!(delta > 0)) fail<argument_error>("huber_loss: delta is ", delta, "; expected a positive number");
}

}  // namespace detail

/// The mean of |prediction - target|, or the sum.
template <recording_context Context, class X, int Rank, class Target>
auto l1_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target,
             reduction chosen = reduction::mean) {
    return detail::loss_of<op::l1_loss>(context, detail::absolute_difference_function{}, prediction,
                                        detail::as_target(context.root(), target), chosen);
}

/// The mean, or the sum, of d^2 / (2 beta) if |d| < beta, otherwise of |d| - beta / 2, where d is prediction - target.
/// Throws argument_error for a beta that is not positive.
template <recording_context Context, class X, int Rank, class Target>
auto smooth_l1_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target, double beta = 1,
                    reduction chosen = reduction::mean) {
    detail::check_beta(beta);
    return detail::loss_of<op::smooth_l1_loss>(context, detail::smooth_difference_function{beta}, prediction,
                                               detail::as_target(context.root(), target), chosen);
}

/// The mean, or the sum, of d^2 / 2 if |d| < delta, otherwise of delta (|d| - delta / 2), where d is prediction -
/// target (Huber 1964). Throws argument_error for a delta that is not positive.
template <recording_context Context, class X, int Rank, class Target>
auto huber_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target, double delta = 1,
                reduction chosen = reduction::mean) {
    detail::check_delta(delta);
    return detail::loss_of<op::huber_loss>(context, detail::huber_difference_function{delta}, prediction,
                                           detail::as_target(context.root(), target), chosen);
}

/// The mean, or the sum, of -target log(p) - (1 - target) log(1 - p), where p is sigmoid(logit); computed from the
/// logit, so that it neither overflows nor cancels.
template <recording_context Context, class X, int Rank, class Target>
auto binary_cross_entropy_with_logits(Context&& context, const variable<X, Rank>& logits, const Target& target,
                                      reduction chosen = reduction::mean) {
    return detail::loss_of<op::binary_cross_entropy_with_logits>(context, detail::logistic_loss_function{}, logits,
                                                                 detail::as_target(context.root(), target), chosen);
}

/// The mean, or the sum, of -target log(p) - (1 - target) log(1 - p), each logarithm at least -100. The gradient of p
/// is PyTorch's, (p - target) / max(p (1 - p), 1e-12), which does not vanish at p = 0 and 1. Banned under autocast to
/// low precision, as in PyTorch: it does not compile there.
template <recording_context Context, class X, int Rank, class Target>
auto binary_cross_entropy(Context&& context, const variable<X, Rank>& p, const Target& target,
                          reduction chosen = reduction::mean) {
    return detail::loss_of<op::binary_cross_entropy>(context, detail::binary_cross_entropy_function{}, p,
                                                     detail::as_target(context.root(), target), chosen);
}

/// The mean of (prediction - target)^2, which is mean_squared_error, or the sum.
template <recording_context Context, class X, int Rank, class Target>
auto mse_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target,
              reduction chosen = reduction::mean) {
    return detail::loss_of<op::mse_loss>(context, detail::squared_difference_function{}, prediction,
                                         detail::as_target(context.root(), target), chosen);
}

// A loss for each element, in the prediction's shape.

/// (prediction - target)^2 of each element.
template <reduction Reduction, recording_context Context, class X, int Rank, class Target>
    requires(Reduction == reduction::none)
auto mse_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target) {
    return detail::loss_of<op::mse_loss, Reduction>(context, detail::squared_difference_function{}, prediction,
                                                    detail::as_target(context.root(), target));
}

/// |prediction - target| of each element.
template <reduction Reduction, recording_context Context, class X, int Rank, class Target>
    requires(Reduction == reduction::none)
auto l1_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target) {
    return detail::loss_of<op::l1_loss, Reduction>(context, detail::absolute_difference_function{}, prediction,
                                                   detail::as_target(context.root(), target));
}
/// smooth_l1_loss of each element.
template <reduction Reduction, recording_context Context, class X, int Rank, class Target>
    requires(Reduction == reduction::none)
auto smooth_l1_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target, double beta = 1) {
    detail::check_beta(beta);
    return detail::loss_of<op::smooth_l1_loss, Reduction>(context, detail::smooth_difference_function{beta}, prediction,
                                                          detail::as_target(context.root(), target));
}
/// huber_loss of each element.
template <reduction Reduction, recording_context Context, class X, int Rank, class Target>
    requires(Reduction == reduction::none)
auto huber_loss(Context&& context, const variable<X, Rank>& prediction, const Target& target, double delta = 1) {
    detail::check_delta(delta);
    return detail::loss_of<op::huber_loss, Reduction>(context, detail::huber_difference_function{delta}, prediction,
                                                      detail::as_target(context.root(), target));
}
/// binary_cross_entropy_with_logits of each element.
template <reduction Reduction, recording_context Context, class X, int Rank, class Target>
    requires(Reduction == reduction::none)
auto binary_cross_entropy_with_logits(Context&& context, const variable<X, Rank>& logits, const Target& target) {
    return detail::loss_of<op::binary_cross_entropy_with_logits, Reduction>(
        context, detail::logistic_loss_function{}, logits, detail::as_target(context.root(), target));
}
/// binary_cross_entropy of each element.
template <reduction Reduction, recording_context Context, class X, int Rank, class Target>
    requires(Reduction == reduction::none)
auto binary_cross_entropy(Context&& context, const variable<X, Rank>& p, const Target& target) {
    return detail::loss_of<op::binary_cross_entropy, Reduction>(context, detail::binary_cross_entropy_function{}, p,
                                                                detail::as_target(context.root(), target));
}

/// The sum over all elements of a b. Throws shape_error.
template <class As = by_category, recording_context Context, class A, class B, int Rank>
auto dot(Context&& context, const variable<A, Rank>& a, const variable<B, Rank>& b) {
    if (!(a.shape() == b.shape())) fail<shape_error>("dot: one input is ", a.shape(), ", the other ", b.shape());
    return detail::reduce<op::dot, chosen_output<As, policy_of<Context>, op::dot, A, B>>(
        context, 1.0, detail::multiply_function{}, a, b);
}

/// The square root of the sum of all squares, which are summed in float (for doubles in double), as in PyTorch: numbers
/// beyond 2^63 (2^511) may overflow, and then their gradients are 0; numbers below 2^-75 (2^-538) count as zero, and below
/// 2^-63 (2^-511) lose bits. The norm by which gradients are clipped has no such limits (kernel/gradient_norm). Its gradient
/// at zero is zero.
template <class As = by_category, recording_context Context, class X, int Rank>
auto norm(Context&& context, const variable<X, Rank>& x) {
    const auto squares = detail::reduce<op::norm, detail::loss_type<X>>(
        context, 1.0, [](auto a) { return halftone::square(a); }, x);
    return detail::pointwise<op::norm, chosen_output<As, policy_of<Context>, op::norm, X>>(
        context, [](auto s) { return halftone::where(s == 0, 0, halftone::sqrt(s)); }, squares);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
