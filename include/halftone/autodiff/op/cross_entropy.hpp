// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy with options: label smoothing, class weights, a z-loss, the sum or the losses of single rows instead
/// of the mean; and targets that are probabilities.
///
///     auto loss = ht::cross_entropy(ctx, logits, targets, {.label_smoothing = 0.1f, .weight = w});
///     auto losses = ht::cross_entropy<ht::reduction::none>(ctx, logits, targets);           // in the targets' shape
///     auto loss = ht::linear_cross_entropy<roles>(ctx, x, weight, targets, {.z_loss = 1e-4f});
///     auto loss = ht::cross_entropy(ctx, logits, probabilities, {.label_smoothing = 0.1f});   // in the logits' shape
///     auto losses = ht::cross_entropy<ht::reduction::none>(ctx, logits, probabilities);       // without the last axis
///
/// The definition is PyTorch's; kernel/weighted_cross_entropy has the formula. Results have the types of the loss without
/// options (autodiff/op/loss.hpp), which is a separate kernel.
#pragma once

#include <tuple>

#include <halftone/autodiff/engine/gradient_variables.hpp>
#include <halftone/autodiff/op/axis_reduction.hpp>
#include <halftone/autodiff/op/loss.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/autodiff/op/reduction.hpp>
#include <halftone/autodiff/op/softmax.hpp>
#include <halftone/kernel/weighted_linear_cross_entropy/weighted_linear_cross_entropy.hpp>
#include <halftone/kernel/weighted_cross_entropy/weighted_cross_entropy.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of a cross-entropy. Without any, it is the mean of -log p of the targets.
struct cross_entropy_options {
    /// The fraction of a target's probability that is distributed evenly over all classes, 0 to 1 (Szegedy et al. 2016).
    double label_smoothing = 0;
    /// (classes), not negative: a weight for each class; empty: all are 1. They may be in host memory; memory that the
    /// device can read must stay unchanged until the backward pass has run. The mean divides by the sum of the targets'
    /// weights.
    const_view<float, 1> weight{};
    halftone::reduction reduction = halftone::reduction::mean;
    /// Adds z_loss logsumexp^2, times its target's weight, to the loss of each row (PaLM: 1e-4). Not in PyTorch.
    double z_loss = 0;
    /// Rows with this target have loss 0 and gradient 0, and do not count in the mean.
    std::int32_t ignore_index = -100;
};

namespace detail {

/// Throws argument_error for an option out of range.
inline void check_options(const char* operation, const cross_entropy_options& o) {
    if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
        fail<argument_error>(operation, ": label_smoothing is ", o.label_smoothing, "; expected 0 to 1");
    if (!(o.z_loss >= 0)) fail<argument_error>(operation, ": z_loss is ", o.z_loss, "; expected 0 or more");
}

/// The terms of a loss, with the weights as variables of the tape.
template <class S>
struct kept_terms {
    S label_smoothing, z_loss;
    variable<S, 1> weight{}, weight_sum{};  ///< empty: 1 for each class
    std::int32_t ignore_index;

    kernel::cross_entropy_terms<S> view() const {
        kernel::cross_entropy_terms<S> terms{label_smoothing, z_loss};
        if (!weight.is_empty()) terms.weight = weight.view(), terms.weight_sum = weight_sum.view();
        return terms;
    }
};

template <class S, class Root>
kept_terms<S> terms_of(Root& root, const char* operation, const cross_entropy_options& o, extent classes) {
    check_options(operation, o);
    kept_terms<S> terms{static_cast<S>(o.label_smoothing), static_cast<S>(o.z_loss), {}, {}, o.ignore_index};
    if (o.weight.data() == nullptr) return terms;
    kernel::expect(operation, "weight", o.weight, {classes});
    using device = typename Root::device_type;
    const auto given = root.to_device(o.weight);
    if constexpr (std::is_same_v<S, float>) {
        terms.weight = given;
    } else {
        terms.weight = root.template make<S>(shape<1>{classes}, false);
        kernel::map<device>::run(root.device(), make_pack(symbolic::argument<0>{}), make_pack(terms.weight.view()),
                                 make_pack(as_const(given.view())));
    }
    terms.weight_sum = root.template make<S>(shape<1>{1}, false);
    kernel::sum<device>::run(root.device(), symbolic::argument<0>{}, make_pack(as_const(terms.weight.view())), 1.0,
                             halftone::view<S, 0>(terms.weight_sum.view().data(), {}));
    return terms;
}

/// Values of the rows that the forward pass computes for the loss and its gradient.
template <class S>
struct loss_rows {
    variable<S, 1> losses, maximum, sum, row_weights, count;  ///< row_weights: empty without weights; count: without a mean

