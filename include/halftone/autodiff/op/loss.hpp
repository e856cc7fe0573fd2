// SPDX-License-Identifier: MIT
/// \file
/// Losses: cross-entropy of logits; and of the logits of a linear layer, which are not stored.
///
///     auto loss = ht::cross_entropy(ctx, logits, targets);                              // logits: (…, classes)
///     auto loss = ht::linear_cross_entropy<roles>(ctx, x, weight, targets);             // logits = x weightᵀ
///     auto loss = ht::linear_cross_entropy<roles>(ctx, x, weight, targets, ht::keep_logits::never);
///
/// A loss is a float scalar in regions, by its category, and also on a bare tape, where in PyTorch it has the logits'
/// type; for doubles it is a double. Targets are std::int32_t; rows with target -100 do not count. For micro-batches
/// see autodiff/engine/share.hpp.
#pragma once

#include <halftone/autodiff/engine/share.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/linear.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/linear_cross_entropy/linear_cross_entropy.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Whether linear_cross_entropy stores its logits for the backward pass or recomputes them there, with the same bits,
/// which takes four products instead of three. On a CPU neither is done for a frozen weight (kernel/linear_cross_entropy).
enum class keep_logits {
    where_small,  ///< if they take no more memory than the weight's gradient: for bf16 and fp32 up to 2 width rows
    always,
    never
};

namespace detail {

/// The target of a row that does not count.
inline constexpr std::int32_t ignored_target = -100;

template <class Root>
variable<std::int32_t, 1> targets_to_device(Root& root, const const_view<std::int32_t, 1>& targets, extent classes) {
    return ids_to_device(root, "cross_entropy", "target", targets, classes, &ignored_target);
}

template <class T>
view<T, 1> as_vector(const variable<T, 0>& scalar) {
    return {scalar.view().data(), {1}};
}
template <class T>
const_view<T, 1> as_vector(const gradient_of<T, 0>& scalar) {
    return {scalar.view().data(), {1}};
}

template <class X, int Rank>
struct cross_entropy_record {
    using operation = op::cross_entropy;
    variable<X, Rank> logits;
    gradient_of<X, Rank> dlogits;
    gradient_of<loss_type<X>, 0> dy;
    variable<std::int32_t, 1> targets;
    variable<loss_type<X>, 1> maximum, sum, count;

    template <class Tape>
    void propagate(Tape& tape) {
        using kernel_type = kernel::cross_entropy<typename Tape::device_type>;
        contribute(tape, dlogits, [&](const view<X, Rank>& out) {
            kernel_type::backward(tape.device(), kernel::cross_entropy_backward<X, X>{.logits = as_rows(logits),
                                                                                      .targets = targets.view(),
                                                                                      .maximum = maximum.view(),
                                                                                      .sum = sum.view(),
                                                                                      .gradient = as_vector(dy),
                                                                                      .count = count.view(),
                                                                                      .dlogits = as_rows(out)});
        });
    }
};

/// Whether this number of logits is to be stored, given a weight and its gradient.
template <class Weight, class Logit>
bool keeps(keep_logits keep, extent logits, const shape<2>& weight) {
    constexpr extent of_logit = sizeof(Logit), of_gradient = sizeof(typename Weight::storage::accumulate);
    return keep == keep_logits::always ||
           (keep == keep_logits::where_small && logits * of_logit <= weight.size() * of_gradient);
}

/// A device's head that has the gradient of x from its forward pass where the weight is frozen.
template <class Head>
concept has_frozen_head = requires {
    requires Head::has_frozen_passes;
};

template <class Roles, class X, int Rank, class Weight>
struct linear_cross_entropy_record {
    using operation = op::linear_cross_entropy;
    variable<X, Rank> x;
    gradient_of<X, Rank> dx;
    gradient_of<float, 0> dy;
    Weight weight;
    variable<std::int32_t, 1> targets;
    variable<float, 1> maximum, sum, losses, count;
    variable<std::byte, 1> logits;   // empty: to be recomputed, unless there are
    variable<float, 2> weight_sums;  // what the gradient of x follows from where the weight is frozen

