// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on a tape, with their gradients; names and rules are those of PyTorch's functions with `dim`:
///
///     auto totals = ht::sum(ctx, x, ht::axes<0, 2>);                          // x: (4, 5, 6), totals: (5)
///     auto centred = ht::var(ctx, x, ht::axes<-1>, ht::keepdim);              // (4, 5, 1)
///     auto biased = ht::var(ctx, x, ht::axes<-1>, {.correction = 0});
///     auto best = ht::argmax(ctx, x, ht::axes<1>);                            // (4, 6), of std::int32_t
///     auto attention = ht::softmax(ctx, x, ht::axes<1>);                      // along an axis other than the last
///
/// Numeric contract: that of kernel/axis_reduction. Under autocast the results of sum, prod, logsumexp, cumsum and
/// softmax are fp32; mean, var, std, amax and amin have their input's type (PyTorch's categories), as all do on a bare
/// tape. ht::sum<float>(ctx, x, ht::axes<1>) returns floats in every context. Indices are std::int32_t, like tokens and
/// targets.
#pragma once

#include <halftone/autodiff/engine/gradient_variables.hpp>
#include <halftone/autodiff/op/join.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/autodiff/op/softmax.hpp>
#include <halftone/kernel/axis_reduction/along/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class>
struct all_axes;
template <int... I>
struct all_axes<std::integer_sequence<int, I...>> {
    using type = axis_list<I...>;
};
/// All axes of a tensor of this rank.
template <int Rank>
using every_axis = typename all_axes<std::make_integer_sequence<int, Rank>>::type;

template <int Rank, class Along>
inline constexpr int rank_without = Rank - Along::count;

/// The number of elements that are reduced to one output.
template <int Rank, int... Axes>
extent reduced_size(const shape<Rank>& s, axis_list<Axes...>) {
    extent size = 1;
    for (const int axis : resolved_axes<Rank, Axes...>::values) size *= s[axis];
    return size;
}

/// The values that the gradient of a reduction reads. `kept` is empty if the gradient reads no values.
template <class Op, kernel::axis_operation Kind, class X, int Rank, class Y, class Along>
struct axis_record {
    using operation = Op;
    static constexpr bool reads_x = Kind != kernel::axis_operation::sum;
    static constexpr bool reads_kept = reads_x && Kind != kernel::axis_operation::prod;
    static constexpr int roundings = 1;
    struct reads {
        template <std::size_t, std::size_t>
        static constexpr bool value = reads_x;
    };
    double factor;
    variable<X, Rank> x;
    variable<kernel::statistic<X, Y>, 1> kept;
    variable<Y, rank_without<Rank, Along>> y;
    std::tuple<gradient_of<X, Rank>> gradients;
    gradient_of<Y, rank_without<Rank, Along>> dy;

    const gradient_of<X, Rank>& dx() const { return std::get<0>(gradients); }
    extent sum_length() const { return reduced_size(dx().shape(), Along{}) + 16; }

    template <class Tape>
    void propagate(Tape& tape) {
        if (const auto to = tape.gradient_target(dx())) {
            const view<X, Rank> out(to.data, dx().shape());
            kernel::axis_reduction<typename Tape::device_type>::backward(
                tape.device(), kernel::reduction_gradient<X, Y>{.x = x.is_empty() ? out.data() : x.view().data(),
                                                                .layout = kernel::axis_layout_of(out, Along{}),
                                                                .kept = kept.is_empty() ? nullptr : kept.view().data(),
                                                                .dy = as_const(dy.view()).data(),
                                                                .dx = out.data(),
                                                                .operation = Kind,
                                                                .factor = factor,
                                                                .mode = to.mode});
        }
    }
};

/// Memory for the values that the gradient of a reduction reads. Watched tapes do not show it, since it differs from
/// the result only by a rounding.
template <class S>
variable<S, 1> unrounded_results(graph& g, extent count) {
    const auto block = g.make_block(static_cast<std::size_t>(count) * sizeof(S));
    return {g, g.make_result(block, false), shape<1>{count}};
}

