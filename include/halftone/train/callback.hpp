// SPDX-License-Identifier: MIT
/// \file
/// What a trainer reports to callbacks: its state at a step, and the results of evaluations and runs.
///
///     struct printer : ht::trainer_callback {
///         void on_log(const ht::trainer_state& s) override { std::cout << s.step << ' ' << s.loss << '\n'; }
///     } print;
///     trainer.add_callback(print);
#pragma once

#include <string>

#include <halftone/memory/usage.hpp>
#include <halftone/observe/metrics/step_metrics.hpp>
#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The state of a run.
struct trainer_state : step_metrics {
    std::int64_t max_steps = 0;    ///< of num_train_epochs, too, once train() has begun
    double epoch = 0;              ///< epochs done, with a fraction; 0 in a run of max_steps
    double seconds = 0;            ///< time in train() so far, evaluations included
};

/// The result of an evaluation.
struct evaluation_result {
    double loss = 0;               ///< nats a token, the mean over all tokens
    std::int64_t tokens = 0;
    double seconds = 0;
};

/// Whether a run finished or was stopped.
enum class training_end { finished, stopped };

/// The result of a run.
struct training_result {
    std::int64_t steps = 0;
    std::int64_t skipped_steps = 0;
    skip_counts skips{};                           ///< skipped_steps by reason
    double train_loss = 0;                         ///< nats a token, the mean over the last logging_steps steps
    double tokens_per_second = 0;                  ///< over all steps, without evaluations
    double step_ms = 0;                            ///< the median of the latest 1,024 steps
    double loss_scale = 1;
    std::size_t peak_bytes = 0;                    ///< the most memory used at one time
    std::size_t peak_bytes_of[memory_kinds] = {};  ///< by kind, each with its own peak
    training_end end = training_end::finished;
    std::string notes{};                           ///< what the run could not do, a sentence a line; empty: nothing
};

/// Receives a run's progress, on the training thread. A callback may call the trainer's stop().
class trainer_callback {
  public:
    trainer_callback() = default;
    trainer_callback(const trainer_callback&) = delete;
    trainer_callback& operator=(const trainer_callback&) = delete;
    virtual ~trainer_callback() = default;

    /// Whether it is called on every rank of several that train together, as one that makes collective calls must be; otherwise
    /// it is called on rank 0 alone.
    virtual bool is_of_all_ranks() const { return false; }

    /// Called when train() begins.
    virtual void on_train_begin(const trainer_state&) {}
    /// Called when train() has taken its last step.
    virtual void on_train_end(const trainer_state&) {}
    /// Called after every step; loss and tokens_per_second are those since the last on_log. For a device that works
    /// asynchronously, such as a GPU, it does not wait: except for step, max_steps and seconds, the state is then that
    /// of the first step, the last log or the last evaluation.
    virtual void on_step(const trainer_state&) {}
    /// Called every logging_steps steps, and after the last one.
    virtual void on_log(const trainer_state&) {}
    /// Called for each skipped step, if find_overflow is on; before the on_step of the step after which the
    /// device is read.
    virtual void on_overflow(const trainer_state&, const overflow&) {}
    /// Called every numerics_steps steps, with the counts of that step's tensors.
    virtual void on_numerics(const trainer_state&, const numerics_view&) {}
    /// Called where memory ran out in a step (`what` is the error's message), before it is taken again with micro-batches
    /// of `rows` rows (auto_find_batch_size).
    virtual void on_out_of_memory(const trainer_state&, extent /*rows*/, const char* /*what*/) {}
    /// Called after every evaluation.
    virtual void on_evaluate(const trainer_state&, const evaluation_result&) {}
    /// Called last for every step, after on_log and on_evaluate: the run can be saved here.
    virtual void after_step(const trainer_state&) {}
    /// Called when train() is about to return because of stop(), before its last on_log.
    virtual void on_stop(const trainer_state&) {}
    /// Called when a checkpoint has been saved, or begun.
    virtual void on_save(const trainer_state&) {}
    /// Called when one could not be saved, with the reason: once until one can be again.
    virtual void on_save_failed(const trainer_state&, const std::string&) {}
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