    template <class Tape>
    void propagate(Tape& tape) {
        using head = kernel::linear_cross_entropy<typename Tape::device_type>;
        using accumulate = typename Weight::storage::accumulate;
        using compute = typename Roles::compute;
        tape.template note_gradients_as<typename Roles::output>();  // the gradients of logits
        tape.template note_gradients_as<typename Roles::input_grad>();
        tape.template note_gradients_as<typename Roles::weight_grad>();
        const auto to_x = tape.gradient_target(dx);
        const auto to_w = tape.gradient_target(weight);
        const kernel::linear_cross_entropy_rows rows{targets.view(), losses.view(), maximum.view(), sum.view(), {},
                                                     count.view()};
        const kernel::gradient_result<X> of_x{to_x ? as_rows(view(to_x.data, dx.shape())) : view<X, 2>{}, to_x.mode};
        if constexpr (has_frozen_head<head>) {
            if (!weight_sums.is_empty()) {
                if (to_x)
                    head::backward_frozen(tape.device(), values_for<compute>(weight), rows, as_vector(dy),
                                          as_const(weight_sums.view()), of_x);
                return;
            }
        }
        head::template backward<compute, typename Roles::output, typename Roles::input_grad,
                                typename Roles::weight_grad>(
            tape.device(), as_const(as_rows(x)), values_for<compute>(weight), rows, as_vector(dy), of_x,
            kernel::gradient_result<accumulate>{to_w ? view(to_w.data, weight.shape()) : view<accumulate, 2>{},
                                                to_w.mode, to_w.squares},
            logits.is_empty() ? nullptr : reinterpret_cast<typename Roles::output*>(logits.view().data()));
    }
};

}  // namespace detail

/// The mean of -log softmax(logits)[target] over all rows that count. logits: (…, classes), targets: one for each row.
/// The targets may be in host memory; memory that the device can read must stay unchanged until the backward pass has
/// run. Throws argument_error for an invalid target, unless only the GPU can read it: then the loss is NaN.
template <class Context, class X, int Rank, int TargetRank>
auto cross_entropy(Context&& context, const variable<X, Rank>& logits,
                   const const_view<std::int32_t, TargetRank>& targets) {
    using loss_type = detail::loss_type<X>;
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::cross_entropy::name);
    const auto rows = as_rows(logits);
    const bool wanted = logits.wants_gradient();
    const auto ids = detail::targets_to_device(root, flatten(targets), rows.extent_of(1));
    auto loss = root.template make<loss_type>(shape<0>{}, wanted);
    auto maximum = root.template make<loss_type>(shape<1>{rows.extent_of(0)}, false),
         sum = root.template make<loss_type>(shape<1>{rows.extent_of(0)}, false),
         losses = root.template make<loss_type>(shape<1>{rows.extent_of(0)}, false);
    auto count = root.template make<loss_type>(shape<1>{1}, false);
    kernel::cross_entropy<typename std::remove_cvref_t<Context>::device_type>::forward(
        root.device(), kernel::cross_entropy_forward<X>{.logits = rows,
                                                        .targets = ids.view(),
                                                        .losses = losses.view(),
                                                        .maximum = maximum.view(),
                                                        .sum = sum.view(),
                                                        .loss = detail::as_vector(loss),
                                                        .count = count.view()});
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted)
            root.record(detail::cross_entropy_record<X, Rank>{logits, gradient_of(logits), gradient_of(loss), ids,
                                                              maximum, sum, count});
    }
    using Y = detail::loss_output<policy_of<Context>, op::cross_entropy, X>;
    return detail::given_as<op::cross_entropy, Y>(context, loss);
}