/// A reduction of x along these axes.
template <class Op, kernel::axis_operation Kind, class Y, class Context, class X, int Rank, int... Axes>
auto reduce_axes(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, double factor) {
    using S = kernel::statistic<X, Y>;
    using record = axis_record<Op, Kind, X, Rank, Y, axis_list<Axes...>>;
    constexpr int out = rank_without<Rank, axis_list<Axes...>>;
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(Op::name);
    const bool wanted = std::remove_cvref_t<Context>::records && x.wants_gradient();
    const auto layout = kernel::axis_layout_of(x.view(), along);
    variable<Y, out> y = root.template make<Y>(without_axes(x.shape(), along), wanted);
    variable<S, 1> kept;
    if constexpr (record::reads_kept && std::remove_cvref_t<Context>::records) {
        if (wanted) kept = unrounded_results<S>(root.graph(), kernel::kept_values(Kind, layout));
    }
    kernel::axis_reduction<typename std::remove_cvref_t<Context>::device_type>::run(
        root.device(), kernel::reduction<X, Y>{.x = x.view().data(),
                                               .layout = layout,
                                               .y = y.view().data(),
                                               .operation = Kind,
                                               .factor = factor,
                                               .kept = kept.is_empty() ? nullptr : kept.view().data()});
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            constexpr bool keeps_y = Kind == kernel::axis_operation::logsumexp;
            root.record(record{factor,
                               record::reads_x ? x : variable<X, Rank>{},
                               kept,
                               keeps_y ? y : variable<Y, out>{},
                               {gradient_of(x)},
                               gradient_of(y)});
        }
    }
    return y;
}

/// The transpose of a sum: each value, times a factor, at all positions of the reduced axes.
template <class Op, class From, class T, int Rank, class Along>
struct spread_record {
    using operation = Op;
    using reads = reads_nothing;
    double factor;
    std::tuple<gradient_of<From, rank_without<Rank, Along>>> gradients;
    gradient_of<T, Rank> dy;

    template <class Tape>
    void propagate(Tape& tape) {
        if (const auto to = tape.gradient_target(std::get<0>(gradients))) {
            const auto from = as_const(dy.view());
            kernel::axis_reduction<typename Tape::device_type>::run(
                tape.device(), kernel::reduction<T, From>{.x = from.data(),
                                                          .layout = kernel::axis_layout_of(from, Along{}),
                                                          .y = to.data,
                                                          .factor = factor,
                                                          .mode = to.mode});
        }
    }
};
template <class Op, class T, class Root, class From, int Kept, int Rank, int... Axes>
variable<T, Rank> spread(Root& root, const variable<From, Kept>& v, const shape<Rank>& s, axis_list<Axes...> along,
                         double factor = 1) {
    const bool wanted = v.wants_gradient();
    auto y = root.template make<T>(s, wanted);
    const auto layout = kernel::axis_layout_of(y.view(), along);
    kernel::axis_reduction<typename Root::device_type>::backward(
        root.device(), kernel::reduction_gradient<T, From>{.x = y.view().data(),
                                                           .layout = layout,
                                                           .kept = nullptr,
                                                           .dy = v.view().data(),
                                                           .dx = y.view().data(),
                                                           .factor = factor});
    if constexpr (Root::records) {
        if (wanted)
            root.record(spread_record<Op, From, T, Rank, axis_list<Axes...>>{factor, {gradient_of(v)}, gradient_of(y)});
    }
    return y;
}

template <class X, class Y, int Rank, int Axis>
struct cumsum_record {
    using operation = op::cumsum;
    using reads = reads_nothing;
    bool is_reversed;
    std::tuple<gradient_of<X, Rank>> gradients;
    gradient_of<Y, Rank> dy;

    const gradient_of<X, Rank>& dx() const { return std::get<0>(gradients); }

    template <class Tape>
    void propagate(Tape& tape) {
        if (const auto to = tape.gradient_target(dx())) {
            kernel::axis_reduction<typename Tape::device_type>::accumulate(
                tape.device(), kernel::running_sum<Y, X>{as_const(dy.view()).data(), around_axis<Axis>(dx().shape()),
                                                         to.data, !is_reversed, to.mode});
        }
    }
};
template <class Y, int Axis, class Context, class X, int Rank>
variable<Y, Rank> running_sums(Context&& context, const variable<X, Rank>& x, bool is_reversed) {
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::cumsum::name);
    const bool wanted = x.wants_gradient();
    auto y = root.template make<Y>(x.shape(), wanted);
    kernel::axis_reduction<typename std::remove_cvref_t<Context>::device_type>::accumulate(
        root.device(),
        kernel::running_sum<X, Y>{x.view().data(), around_axis<Axis>(x.shape()), y.view().data(), is_reversed});
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) root.record(cumsum_record<X, Y, Rank, Axis>{is_reversed, {gradient_of(x)}, gradient_of(y)});
    }
    return y;
}

