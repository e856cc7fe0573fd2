// SPDX-License-Identifier: MIT
/// \file
/// The mean loss over windows of unequal size.
///
///     detail::window_mean mean;
///     for (...) mean.add(eval, model.loss(eval, window), model, window);          // waits for the device
///     mean.value();                                                        // NaN if nothing counts
///
/// Numeric contract: sums in double, in the order of the calls.
#pragma once

#include <halftone/autodiff/engine/rank_loss.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A batch's rows(), or its size() if it has none. The loss of a batch without rows is NaN, and does not count.
template <class Batch>
extent rows_of(const Batch& batch) {
    if constexpr (requires { batch.rows(); }) {
        return static_cast<extent>(batch.rows());
    } else {
        return static_cast<extent>(batch.size());
    }
}

/// Weighted by what the loss is a mean over, if model or batch say it (autodiff/engine/share.hpp), otherwise by rows, if a batch
/// has rows(), or by its size().
class window_mean {
  public:
    template <class Context, class Model, class Batch>
    void add(Context& context, const variable<float, 0>& loss, const Model& model, const Batch& batch) {
        double weight = static_cast<double>(rows_of(batch));
        if constexpr (has_loss_divisor<Model, Batch>)
            weight = share_of(context, divisor_of(model, batch)).read().counted;
        if (weight == 0) return;  // the loss is NaN
        sum_ += static_cast<double>(loss.item()) * weight;
        weights_ += weight;
    }
    double value() const { return sum_ / weights_; }
    /// The losses so far, and their replacement by those of several ranks.
    step_losses step() const { return {sum_, weights_}; }
    void set_step(const step_losses& s) { sum_ = s.sum, weights_ = s.weight; }

  private:
    double sum_ = 0, weights_ = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
