// SPDX-License-Identifier: MIT
/// \file
/// Evaluations of a trainer's model, by all ranks together. Included by trainer.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include <halftone/number/integer.hpp>
#include <halftone/train/trainer_context.hpp>
#include <halftone/train/trainer_figures.hpp>
#include <halftone/train/training_data.hpp>
#include <halftone/train/window_mean.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Computes mean losses.
template <class Device, class Model>
class trainer_evaluation {
    using context_type = trainer_context<Device, Model>;

  public:
    explicit trainer_evaluation(context_type& context) : context_(&context), inference_(*context.device) {}

    /// The evaluation of the first windows of the data.
    template <class Data>
    evaluation_result of_windows(Data& data, extent windows) {
        windows = std::min(windows, data.windows());
        const extent size = context_->arguments.per_device_eval_batch_size, parts = ceil_div(windows, size);
        const extent rank = context_->rank(), ranks = context_->rank_count();
        // Ranks take turns. Those that must call the model together repeat the last part where there is none for them.
        const bool is_together = context_->ranks != nullptr && context_->ranks->calls_together() && parts != 0;
        const extent turns = is_together ? round_up(parts, ranks) : parts;
        return of_each([&](const auto& f) {
            for (extent part = rank; part < turns; part += ranks) f(data.window(std::min(part, parts - 1) * size, size), part < parts);
        });
    }
    /// each(f) calls f(batch, counts) for each batch of this rank.
    template <class Each>
    evaluation_result of_each(const Each& each) {
        const scoped_range here(context_->listener, "evaluation", track::step);
        const auto begin = std::chrono::steady_clock::now();
        context_->is_evaluating = true;
        window_mean mean;
        evaluation_result r;
        each([&](const auto& batch, bool counts) {
            const auto loss = context_->model->loss(inference_, batch);
            if (!counts || rows_of(batch) == 0) return;
            mean.add(inference_, loss, std::as_const(*context_->model), batch);
            r.tokens += batch.size();
        });
        if (context_->ranks != nullptr) {
            mean.set_step(context_->ranks->add_up(mean.step()));
            r.tokens = context_->ranks->add_up(r.tokens);
        }
        if (r.tokens == 0) fail<argument_error>("trainer: evaluate() of data without windows; hold some of it out");
        r.loss = mean.value();
        r.seconds = seconds_since(begin);
        context_->is_evaluating = false;
        return r;
    }
    halftone::inference<Device>& inference() { return inference_; }

  private:
    context_type* context_;
    halftone::inference<Device> inference_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