/// Indices of the largest or smallest elements.
template <class Context, class X, int Rank, int... Axes>
auto indices_along(Context&& context, const char* name, kernel::axis_operation operation, const variable<X, Rank>& x,
                   axis_list<Axes...> along) {
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(name);
    const auto layout = kernel::axis_layout_of(x.view(), along);
    expect_indices(name, layout);
    auto y = root.template make<std::int32_t>(without_axes(x.shape(), along), false);
    kernel::axis_reduction<typename std::remove_cvref_t<Context>::device_type>::index(
        root.device(), kernel::reduction_index<X>{x.view().data(), layout, y.view().data(), operation});
    return y;
}

/// The result; with ht::keepdim among the arguments the reduced axes are kept, with extent 1.
template <class Context, class Y, int Out, int Rank, int... Axes>
auto with_kept_axes(Context&&, const variable<Y, Out>& y, const shape<Rank>&, axis_list<Axes...>) {
    return y;
}
template <class Context, class Y, int Out, int Rank, int... Axes>
auto with_kept_axes(Context&& context, const variable<Y, Out>& y, const shape<Rank>& s, axis_list<Axes...> along,
                    keep_axes) {
    return halftone::reshape(context, y, with_ones(s, along));
}
template <class... Keep>
concept perhaps_keepdim = sizeof...(Keep) <= 1 && (std::is_same_v<Keep, keep_axes> && ...);

struct exp_function {
    constexpr auto operator()(auto a) const { return halftone::exp(a); }
};
struct divide_function {
    constexpr auto operator()(auto a, auto b) const { return a / b; }
};
struct less_log_function {
    constexpr auto operator()(auto a, auto b) const { return a - halftone::log(b); }
};

template <int Rank, int... Axes>
inline constexpr bool is_last_axis = sizeof...(Axes) == 1 && resolved_axes<Rank, Axes...>::contains(Rank - 1);

}  // namespace detail

/// The sums along some axes, as torch.sum(x, dim); 0 if there are no elements. With ht::keepdim the result keeps these
/// axes, with extent 1.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes, class... Keep>
    requires detail::perhaps_keepdim<Keep...>
auto sum(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, Keep... keep) {
    using Y = chosen_output<As, policy_of<Context>, op::sum, X>;
    return detail::with_kept_axes(context,
                                  detail::reduce_axes<op::sum, kernel::axis_operation::sum, Y>(context, x, along, 1.0),
                                  x.shape(), along, keep...);
}

/// The means along some axes, as torch.mean(x, dim); NaN if there are no elements. ht::keepdim as for sum.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes, class... Keep>
    requires detail::perhaps_keepdim<Keep...>
auto mean(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, Keep... keep) {
    using Y = chosen_output<As, policy_of<Context>, op::mean, X>;
    return detail::with_kept_axes(
        context,
        detail::reduce_axes<op::mean, kernel::axis_operation::sum, Y>(
            context, x, along, 1.0 / static_cast<double>(detail::reduced_size(x.shape(), along))),
        x.shape(), along, keep...);
}

/// The products along some axes, as torch.prod(x, dim) along one; 1 if there are no elements. The gradient of an
/// element is the product of the other elements times dy, also if elements are zero. There is no second derivative.
/// ht::keepdim as for sum.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes, class... Keep>
    requires detail::perhaps_keepdim<Keep...>
auto prod(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, Keep... keep) {
    using Y = chosen_output<As, policy_of<Context>, op::prod, X>;
    return detail::with_kept_axes(context,
                                  detail::reduce_axes<op::prod, kernel::axis_operation::prod, Y>(context, x, along, 1.0),
                                  x.shape(), along, keep...);
}
/// The product of all elements.
template <class As = by_category, recording_context Context, class X, int Rank>
auto prod(Context&& context, const variable<X, Rank>& x) {
    return halftone::prod<As>(context, x, detail::every_axis<Rank>{});
}

/// The largest elements along some axes, as torch.amax: NaN if one of them is NaN; elements that are equally large
/// share the gradient evenly. ht::keepdim as for sum. Throws shape_error if there are no elements.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes, class... Keep>
    requires detail::perhaps_keepdim<Keep...>
auto amax(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, Keep... keep) {
    using Y = chosen_output<As, policy_of<Context>, op::amax, X>;
    kernel::expect_elements("amax", kernel::axis_layout_of(x.view(), along));
    return detail::with_kept_axes(
        context, detail::reduce_axes<op::amax, kernel::axis_operation::amax, Y>(context, x, along, 1.0), x.shape(),
        along, keep...);
}
/// The largest of all elements; NaN if one of them is NaN.
template <class As = by_category, recording_context Context, class X, int Rank>
auto amax(Context&& context, const variable<X, Rank>& x) {
    return halftone::amax<As>(context, x, detail::every_axis<Rank>{});
}