    template <class Root>
    static loss_rows make(Root& root, extent rows, bool has_weights, reduction r) {
        const auto of_rows = [&] { return root.template make<S>(shape<1>{rows}, false); };
        loss_rows made{of_rows(), of_rows(), of_rows(), {}, {}};
        if (r != reduction::mean) return made;
        if (has_weights) made.row_weights = of_rows();
        made.count = root.template make<S>(shape<1>{1}, false);
        return made;
    }
    view<S, 1> weights() const { return row_weights.is_empty() ? view<S, 1>{} : row_weights.view(); }
    view<S, 1> divisor() const { return count.is_empty() ? view<S, 1>{} : count.view(); }

    /// The loss, reduced from the losses of the rows and `count`.
    template <class Device>
    void reduce(Device& device, const const_view<std::int32_t, 1>& targets, std::int32_t ignored,
                const view<S, 1>& loss) const {
        if (!count.is_empty() && row_weights.is_empty())
            return kernel::cross_entropy<Device>::mean(device, as_const(losses.view()), targets, loss, count.view(), ignored);
        if (!row_weights.is_empty()) kernel::total_loss(device, as_const(row_weights.view()), count.view(), view<S, 1>{});
        kernel::total_loss(device, as_const(losses.view()), loss, divisor());
    }
};

/// dy is the gradient of the loss, or of the rows' losses.
template <class X, int Rank, int LossRank>
struct weighted_cross_entropy_record {
    using S = loss_type<X>;
    using operation = op::cross_entropy;
    struct reads {
        template <std::size_t, std::size_t>
        static constexpr bool value = true;
    };
    static constexpr int roundings = 1;
    variable<X, Rank> logits;
    std::tuple<gradient_of<X, Rank>> gradients;
    gradient_of<S, LossRank> dy;
    variable<std::int32_t, 1> targets;
    variable<S, 1> maximum, sum, count;
    kept_terms<S> terms;

    const gradient_of<X, Rank>& dlogits() const { return std::get<0>(gradients); }
    extent sum_length() const { return logits.size(); }

    template <class Tape>
    void propagate(Tape& tape) {
        contribute(tape, dlogits(), [&](const view<X, Rank>& out) {
            kernel::cross_entropy_backward<X, X> a{.logits = as_rows(logits),
                                                   .targets = targets.view(),
                                                   .maximum = maximum.view(),
                                                   .sum = sum.view(),
                                                   .gradient = const_view<S, 1>(dy.view().data(), {dy.shape().size()}),
                                                   .dlogits = as_rows(out),
                                                   .ignore_index = terms.ignore_index};
            if (!count.is_empty()) a.count = count.view();
            kernel::weighted_cross_entropy<typename Tape::device_type>::backward(tape.device(), a, terms.view());
        });
    }
};

template <class Root>
variable<std::int32_t, 1> targets_to_device(Root& root, const const_view<std::int32_t, 1>& targets, extent classes,
                                            const cross_entropy_options& o) {
    return ids_to_device(root, "cross_entropy", "target", targets, classes, &o.ignore_index);
}

/// The loss of the logits; with LossRank 1 the losses of their rows.
template <int LossRank, class Context, class X, int Rank>
auto weighted_cross_entropy_of(Context&& context, const variable<X, Rank>& logits, const const_view<std::int32_t, 1>& targets,
                               const cross_entropy_options& o, reduction r) {
    using S = loss_type<X>;
    using device = typename std::remove_cvref_t<Context>::device_type;
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::cross_entropy::name);
    const auto rows = as_rows(logits);
    const extent count = rows.extent_of(0), classes = rows.extent_of(1);
    const bool wanted = logits.wants_gradient();
    const auto ids = targets_to_device(root, targets, classes, o);
    kernel::expect("cross_entropy", "targets", ids.view(), {count});
    shape<LossRank> s{};
    if constexpr (LossRank == 1) s[0] = count;
    auto loss = root.template make<S>(s, wanted);
    const kept_terms<S> terms = terms_of<S>(root, op::cross_entropy::name, o, classes);
    auto of_rows = loss_rows<S>::make(root, count, !terms.weight.is_empty(), r);
    kernel::cross_entropy<device>::check_targets(root.device(), classes, ids.view(), o.ignore_index);
    kernel::weighted_cross_entropy<device>::forward_rows(
        root.device(),
        kernel::cross_entropy_forward<X>{.logits = rows,
                                         .targets = ids.view(),
                                         .losses = LossRank == 1 ? flatten(loss) : of_rows.losses.view(),
                                         .maximum = of_rows.maximum.view(),
                                         .sum = of_rows.sum.view(),
                                         .ignore_index = o.ignore_index},
        terms.view(), of_rows.weights());
    if constexpr (LossRank == 0) of_rows.reduce(root.device(), as_const(ids.view()), o.ignore_index, flatten(loss));
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted)
            root.record(weighted_cross_entropy_record<X, Rank, LossRank>{
                logits, {gradient_of(logits)}, gradient_of(loss), ids, of_rows.maximum, of_rows.sum, of_rows.count, terms});
    }
    return loss;
}

