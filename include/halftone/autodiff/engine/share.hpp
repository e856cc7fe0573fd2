// SPDX-License-Identifier: MIT
/// \file
/// A micro-batch's share of its batch, by the number of targets that count (those that are not -100). The losses of all
/// micro-batches, each times its share, add up to the loss of the whole batch, and so do their gradients, however
/// unevenly the targets are distributed.
///
///     for (const auto& micro : batch.split(4)) {
///         auto loss = model.loss(tape, micro) * ht::share_of(tape, micro, batch);         // in place of: loss / 4
///         tape.backward(scaler.scale(loss), acc);
///         losses.add(loss);                                                               // train/loss_meter.hpp
///     }
///
/// A batch is anything with a member `targets`, a view of std::int32_t of any shape. If all micro-batches have equally
/// many targets that count, the bits are those of loss / 4. A micro-batch whose targets are all -100 has a share of 0:
/// its loss, a NaN, is not counted, and its gradients are 0. A batch without any target that counts has a loss of NaN,
/// as in PyTorch, and gradients of 0.
///
/// Targets are counted by the device that holds them, also in a captured step: nothing waits for the device.
#pragma once

#include <utility>

#include <halftone/autodiff/engine/variable.hpp>
#include <halftone/kernel/target_share/target_share.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class T>
inline constexpr bool are_targets = false;
template <class T, int Rank>
inline constexpr bool are_targets<view<T, Rank>> = std::is_same_v<std::remove_const_t<T>, std::int32_t>;

/// If the host can read the targets and the device cannot (yet): counts on the host.
inline kernel::target_counts count_targets(const const_view<std::int32_t, 1>& targets,
                                           const const_view<std::int32_t, 1>& of) {
    const auto count = [](const const_view<std::int32_t, 1>& t) {
        extent n = 0;
        for (extent i = 0; i < t.size(); ++i) n += t(i) == kernel::uncounted_target ? 0 : 1;
        return static_cast<double>(n);
    };
    return kernel::target_counts_of(count(targets), count(of));
}

struct set_counts {
    kernel::target_counts* to;
    kernel::target_counts counts;
    HALFTONE_HD void operator()() const { *to = counts; }
};

}  // namespace detail

/// Whether the targets of a batch can be counted.
template <class Batch>
concept counts_targets =
    requires(const Batch& batch) { requires detail::are_targets<std::remove_cvref_t<decltype(batch.targets)>>; };

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

/// The share of `batch`, by its targets that count, that is in `micro`, one of its parts; the version with a batch
/// alone gives the share of the whole. Throws shape_error for targets that are not contiguous.
template <class Context, class Micro, class Batch>
loss_share share_of(Context&& context, const Micro& micro, const Batch& batch) {
    static_assert(counts_targets<Micro> && counts_targets<Batch>,
                  "halftone: share_of: a batch whose targets can be counted has `targets`, a view of std::int32_t of "
                  "which those that are -100 do not count; divide losses of others by the number of micro-batches");
    if constexpr (counts_targets<Micro> && counts_targets<Batch>) {
        auto& root = context.root();
        auto& device = root.device();
        const auto counts = root.template make<kernel::target_counts>(shape<0>{}, false);
        kernel::target_counts* const to = counts.view().data();
        const const_view<std::int32_t, 1> targets = flatten(micro.targets), of = flatten(batch.targets);
        if (device.reaches(targets.data()) && device.reaches(of.data())) {
            kernel::target_share<std::remove_cvref_t<decltype(device)>>::run(device, targets, of, to);
        } else {
            device.run(detail::set_counts{to, detail::count_targets(targets, of)});
        }
        return loss_share(counts);
    }
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