/// The smallest elements along some axes; otherwise like amax.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes, class... Keep>
    requires detail::perhaps_keepdim<Keep...>
auto amin(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, Keep... keep) {
    using Y = chosen_output<As, policy_of<Context>, op::amin, X>;
    kernel::expect_elements("amin", kernel::axis_layout_of(x.view(), along));
    return detail::with_kept_axes(
        context, detail::reduce_axes<op::amin, kernel::axis_operation::amin, Y>(context, x, along, 1.0), x.shape(),
        along, keep...);
}
/// The smallest of all elements; NaN if one of them is NaN.
template <class As = by_category, recording_context Context, class X, int Rank>
auto amin(Context&& context, const variable<X, Rank>& x) {
    return halftone::amin<As>(context, x, detail::every_axis<Rank>{});
}

/// log(the sum of exp(x) along some axes), as torch.logsumexp, without overflow; -infinity if there are no elements or
/// all are -infinity. ht::keepdim as for sum.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes, class... Keep>
    requires detail::perhaps_keepdim<Keep...>
auto logsumexp(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, Keep... keep) {
    using Y = chosen_output<As, policy_of<Context>, op::logsumexp, X>;
    return detail::with_kept_axes(
        context, detail::reduce_axes<op::logsumexp, kernel::axis_operation::logsumexp, Y>(context, x, along, 1.0),
        x.shape(), along, keep...);
}
/// The logarithm of the sum of the exponentials of all elements.
template <class As = by_category, recording_context Context, class X, int Rank>
auto logsumexp(Context&& context, const variable<X, Rank>& x) {
    return halftone::logsumexp<As>(context, x, detail::every_axis<Rank>{});
}

/// The variances along some axes, as torch.var: sum (x - mean)^2 / (n - correction). The default is the unbiased
/// estimate, which is NaN for one element. ht::keepdim as for sum.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes>
auto var(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, const var_options& options = {}) {
    using Y = chosen_output<As, policy_of<Context>, op::var, X>;
    const double factor = detail::variance_factor(detail::reduced_size(x.shape(), along), options);
    return detail::reduce_axes<op::var, kernel::axis_operation::var, Y>(context, x, along, factor);
}
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes>
auto var(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, keep_axes keep,
         const var_options& options = {}) {
    return detail::with_kept_axes(context, halftone::var<As>(context, x, along, options), x.shape(), along, keep);
}
/// The variance of all elements.
template <class As = by_category, recording_context Context, class X, int Rank>
auto var(Context&& context, const variable<X, Rank>& x, const var_options& options = {}) {
    return halftone::var<As>(context, x, detail::every_axis<Rank>{}, options);
}

/// The standard deviations along some axes, as torch.std: the square roots of var, also where var is beyond float's
/// range. The gradient of a deviation of 0 is 0.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes>
auto std(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, const var_options& options = {}) {
    using Y = chosen_output<As, policy_of<Context>, op::std_dev, X>;
    const double factor = detail::variance_factor(detail::reduced_size(x.shape(), along), options);
    return detail::reduce_axes<op::std_dev, kernel::axis_operation::std_dev, Y>(context, x, along, factor);
}
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes>
auto std(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, keep_axes keep,
         const var_options& options = {}) {
    return detail::with_kept_axes(context, halftone::std<As>(context, x, along, options), x.shape(), along, keep);
}
/// The standard deviation of all elements.
template <class As = by_category, recording_context Context, class X, int Rank>
auto std(Context&& context, const variable<X, Rank>& x, const var_options& options = {}) {
    return halftone::std<As>(context, x, detail::every_axis<Rank>{}, options);
}

/// The indices of the largest elements along one axis, as torch.argmax(x, dim): the first of equal ones; NaN is larger
/// than any number. They are std::int32_t, without gradient. ht::keepdim as for sum. Throws shape_error if there are no
/// elements, or if an index does not fit into 32 bits.
template <recording_context Context, class X, int Rank, int... Axes, class... Keep>
    requires detail::perhaps_keepdim<Keep...>
