// SPDX-License-Identifier: MIT
/// \file
/// Sums over all elements, with their gradients: sum, mean, mean squared error.
///
///     auto total = ht::sum(ctx, x);
///     auto loss = ht::mean_squared_error(ctx, prediction, target);     // a float in regions and outside, as all losses
///
/// Numeric contract: that of kernel/sum; the result is rounded once. Under autocast a sum is fp32, and a mean has its
/// input's type (PyTorch's categories); on a bare tape both have their input's type. ht::sum<float>(ctx, x) returns a
/// float in every context.
#pragma once

#include <tuple>

#include <halftone/autodiff/op/pointwise.hpp>
#include <halftone/kernel/sum/sum.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class Op, class Expression, class Y, class... Inputs>
struct reduce_record : kept_operands<Y, 0, Inputs...> {
    using operation = Op;
    struct reads {
        template <std::size_t I, std::size_t By>
        static constexpr bool value =
            halftone::reads<static_cast<int>(I), decltype(derivative<static_cast<int>(By)>(std::declval<Expression>()))>;
    };
    static constexpr std::size_t count = sizeof...(Inputs);
    Expression expression;
    double factor;

    template <class Tape>
    void propagate(Tape& tape) {
        give_each(tape, std::index_sequence_for<Inputs...>{});
    }

  private:
    template <class Tape, std::size_t... I>
    void give_each(Tape& tape, std::index_sequence<I...> all) {
        (give<I>(tape, all), ...);
    }
    template <std::size_t I, class Tape, std::size_t... J>
    void give(Tape& tape, std::index_sequence<J...>) {
        contribute(tape, std::get<I>(this->gradients), [&](const auto& dx) {
            const auto out = flatten(dx);
            const auto slope = factor * symbolic::argument<count>{} * derivative<static_cast<int>(I)>(expression);
            kernel::map<typename Tape::device_type>::run(tape.device(), make_pack(slope), make_pack(out),
                                                         make_pack(values<J>(out.shape())..., as_const(this->dy.view())));
        });
    }
    template <std::size_t I>
    auto values(const shape<1>& all) const {
        const auto& kept = std::get<I>(this->inputs);
        using T = typename std::tuple_element_t<I, std::tuple<Inputs...>>::value_type;
        return const_view<T, 1>(kept.is_empty() ? nullptr : kept.view().data(), all);
    }
};

/// factor times the sum over all elements of f. The inputs have the same shape.
template <class Op, class Y, class Context, class F, class... Inputs>
variable<Y, 0> reduce(Context&& context, double factor, const F& f, const Inputs&... inputs) {
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(Op::name);
    const bool wanted = (inputs.wants_gradient() || ...);
    auto y = root.template make<Y>(shape<0>{}, wanted);
    const auto e = halftone::trace<sizeof...(Inputs)>(f);
    kernel::sum<typename std::remove_cvref_t<Context>::device_type>::run(
        root.device(), e, make_pack(as_const(flatten(inputs))...), factor, y.view());
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            using traced = std::remove_const_t<decltype(e)>;
            root.record(reduce_record<Op, traced, Y, Inputs...>{
                kept_operands<Y, 0, Inputs...>::of(y, kept_inputs<traced, Inputs...>::each(), inputs...), e, factor});
        }
    }
    return y;
}

struct identity_function {
    constexpr auto operator()(auto a) const { return a; }
};
struct squared_difference_function {
    constexpr auto operator()(auto a, auto b) const { return halftone::square(a - b); }
};

}  // namespace detail

/// The sum of all elements.
template <class As = by_category, recording_context Context, class X, int Rank>
auto sum(Context&& context, const variable<X, Rank>& x) {
    return detail::reduce<op::sum, chosen_output<As, policy_of<Context>, op::sum, X>>(context, 1.0,
                                                                                      detail::identity_function{}, x);
}

/// The mean of all elements; NaN for an empty tensor.
template <class As = by_category, recording_context Context, class X, int Rank>
auto mean(Context&& context, const variable<X, Rank>& x) {
    return detail::reduce<op::mean, chosen_output<As, policy_of<Context>, op::mean, X>>(
        context, 1.0 / static_cast<double>(x.size()), detail::identity_function{}, x);
}

/// The mean over all elements of (prediction - target)^2. Gradients flow into both. Throws shape_error.
template <recording_context Context, class X, class T, int Rank>
auto mean_squared_error(Context&& context, const variable<X, Rank>& prediction, const variable<T, Rank>& target) {
    using Y = detail::loss_output<policy_of<Context>, op::mse_loss, X, T>;
    if (!(prediction.shape() == target.shape())) {
        fail<shape_error>("mean_squared_error: the prediction is ", prediction.shape(), ", the target ",
                          target.shape());
    }
    const double factor = 1.0 / static_cast<double>(prediction.size());
    return detail::reduce<op::mse_loss, Y>(context, factor, detail::squared_difference_function{}, prediction, target);
}

/// The mean over all elements of (prediction - target)^2 for a target that may be in host memory and takes no gradient;
/// memory that the device can read must stay unchanged until the backward pass has run.
template <recording_context Context, class X, class T, int Rank>
auto mean_squared_error(Context&& context, const variable<X, Rank>& prediction, const view<T, Rank>& target) {
    return mean_squared_error(context, prediction, context.root().to_device(target));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