/// The record of a weighted cross-entropy of logits x weightᵀ, which are computed in chunks of rows.
template <class Roles, class X, int Rank, class Weight>
struct weighted_linear_cross_entropy_record {
    using operation = op::linear_cross_entropy;
    variable<X, Rank> x;
    gradient_of<X, Rank> dx;
    gradient_of<float, 0> dy;
    Weight weight;
    variable<std::int32_t, 1> targets;
    loss_rows<float> rows;
    kept_terms<float> terms;
    static constexpr int roundings = 3;  // of logits, their gradients, results
    extent sum_length() const { return weight.shape().size() + x.size(); }

    template <class Tape>
    void propagate(Tape& tape) {
        using accumulate = typename Weight::storage::accumulate;
        using compute = typename Roles::compute;
        tape.template note_gradients_as<typename Roles::output>();  // of logits
        tape.template note_gradients_as<typename Roles::input_grad>();
        tape.template note_gradients_as<typename Roles::weight_grad>();
        const auto to_x = tape.gradient_target(dx);
        const auto to_w = tape.gradient_target(weight);
        kernel::weighted_linear_cross_entropy<typename Tape::device_type>::template backward<
            compute, typename Roles::output, typename Roles::input_grad, typename Roles::weight_grad>(
            tape.device(), as_const(as_rows(x)), values_for<compute>(weight),
            kernel::linear_cross_entropy_rows{targets.view(), rows.losses.view(), rows.maximum.view(), rows.sum.view(), {},
                                              rows.divisor(), terms.ignore_index},
            terms.view(), as_vector(dy),
            kernel::gradient_result<X>{to_x ? as_rows(view(to_x.data, dx.shape())) : view<X, 2>{}, to_x.mode},
            kernel::gradient_result<accumulate>{to_w ? view(to_w.data, weight.shape()) : view<accumulate, 2>{}, to_w.mode});
    }
};

}  // namespace detail

/// The mean, or the sum, over all rows that are not ignored, with the options' terms:
/// torch.nn.functional.cross_entropy(logits, targets, weight, ignore_index, reduction, label_smoothing). logits: (…,
/// classes), targets: one per row. Targets may be in host memory; memory that the device can read must stay unchanged
/// until the backward pass has run. If all rows are ignored, the mean is NaN. Throws shape_error, and argument_error
/// for options out of range and for a target that is not a class, unless only the GPU can read it: then the loss is
/// NaN.
template <class Context, class X, int Rank, int TargetRank>
auto cross_entropy(Context&& context, const variable<X, Rank>& logits, const const_view<std::int32_t, TargetRank>& targets,
                   const cross_entropy_options& options) {
    detail::check_reduces("cross_entropy", options.reduction);
    const auto loss = detail::weighted_cross_entropy_of<0>(context, logits, flatten(targets), options, options.reduction);
    using Y = detail::loss_output<policy_of<Context>, op::cross_entropy, X>;
    return detail::given_as<op::cross_entropy, Y>(context, loss);
}

