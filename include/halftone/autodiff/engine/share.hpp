// SPDX-License-Identifier: MIT
/// \file
/// A micro-batch's share of its batch, by what the loss is a mean over: the number of targets that count, say. The losses of all
/// micro-batches, each times its share, add up to the loss of the whole batch, and so do their gradients, however
/// unevenly the targets are distributed.
///
///     for (const auto& micro : batch.split(4)) {
///         auto loss = model.loss(tape, micro) * ht::share_of(tape, micro, batch);         // in place of: loss / 4
///         tape.backward(scaler.scale(loss), acc);
///         losses.add(loss);                                                               // train/loss_meter.hpp
///     }
///
/// A batch with a member `targets`, or if it has none of that name `labels`, a view of std::int32_t of any shape, counts those that
/// are not -100. What else a loss is a mean over its model says, or its batch, as an ht::loss_divisor:
///
///     struct my_model {
///         ht::cross_entropy_options options;                                              // class weights, an ignore_index
///         auto loss(auto&& ctx, const auto& batch) const { return ht::cross_entropy(ctx, logits(ctx, batch), batch.labels, options); }
///         ht::loss_divisor loss_divisor(const auto& batch) const { return {batch.labels, options}; }
///     };
///     struct my_batch {
///         ht::const_view<float, 2> mask;                                                  // the loss divides by its sum
///         ht::loss_divisor loss_divisor() const { return mask; }
///     };
///     auto part = model.loss(tape, micro) * ht::share_of(tape, ht::divisor_of(model, micro), ht::divisor_of(model, batch));
///
/// The divisors of all micro-batches add up to that of the batch. If they are equal, the bits are those of loss / 4. A micro-batch
/// whose targets are all -100 has a share of 0: its loss, a NaN, is not counted, and its gradients are 0. The same holds where all
/// class weights are 0, whose terms of label smoothing are not counted either. In a loss of your own 0 times the slope of a division
/// by 0 would be NaN: add 1e-30 to a divisor that may be 0. A batch without any target that counts has a loss of NaN, as in PyTorch,
/// and gradients of 0.
///
/// Targets are counted by the device that holds them, also in a captured step: nothing waits for the device.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>
#include <vector>

#include <halftone/autodiff/engine/variable.hpp>
#include <halftone/kernel/target_share/target_share.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class T>
inline constexpr bool are_targets = false;
template <class T, int Rank>
inline constexpr bool are_targets<view<T, Rank>> = std::is_same_v<std::remove_const_t<T>, std::int32_t>;

template <class Batch>
concept with_targets = requires(const Batch& batch) {
    batch.targets;
};
template <class Batch>
concept counts_targets = requires(const Batch& b) {
    requires are_targets<std::remove_cvref_t<decltype(b.targets)>>;
};
template <class Batch>
concept counts_labels = !with_targets<Batch> && requires(const Batch& b) {
    requires are_targets<std::remove_cvref_t<decltype(b.labels)>>;
};
template <class Batch>
concept says_divisor = requires(const Batch& batch) {
    batch.loss_divisor();
};
template <class Batch>
concept batch_has_divisor =
    std::same_as<Batch, loss_divisor> || says_divisor<Batch> || counts_targets<Batch> || counts_labels<Batch>;
template <class Model, class Batch>
concept model_says_divisor = requires(const Model& model, const Batch& batch) {
    model.loss_divisor(batch);
};

template <class Said>
loss_divisor as_divisor(const Said& said) {
    static_assert(
        std::is_constructible_v<loss_divisor, const Said&>,
        "halftone: loss_divisor() of a batch or a model returns an ht::loss_divisor, or what one is made of: a view of "
        "std::int32_t or of float, or a number");
    return loss_divisor(said);
}

struct set_counts {
    kernel::target_counts* to;
    kernel::target_counts counts;
    HALFTONE_HD void operator()() const { *to = counts; }
};

/// Calls f(view) for each view of two divisors that has data.
template <class F>
void for_each_view_of(loss_divisor& a, loss_divisor& b, const F& f) {
    for (loss_divisor* d : {&a, &b}) {
        if (d->targets.data() != nullptr) f(d->targets);
        if (d->weight.data() != nullptr) f(d->weight);
        if (d->terms.data() != nullptr) f(d->terms);
    }
}

}  // namespace detail

/// Whether batches say what a loss of theirs is a mean over, or with a model before them what its loss is: has_loss_divisor<Batch>,
/// has_loss_divisor<Model, Batch>.
template <class First, class... Rest>
concept has_loss_divisor = (sizeof...(Rest) == 0 && detail::batch_has_divisor<First>) ||
                           (sizeof...(Rest) == 1 &&
                            ((detail::model_says_divisor<First, Rest> || detail::batch_has_divisor<Rest>)&&...));

/// What a loss of the batch is a mean over: what its loss_divisor() returns, or its targets, or its labels.
template <class Batch>
    requires(has_loss_divisor<Batch>)
loss_divisor divisor_of(const Batch& batch) {
    if constexpr (std::same_as<Batch, loss_divisor>) {
        return batch;
    } else if constexpr (detail::says_divisor<Batch>) {
        return detail::as_divisor(batch.loss_divisor());
    } else if constexpr (detail::counts_targets<Batch>) {
        return batch.targets;
    } else {
        return batch.labels;
    }
}
/// What the model's loss of the batch is a mean over: what model.loss_divisor(batch) returns, or else divisor_of(batch).
template <class Model, class Batch>
    requires(has_loss_divisor<Model, Batch>)
