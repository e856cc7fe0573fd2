// SPDX-License-Identifier: MIT
/// \file
/// What a trainer tells: its state at a step, the result of an evaluation and of a run, and who wants to hear of them.
///
///     struct printer : ht::trainer_callback {
///         void on_log(const ht::trainer_state& s) override { std::cout << s.step << ' ' << s.loss << '\n'; }
///     } print;
///     trainer.add_callback(print);
#pragma once

#include <halftone/memory/usage.hpp>
#include <halftone/observe/metrics/step_metrics.hpp>
#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Where a run is.
struct trainer_state : step_metrics {
    std::int64_t max_steps = 0;
    double seconds = 0;            ///< in train() so far, evaluations included
};

/// What an evaluation found.
struct evaluation_result {
    double loss = 0;               ///< nats a token, the mean over all tokens
    std::int64_t tokens = 0;
    double seconds = 0;
};

/// Whether a run came to its end or was asked to stop.
enum class training_end { finished, stopped };

/// What a run came to.
struct training_result {
    std::int64_t steps = 0;
    std::int64_t skipped_steps = 0;
    skip_counts skips{};                           ///< skipped_steps by reason
    double train_loss = 0;                         ///< nats a token, the mean over the last logging_steps steps
    double tokens_per_second = 0;                  ///< over all steps, without evaluations
    double step_ms = 0;                            ///< the median of the latest 1,024 steps
    double loss_scale = 1;
    std::size_t peak_bytes = 0;                    ///< the most that was used at one time
    std::size_t peak_bytes_of[memory_kinds] = {};  ///< by kind, each at its own time
    training_end end = training_end::finished;
};

/// Told of a run's course, on the thread that trains. A callback may call the trainer's stop().
class trainer_callback {
  public:
    trainer_callback() = default;
    trainer_callback(const trainer_callback&) = delete;
    trainer_callback& operator=(const trainer_callback&) = delete;
    virtual ~trainer_callback() = default;

    /// After every step; loss and tokens_per_second are those since the last on_log. A device that works while the host
    /// goes on, as a GPU does, is not waited for: but for step, max_steps and seconds, the state is that of the first
    /// step, the last log or the last evaluation there.
    virtual void on_step(const trainer_state&) {}
    /// Every logging_steps steps, and after the last one.
    virtual void on_log(const trainer_state&) {}
    /// For each skipped step, where find_overflow asks for it; before the on_step of the step that the device is read
    /// after.
    virtual void on_overflow(const trainer_state&, const overflow&) {}
    /// Every numerics_steps steps, with what that step's tensors held.
    virtual void on_numerics(const trainer_state&, const numerics_view&) {}
    /// After every evaluation.
    virtual void on_evaluate(const trainer_state&, const evaluation_result&) {}
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