/// The mean of -log softmax(logits)[target] over all rows that count, for logits x weightᵀ, of which only parts are
/// stored at a time, unless they are kept; they are rounded to the roles' output. x: (…, width), weight: (classes,
/// width). The loss is a float, or has the type of a category that the user has changed.
template <class Roles, class Context, class X, int Rank, class Weight, int TargetRank>
auto linear_cross_entropy(Context&& context, const variable<X, Rank>& x, const Weight& weight,
                          const const_view<std::int32_t, TargetRank>& targets,
                          keep_logits keep = keep_logits::where_small) {
    using compute = typename Roles::compute;
    using logit = typename Roles::output;
    using head = kernel::linear_cross_entropy<typename std::remove_cvref_t<Context>::device_type>;
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::linear_cross_entropy::name);
    const auto rows = as_rows(x);
    const bool wanted = detail::wants_gradient(x, weight);
    const auto ids = detail::targets_to_device(root, flatten(targets), weight.shape()[0]);
    auto loss = root.template make<float>(shape<0>{}, wanted);
    auto maximum = root.template make<float>(shape<1>{rows.extent_of(0)}, false),
         sum = root.template make<float>(shape<1>{rows.extent_of(0)}, false),
         losses = root.template make<float>(shape<1>{rows.extent_of(0)}, false);
    auto count = root.template make<float>(shape<1>{1}, false);
    variable<std::byte, 1> kept;
    variable<float, 2> weight_sums;
    if constexpr (std::remove_cvref_t<Context>::records) {
        const extent logits = head::kept_logits(rows.extent_of(0), weight.shape()[0]);
        if (wanted && weight.is_frozen() && detail::has_frozen_head<head>) {
            weight_sums = root.template make<float>(rows.shape(), false);
        } else if (wanted && detail::keeps<Weight, logit>(keep, logits, weight.shape()))
            kept = root.template make<std::byte>(shape<1>{logits * static_cast<extent>(sizeof(logit))}, false);
    }
    const kernel::linear_cross_entropy_rows results{ids.view(), losses.view(),           maximum.view(),
                                                    sum.view(), detail::as_vector(loss), count.view()};
    const auto w = detail::values_for<compute>(weight);
    if (weight_sums.is_empty()) {
        head::template forward<compute, logit>(
            root.device(), as_const(rows), w, results,
            kept.is_empty() ? nullptr : reinterpret_cast<logit*>(kept.view().data()));
    } else if constexpr (detail::has_frozen_head<head>) {
        head::template forward_frozen<compute, logit, typename Roles::input_grad>(root.device(), as_const(rows), w,
                                                                                  results, weight_sums.view());
    }
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            root.record(detail::linear_cross_entropy_record<Roles, X, Rank, Weight>{
                x, gradient_of(x), gradient_of(loss), weight, ids, maximum, sum, losses, count, kept, weight_sums});
        }
    }
    return detail::given_as<op::linear_cross_entropy, detail::linear_loss<compute>>(context, loss);
}
/// In double the logits are stored.
template <class Roles, class Context, int Rank, class Weight, int TargetRank>
    requires(detail::is_fp64<typename Roles::compute> && !detail::records_double_backward<Context>)
variable<double, 0> linear_cross_entropy(Context&& context, const variable<double, Rank>& x, const Weight& weight,
                                         const const_view<std::int32_t, TargetRank>& targets,
                                         keep_logits = keep_logits::always) {
    return cross_entropy(context, linear<Roles>(context, x, weight, absent{}), targets);
}
template <class Roles, class Context, class X, int Rank, class Weight, int TargetRank>
    requires detail::records_double_backward<Context>
auto linear_cross_entropy(Context&& context, const variable<X, Rank>& x, const Weight& weight,
                          const const_view<std::int32_t, TargetRank>& targets, keep_logits = keep_logits::always) {
    const auto loss = detail::composition<op::linear_cross_entropy, Roles>::run(context.root(), x, weight, targets);
    return detail::given_as<op::linear_cross_entropy, detail::linear_loss<typename Roles::compute>>(context, loss);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