loss_divisor divisor_of(const Model& model, const Batch& batch) {
    if constexpr (detail::model_says_divisor<Model, Batch>) {
        return detail::as_divisor(model.loss_divisor(batch));
    } else {
        return divisor_of(batch);
    }
}

/// The result of share_of: multiply a loss by it. It is in the context's memory.
class loss_share {
  public:
    explicit loss_share(variable<kernel::target_counts, 0> counts) : counts_(std::move(counts)) {}
    /// The counts in the device's memory.
    const kernel::target_counts* on_device() const { return counts_.view().data(); }
    /// The counts. On a GPU it waits for the device.
    kernel::target_counts read() const { return counts_.item(); }

  private:
    variable<kernel::target_counts, 0> counts_;
};

/// A loss times a share, and optionally a factor.
template <class Variable>
struct shared_loss {
    Variable loss;
    double factor;
    loss_share share;
};

namespace detail {

/// The share of two divisors, computed where their views are: by the device, or, if it cannot read any of them (yet), by the host.
template <class Context>
loss_share share_of_divisors(Context& root, loss_divisor micro, loss_divisor batch) {
    auto& device = root.device();
    const auto counts = root.template make<kernel::target_counts>(shape<0>{}, false);
    kernel::target_counts* const to = counts.view().data();
    bool is_reached = true, is_any_reached = false;
    for_each_view_of(micro, batch, [&](const auto& v) {
        const bool is_here = device.reaches(v.data());
        is_reached = is_reached && is_here, is_any_reached = is_any_reached || is_here;
    });
    if (!is_reached && !is_any_reached) {
        device.run(
            set_counts{to, kernel::target_counts_of(kernel::value_on_host(micro), kernel::value_on_host(batch))});
        return loss_share(counts);
    }
    std::vector<variable<std::int32_t, 1>> copies;  // until the kernel is launched
    std::vector<variable<float, 1>> copies_of_floats;
    for_each_view_of(micro, batch, [&]<class T>(view<const T, 1>& v) {
        if (device.reaches(v.data())) return;
        const variable<T, 1> copy = root.to_device(v);
        v = copy.view();
        if constexpr (std::is_same_v<T, float>) {
            copies_of_floats.push_back(copy);
        } else {
            copies.push_back(copy);
        }
    });
    kernel::target_share<std::remove_cvref_t<decltype(device)>>::run(device, micro, batch, to);
    return loss_share(counts);
}

}  // namespace detail

/// The share of `batch` that is in `micro`, one of its parts, by what its loss is a mean over (divisor_of); either may also be an
/// ht::loss_divisor. The version with a batch alone gives the share of the whole. Throws shape_error for targets that are not
/// contiguous.
template <class Context, class Micro, class Batch>
loss_share share_of(Context&& context, const Micro& micro, const Batch& batch) {
    static_assert(
        has_loss_divisor<Micro> && has_loss_divisor<Batch>,
        "halftone: share_of: a batch says what its loss is a mean over by `targets` or `labels`, a view of std::int32_t "
        "of which those that are -100 do not count, or by loss_divisor(); divide losses of others by the number of "
        "micro-batches");
    if constexpr (has_loss_divisor<Micro> && has_loss_divisor<Batch>)
        return detail::share_of_divisors(context.root(), divisor_of(micro), divisor_of(batch));
}
template <class Context, class Batch>
loss_share share_of(Context&& context, const Batch& batch) {
    return share_of(context, batch, batch);
}

template <class T>
shared_loss<variable<T, 0>> operator*(const variable<T, 0>& loss, const loss_share& share) {
    return {loss, 1, share};
}
template <class T>
shared_loss<variable<T, 0>> operator*(const loss_share& share, const variable<T, 0>& loss) {
    return {loss, 1, share};
}
template <class Variable>
shared_loss<Variable> operator*(const weighted<Variable>& loss, const loss_share& share) {
    return {loss.loss, loss.factor, share};
}
template <class Variable>
shared_loss<Variable> operator*(const loss_share& share, const weighted<Variable>& loss) {
    return loss * share;
}
template <class Variable>
shared_loss<Variable> operator*(const shared_loss<Variable>& loss, double factor) {
    return {loss.loss, loss.factor * factor, loss.share};
}
template <class Variable>
shared_loss<Variable> operator*(double factor, const shared_loss<Variable>& loss) {
    return loss * factor;
}
template <class Variable>
shared_loss<Variable> operator/(const shared_loss<Variable>& loss, double divisor) {
    return {loss.loss, loss.factor / divisor, loss.share};
}

/// The variable of a loss that is weighted by a share.
template <class Variable>
const Variable& loss_variable(const shared_loss<Variable>& loss) {
    return loss.loss;
}
/// The gradient with which its backward pass begins; the share is read from the device's memory when the pass runs.
template <class Variable>
gradient_seed loss_seed(const shared_loss<Variable>& loss) {
    return {loss.factor, nullptr, &loss.share.on_device()->share};
}
/// `value` unchanged: a share is not a loss scale.
template <class Variable, class Value>
Value scaled_as(const shared_loss<Variable>&, Value value) {
    return value;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
