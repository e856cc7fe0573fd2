// SPDX-License-Identifier: MIT
/// \file
/// How a trainer runs its steps: captured where the device and the model can, with smaller micro-batches where memory runs
/// out. Included by trainer.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <halftone/train/captured_step.hpp>
#include <halftone/train/trainer_context.hpp>
#include <halftone/train/training_data.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Runs steps of a training_step on batches of the data.
template <class Device, class Model, class Step>
class step_runner {
    using context_type = trainer_context<Device, Model>;
    struct one_step {
        Step* step;
        template <class Batch>
        void operator()(const Batch& batch) const {
            step->train_on(batch);
        }
    };
    struct same_view {
        template <class View>
        View operator()(const View& v) const {
            return v;
        }
    };

  public:
    /// Whether the device works asynchronously, so that reading from it means waiting.
    static constexpr bool is_asynchronous = capturing_device<Device> || plans_captures<Device>;

    step_runner(context_type& context, Step& step) : context_(&context), step_(&step), captured_(*context.device, one_step{&step}) {}

    /// Makes memory ready for batches of several shapes, once.
    template <class Data>
    void warm_up(Data& data) {
        if constexpr (bucketed_training_data<Data>) {
            captured_.set_most_graphs(std::max(captured_.most_graphs(), static_cast<int>(data.shapes())));
            if (!std::exchange(is_warm_, true)) step_->warm_up(data);
        }
    }
    /// Runs one step; where memory runs out, with smaller micro-batches if the arguments say so, as if the run had had them in
    /// this step from its beginning. Returns its number of tokens.
    template <class Data>
    extent run(Data& data) {
        training_arguments& a = context_->arguments;
        if (a.auto_find_batch_size && a.per_device_train_batch_size > 1) {
            while (a.per_device_train_batch_size > 1) {
                try {
                    return run_once(data);
                } catch (const out_of_memory& e) {
                    if (step_->is_updating()) throw;  // it cannot be repeated
                    take_smaller_batches(e);
                }
            }
        }
        return run_once(data);
    }

    /// Whether a step has begun and not ended: after an exception in it.
    bool is_under_way() const { return is_under_way_ || step_->is_updating(); }
    /// Forgets what such a step has left.
    void drop() {
        if (std::exchange(is_under_way_, false)) step_->drop();
    }
    /// The counters of another run have been loaded.
    void restart() { is_under_way_ = false; }

    auto& captured() { return captured_; }
    const auto& captured() const { return captured_; }
    /// The message about what cannot be captured; empty: nothing.
    const std::string& refused() const { return refused_; }
    void refuse_capture(const char* why) { refused_ = why; }

  private:
    template <class Data>
    extent run_once(Data& data) {
        step_->note_part("the step's batch");
        context_->is_evaluating = false;
        const auto batch = [&] {
            const scoped_range part(context_->listener, "data loading", track::data);
            const range here(context_->listener, "batch", pass::forward);
            return batch_of(data, context_->state.step);
        }();
        if (std::exchange(is_under_way_, true)) step_->drop();
        step_->begin();
        try {
            run_on(batch);
        } catch (...) {
            if (step_->is_done()) {
                finish();
            } else {
                step_->take_back();
            }
            throw;
        }
        finish();
        return batch.size();
    }
    void finish() {
        step_->end();
        is_under_way_ = false;
        ++context_->state.step;
        context_->state.epoch = context_->epochs();
    }
    template <class Batch>
    void run_on(const Batch& batch) {
        if (looks_now()) {
            step_->observe_on(batch);
        } else if constexpr (is_asynchronous && requires { batch.with_views(same_view{}); }) {
            capture_or_run(batch);
        } else {
            step_->train_on(batch);
        }
    }
    template <class Data>
    auto batch_of(Data& data, std::int64_t step) const {
        const extent rows = context_->rows_of_step();
        if constexpr (epoch_data<Data>) {
            if (const std::int64_t steps = context_->epoch_steps; steps != 0) {
                const extent first = step % steps * rows;
                return data.of_epoch(static_cast<std::uint32_t>(step / steps), first, std::min(rows, context_->epoch_rows - first));
            }
        }
        return data.sample(static_cast<std::uint32_t>(step), rows);
    }
    bool looks_now() const {
        const std::int64_t every = context_->arguments.diagnosis.numerics_steps;
        return Step::watches && every > 0 && (context_->state.step + 1) % every == 0;
    }
    template <class Batch>
    void capture_or_run(const Batch& batch) {
        if (context_->arguments.capture_steps == step_capture::off || context_->is_listened_to || !refused_.empty())
            return step_->train_on(batch);
        try {
            captured_(batch);
        } catch (const capture_error& e) {
            // A user's model that runs uncaptured, but cannot be captured. The capture had no effect on the device.
            refused_ = e.what();
            step_->drop();
            step_->forget_update();
            step_->begin();
            step_->train_on(batch);
        }
    }
    void take_smaller_batches(const out_of_memory& e) {
        training_arguments& a = context_->arguments;
        extent parts = 2;  // the least number that divides the rows
        while (a.per_device_train_batch_size % parts != 0) ++parts;
        a.per_device_train_batch_size /= parts;
        a.gradient_accumulation_steps *= parts;
        is_under_way_ = false;
        step_->drop();
        context_->device->memory().release_cached();  // what the larger ones needed is in the way of what the smaller ones need
        captured_.renew("micro-batches are smaller, since memory ran out");
        context_->for_each_callback(
            [&](trainer_callback& c) { c.on_out_of_memory(context_->state, a.per_device_train_batch_size, e.what()); });
    }

    context_type* context_;
    Step* step_;
    captured_step<Device, one_step> captured_;
    std::string refused_;
    bool is_warm_ = false;
    bool is_under_way_ = false;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