auto argmax(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, Keep... keep) {
    static_assert(detail::only_axis<Rank>(axis_list<Axes...>{}) >= 0);
    return detail::with_kept_axes(context,
                                  detail::indices_along(context, "argmax", kernel::axis_operation::amax, x, along),
                                  x.shape(), along, keep...);
}
/// The index of the largest of all elements, counted in row-major order.
template <recording_context Context, class X, int Rank>
auto argmax(Context&& context, const variable<X, Rank>& x) {
    return detail::indices_along(context, "argmax", kernel::axis_operation::amax, x, detail::every_axis<Rank>{});
}
/// The indices of the smallest elements along one axis; otherwise like argmax.
template <recording_context Context, class X, int Rank, int... Axes, class... Keep>
    requires detail::perhaps_keepdim<Keep...>
auto argmin(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along, Keep... keep) {
    static_assert(detail::only_axis<Rank>(axis_list<Axes...>{}) >= 0);
    return detail::with_kept_axes(context,
                                  detail::indices_along(context, "argmin", kernel::axis_operation::amin, x, along),
                                  x.shape(), along, keep...);
}
/// The index of the smallest of all elements, counted in row-major order.
template <recording_context Context, class X, int Rank>
auto argmin(Context&& context, const variable<X, Rank>& x) {
    return detail::indices_along(context, "argmin", kernel::axis_operation::amin, x, detail::every_axis<Rank>{});
}

/// The cumulative sums along one axis, as torch.cumsum(x, dim), in x's shape; computed in double.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes>
auto cumsum(Context&& context, const variable<X, Rank>& x, axis_list<Axes...>) {
    using Y = chosen_output<As, policy_of<Context>, op::cumsum, X>;
    return detail::running_sums<Y, detail::only_axis<Rank>(axis_list<Axes...>{})>(context, x, false);
}

namespace detail {

/// x minus the largest element along some axes. The largest element counts as a constant in the gradient, since
/// subtracting a constant changes neither softmax nor its logarithm.
template <class Op, class S, class Context, class X, int Rank, int... Axes>
variable<S, Rank> less_largest(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along) {
    auto& root = context.root();
    const auto constant = root.detach(x);
    const auto largest = reduce_axes<op::amax, kernel::axis_operation::amax, S>(context, constant, along, 1.0);
    return evaluate<Op, S>(context, x.shape(), halftone::trace<2>(subtract_function{}), x,
                           spread<Op, S>(root, largest, x.shape(), along));
}
template <class Op, class S, class Context, int Rank, int... Axes>
variable<S, Rank> total_along(Context&& context, const variable<S, Rank>& x, axis_list<Axes...> along) {
    return spread<Op, S>(context.root(), reduce_axes<op::sum, kernel::axis_operation::sum, S>(context, x, along, 1.0),
                         x.shape(), along);
}

}  // namespace detail

/// Softmax along some axes: exp(x) / (the sum of exp(x) along them), in x's shape. Along only the last axis it is
/// ht::softmax; otherwise it is composed of several operations, which takes more memory. Types are those of
/// ht::softmax. Throws shape_error.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes>
auto softmax(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along) {
    if constexpr (detail::is_last_axis<Rank, Axes...>) {
        return halftone::softmax<As>(context, x);
    } else {
        using Y = chosen_output<As, policy_of<Context>, op::softmax, X>;
        using S = kernel::statistic<X, Y>;
        const auto shifted = detail::less_largest<op::softmax, S>(context, x, along);
        const auto e =
            detail::evaluate<op::softmax, S>(context, x.shape(), halftone::trace<1>(detail::exp_function{}), shifted);
        return detail::evaluate<op::softmax, Y>(context, x.shape(), halftone::trace<2>(detail::divide_function{}), e,
                                                detail::total_along<op::softmax, S>(context, e, along));
    }
}
/// Log-softmax along some axes: x - log(the sum of exp(x) along them); otherwise like softmax.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axes>
auto log_softmax(Context&& context, const variable<X, Rank>& x, axis_list<Axes...> along) {
    if constexpr (detail::is_last_axis<Rank, Axes...>) {
        return halftone::log_softmax<As>(context, x);
    } else {
        using Y = chosen_output<As, policy_of<Context>, op::log_softmax, X>;
        using S = kernel::statistic<X, Y>;
        const auto shifted = detail::less_largest<op::log_softmax, S>(context, x, along);
        const auto e = detail::evaluate<op::log_softmax, S>(context, x.shape(),
                                                            halftone::trace<1>(detail::exp_function{}), shifted);
        return detail::evaluate<op::log_softmax, Y>(context, x.shape(), halftone::trace<2>(detail::less_log_function{}),
                                                    shifted,
                                                    detail::total_along<op::log_softmax, S>(context, e, along));
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