/// The loss of each row, in the targets' shape; 0 for ignored rows. The option `reduction` has no effect.
template <reduction Reduction, class Context, class X, int Rank, int TargetRank>
auto cross_entropy(Context&& context, const variable<X, Rank>& logits, const const_view<std::int32_t, TargetRank>& targets,
                   const cross_entropy_options& options = {}) {
    static_assert(Reduction == reduction::none,
                  "halftone: cross_entropy: only reduction::none, which is another type, is a template argument; the mean and "
                  "the sum are an option, ht::cross_entropy(ctx, logits, targets, {.reduction = ht::reduction::sum})");
    const auto losses =
        detail::weighted_cross_entropy_of<1>(context, logits, flatten(targets), options, reduction::none);
    using Y = detail::loss_output<policy_of<Context>, op::cross_entropy, X>;
    return detail::given_as<op::cross_entropy, Y>(context, detail::reshaped(losses, targets.shape()));
}

namespace detail {

/// -(keep q + each) l of one class: q is its probability, l its log softmax.
struct soft_target_function {
    double keep, each;
    constexpr auto operator()(auto l, auto q) const { return -(keep * q + each) * l; }

    static soft_target_function of(const cross_entropy_options& o, extent classes) {
        return {1 - o.label_smoothing, o.label_smoothing / static_cast<double>(classes)};
    }
};

/// log softmax of the logits, times the classes' weights. Throws for options that do not apply to probabilities.
template <class S, class Context, class X, class T, int Rank>
variable<S, Rank> weighted_log_softmax(Context&& context, const variable<X, Rank>& logits, const variable<T, Rank>& targets,
                                       const cross_entropy_options& options) {
    static_assert(number<T>, "halftone: cross_entropy: targets of std::int32_t are given as a view; these are probabilities");
    check_options("cross_entropy", options);
    if (options.z_loss != 0) fail<argument_error>("cross_entropy: z_loss is for targets that are classes, and these are "
                                                  "probabilities; add its term with ht::softmax and ht::map");
    if (!(logits.shape() == targets.shape()))
        fail<shape_error>("cross_entropy: the logits are ", logits.shape(), ", the probabilities ", targets.shape());
    const auto log_p = log_softmax<S>(context, logits);
    if (options.weight.data() == nullptr) return log_p;
    kernel::expect("cross_entropy", "weight", options.weight, {logits.shape()[Rank - 1]});
    return evaluate<op::cross_entropy, S>(context, log_p.shape(),
                                          halftone::trace<2>([](auto l, auto w) { return l * w; }), log_p,
                                          context.root().to_device(options.weight));
}

}  // namespace detail

/// Targets that are probabilities of the classes, in the logits' shape (soft targets): the mean over rows, or the sum,
/// of -(sum over j of weight[j] q[j] log softmax(logits)[j]), where q is (1 - label_smoothing) target + label_smoothing
/// / classes, as in PyTorch, whose mean divides by the number of rows. Logits and targets both get gradients.
/// ignore_index and z_loss do not apply to such targets. Throws shape_error and argument_error.
template <recording_context Context, class X, class T, int Rank>
auto cross_entropy(Context&& context, const variable<X, Rank>& logits, const variable<T, Rank>& targets,
                   const cross_entropy_options& options = {}) {
    using S = detail::loss_type<X, T>;
    using Y = detail::loss_output<policy_of<Context>, op::cross_entropy, X, T>;
    detail::check_reduces("cross_entropy", options.reduction);
    const auto weighted = detail::weighted_log_softmax<S>(context, logits, targets, options);
    const auto rows = static_cast<double>(detail::rows_of(logits.shape()));
    const auto f = detail::soft_target_function::of(options, logits.shape()[Rank - 1]);
    return detail::given_as<op::cross_entropy, Y>(
        context, detail::reduce<op::cross_entropy, S>(context, options.reduction == reduction::mean ? 1.0 / rows : 1.0, f,
                                                      weighted, targets));
}

