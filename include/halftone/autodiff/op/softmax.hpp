// SPDX-License-Identifier: MIT
/// \file
/// Softmax over the last axis, and its logarithm, with their gradients.
///
///     auto probabilities = ht::softmax(ht::autocast<ht::full_fp32>(ctx), scores);       // (…, classes)
///     auto sharper = ht::softmax(ctx, scores, 2.0f);                                    // the softmax of 2 scores
///     auto wide = ht::softmax<float>(ctx, scores);                                      // float results, in any region
///
/// Numeric contract: kernel/softmax's. The result is fp32 under autocast (PyTorch's category); on a bare tape it has
/// the input's type.
#pragma once

#include <halftone/autodiff/op/pointwise.hpp>
#include <halftone/kernel/softmax/softmax.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class Op, template <class> class Kernel, class X, class Y, int Rank>
struct softmax_record {
    using operation = Op;
    variable<Y, Rank> y;
    gradient_of<X, Rank> dx;
    gradient_of<Y, Rank> dy;
    kernel::statistic<X, Y> scale;

    template <class Tape>
    void propagate(Tape& tape) {
        const auto to = tape.gradient_target(dx);
        Kernel<typename Tape::device_type>::backward(
            tape.device(), kernel::softmax_backward<X, Y>{.y = as_rows(y),
                                                          .dy = as_rows(dy),
                                                          .dx = as_rows(view(to.data, dx.shape())),
                                                          .scale = scale,
                                                          .mode = to.mode});
    }
};

template <class Op, class As, template <class> class Kernel, class Context, class X, int Rank>
auto softmax_of(Context&& context, const variable<X, Rank>& x, double factor) {
    using Y = chosen_output<As, policy_of<Context>, Op, X>;
    const auto scale = static_cast<kernel::statistic<X, Y>>(factor);
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(Op::name);
    const bool wanted = x.wants_gradient();
    auto y = root.template make<Y>(x.shape(), wanted);
    Kernel<typename std::remove_cvref_t<Context>::device_type>::forward(
        root.device(), kernel::softmax_forward<X, Y>{.x = as_rows(x), .y = as_rows(y), .scale = scale});
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) root.record(softmax_record<Op, Kernel, X, Y, Rank>{y, gradient_of(x), gradient_of(y), scale});
    }
    return y;
}

}  // namespace detail

/// exp(scale x) / (the sum of exp(scale x) over the last axis), in x's shape, of any rank but 0; recorded with its
/// gradient with respect to x. Computed in float (for doubles in double); the result is rounded once: to float in a
/// region, to x's type outside, or to As. -infinity gives exactly 0, a row of only -infinity NaN.
/// kernel/softmax/softmax.hpp has the contract.
template <class As = by_category, recording_context Context, class X, int Rank>
auto softmax(Context&& context, const variable<X, Rank>& x, double scale = 1) {
    return detail::softmax_of<op::softmax, As, kernel::softmax>(context, x, scale);
}

/// scale x - log(the sum of exp(scale x) over the last axis), in x's shape and with types as softmax; recorded with its
/// gradient with respect to x. -infinity gives -infinity.
template <class As = by_category, recording_context Context, class X, int Rank>
auto log_softmax(Context&& context, const variable<X, Rank>& x, double scale = 1) {
    return detail::softmax_of<op::log_softmax, As, kernel::log_softmax>(context, x, scale);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
