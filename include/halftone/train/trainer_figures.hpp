// SPDX-License-Identifier: MIT
/// \file
/// The figures of a trainer's run: losses, norms, rates, times, between two reads of the device and between two logs. Included
/// by trainer.hpp.
#pragma once

#include <algorithm>
#include <chrono>

#include <halftone/train/recent.hpp>
#include <halftone/train/token_meter.hpp>
#include <halftone/train/trainer_context.hpp>
#include <halftone/train/trainer_progress.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Reads the figures of steps, and tells callbacks.
template <class Device, class Model, class Step>
class trainer_figures {
    using context_type = trainer_context<Device, Model>;

  public:
    trainer_figures(context_type& context, Step& step) : context_(&context), step_(&step) {}

    /// A call of train() begins.
    void begin_run() {
        begin_ = std::chrono::steady_clock::now();
        seconds_before_ = context_->state.seconds;
        context_->notes.clear();
    }
    /// Sets the time in train() so far.
    void note_time() { context_->state.seconds = seconds_before_ + seconds_since(begin_); }

    void begin_step() {
        if (unread_.steps == 0) unread_.begin = std::chrono::steady_clock::now();
    }
    void end_step(extent tokens) {
        ++window_steps_;
        unread_.tokens += tokens;
        ++unread_.steps;
    }

    /// Reads the figures from the device, and the clock, when the steps that were not read yet have finished.
    void read() {
        if (unread_.steps == 0) return;
        trainer_state& state = context_->state;
        auto& optimizer = step_->optimizer.base();
        state.loss = step_->losses.mean();
        state.step_loss = step_->losses.last();
        if (step_->norm) state.grad_norm = static_cast<double>(step_->norm->value());
        state.learning_rate = optimizer.last_lr();
        state.loss_scale = static_cast<double>(step_->scaler.get_scale());
        state.skipped = optimizer.skipped_steps();
        state.skips = optimizer.skips();
        const double seconds = seconds_since(unread_.begin);
        for (std::int64_t i = 0; i < std::min<std::int64_t>(unread_.steps, 1024); ++i)
            step_seconds_.add(seconds / static_cast<double>(unread_.steps));
        window_.add(unread_.tokens, seconds), total_.add(unread_.tokens, seconds);
        state.tokens_per_second = window_.rate();
        unread_ = {};
        step_->tell_overflows();
    }
    /// Ends a window of steps that are reported together.
    void log() {
        if (window_steps_ == 0) return;
        trainer_state& state = context_->state;
        const scoped_range here(context_->listener, "log", track::files);
        state.step_ms = step_ms();
        state.peak_bytes = context_->device->memory().usage().peak();
        context_->for_each_callback([&](trainer_callback& c) { c.on_log(state); });
        window_ = {};
        step_->losses.restart();
        window_steps_ = 0;
    }
    /// Tells of an evaluation.
    void report(const evaluation_result& r) {
        context_->state.seconds += r.seconds;
        context_->for_each_callback([&](trainer_callback& c) { c.on_evaluate(context_->state, r); });
    }
    training_result result(training_end end) {
        const memory_usage& usage = context_->device->memory().usage();
        auto& optimizer = step_->optimizer.base();
        training_result r{.steps = context_->state.step,
                          .skipped_steps = optimizer.skipped_steps(),
                          .skips = optimizer.skips(),
                          .train_loss = step_->losses.latest_mean(),
                          .tokens_per_second = total_.rate(),
                          .step_ms = step_ms_so_far(),
                          .loss_scale = static_cast<double>(step_->scaler.get_scale()),
                          .peak_bytes = usage.peak(),
                          .end = end,
                          .notes = context_->notes};
        for (int kind = 0; kind < memory_kinds; ++kind)
            r.peak_bytes_of[kind] = usage.peak(static_cast<memory_kind>(kind));
        return r;
    }

    /// The counters for a checkpoint. Waits for the device.
    trainer_progress progress() {
        read();
        return {.step = context_->state.step,
                .window_steps = window_steps_,
                .seconds = context_->state.seconds,
                .step_ms = step_ms_so_far(),
                .tokens = total_.tokens,
                .token_seconds = total_.seconds,
                .window_tokens = window_.tokens,
                .window_seconds = window_.seconds,
                .losses = step_->losses.state(),
                .order = context_->order};
    }
    /// Restores them.
    void restore(const trainer_progress& p) {
        step_->losses.load(p.losses);
        context_->state.step = p.step;
        context_->state.seconds = p.seconds;
        context_->state.step_ms = p.step_ms;
        context_->order = p.order;
        context_->is_restored = true;
        window_steps_ = p.window_steps;
        total_ = {p.tokens, p.token_seconds};
        window_ = {p.window_tokens, p.window_seconds};
        unread_ = {};
    }

  private:
    double step_ms() { return 1e3 * step_seconds_.median(); }
    /// The median of the latest steps' milliseconds; before the first step of a resumed run what the run had had
    /// before.
    double step_ms_so_far() { return step_seconds_.size() == 0 ? context_->state.step_ms : step_ms(); }

    context_type* context_;
    Step* step_;
    recent step_seconds_{1024};
    token_meter window_, total_;
    std::int64_t window_steps_ = 0;
    std::chrono::steady_clock::time_point begin_{};  ///< of this call of train()
    double seconds_before_ = 0;
    struct {
        std::int64_t steps = 0;
        extent tokens = 0;
        std::chrono::steady_clock::time_point begin{};
    } unread_;  ///< steps whose figures have not been read yet
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