/// The loss of each row, in the logits' shape without the last axis. The option `reduction` has no effect.
template <reduction Reduction, recording_context Context, class X, class T, int Rank>
auto cross_entropy(Context&& context, const variable<X, Rank>& logits, const variable<T, Rank>& targets,
                   const cross_entropy_options& options = {}) {
    static_assert(Reduction == reduction::none,
                  "halftone: cross_entropy: only reduction::none, which is another type, is a template argument; the mean and "
                  "the sum are an option, ht::cross_entropy(ctx, logits, probabilities, {.reduction = ht::reduction::sum})");
    using S = detail::loss_type<X, T>;
    using Y = detail::loss_output<policy_of<Context>, op::cross_entropy, X, T>;
    const auto weighted = detail::weighted_log_softmax<S>(context, logits, targets, options);
    const auto f = detail::soft_target_function::of(options, logits.shape()[Rank - 1]);
    const auto each = detail::evaluate<op::cross_entropy, S>(context, logits.shape(), halftone::trace<2>(f), weighted, targets);
    return detail::given_as<op::cross_entropy, Y>(context, sum<S>(context, each, axes<Rank - 1>));
}

/// cross_entropy of the logits x weightᵀ, with targets that are classes. The logits are computed in chunks of rows,
/// again in the backward pass, and rounded to the roles' output. Only mean and sum. Throws as cross_entropy does.
template <class Roles, class Context, class X, int Rank, class Weight, int TargetRank>
auto linear_cross_entropy(Context&& context, const variable<X, Rank>& x, const Weight& weight,
                          const const_view<std::int32_t, TargetRank>& targets, const cross_entropy_options& options) {
    using compute = typename Roles::compute;
    using logit = typename Roles::output;
    using device = typename std::remove_cvref_t<Context>::device_type;
    detail::check_reduces("linear_cross_entropy", options.reduction);
    auto& root = context.root();
    if constexpr (detail::is_fp64<compute>) {
        return cross_entropy(context, linear<Roles>(context, x, weight, absent{}), targets, options);
    } else if constexpr (detail::records_double_backward<Context>) {
        const auto loss = cross_entropy(root, linear<Roles>(root, x, weight, absent{}), targets, options);
        return detail::given_as<op::linear_cross_entropy, detail::linear_loss<compute>>(context, loss);
    } else {
        const auto range = root.template range<Roles>(op::linear_cross_entropy::name);
        const auto rows = as_rows(x);
        const extent count = rows.extent_of(0), classes = weight.shape()[0];
        const bool wanted = detail::wants_gradient(x, weight);
        const auto ids = detail::targets_to_device(root, flatten(targets), classes, options);
        kernel::expect("linear_cross_entropy", "targets", ids.view(), {count});
        auto loss = root.template make<float>(shape<0>{}, wanted);
        const auto terms = detail::terms_of<float>(root, op::linear_cross_entropy::name, options, classes);
        auto of_rows = detail::loss_rows<float>::make(root, count, !terms.weight.is_empty(), options.reduction);
        kernel::weighted_linear_cross_entropy<device>::template forward<compute, logit>(
            root.device(), as_const(rows), detail::values_for<compute>(weight),
            kernel::linear_cross_entropy_rows{ids.view(), of_rows.losses.view(), of_rows.maximum.view(), of_rows.sum.view(), {},
                                              {}, options.ignore_index},
            terms.view(), of_rows.weights());
        of_rows.reduce(root.device(), as_const(ids.view()), options.ignore_index, flatten(loss));
        if constexpr (std::remove_cvref_t<Context>::records) {
            if (wanted)
                root.record(detail::weighted_linear_cross_entropy_record<Roles, X, Rank, Weight>{
                    x, gradient_of(x), gradient_of(loss), weight, ids, of_rows, terms});
        }
        return detail::given_as<op::linear_cross_entropy, detail::linear_loss<compute>>(context, loss);
    }
}
/// Compile-time errors for arguments that this loss does not support.
template <class Roles, class Context, class X, int Rank, class Weight, class T>
void linear_cross_entropy(Context&&, const variable<X, Rank>&, const Weight&, const variable<T, Rank>&,
                          const cross_entropy_options& = {}) {
    static_assert(
        sizeof(T) == 0,
        "halftone: linear_cross_entropy: targets are classes, a view of std::int32_t; probabilities have as many "
        "numbers as the logits that it does not store: ht::cross_entropy(ctx, ht::linear(ctx, x, weight), "
        "probabilities)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
