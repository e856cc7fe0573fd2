// SPDX-License-Identifier: MIT
/// \file
/// Stops a trainer when evaluations no longer get better, as Hugging Face's EarlyStoppingCallback does.
///
///     ht::early_stopping stopping{trainer, {.early_stopping_patience = 3}};
///     ht::trainer_checkpoints checkpoints{trainer, stopping};       // its count is part of the run's checkpoints
#pragma once

#include <cstdint>
#include <limits>

#include <halftone/number/classify.hpp>
#include <halftone/train/callback.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// When early_stopping stops.
struct early_stopping_options {
    int early_stopping_patience = 1;        ///< evaluations in a row that are not better
    double early_stopping_threshold = 0.0;  ///< by how much the loss must be below the best one to be better
};

/// The state of early_stopping, for resuming a run.
struct early_stopping_state {
    double best = std::numeric_limits<double>::quiet_NaN();  ///< NaN: no evaluation had a loss yet
    std::int64_t evaluations = 0;  ///< in all
    std::int64_t not_better = 0;   ///< the last ones in a row

    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) {
        f("best", self.best), f("evaluations", self.evaluations), f("not_better", self.not_better);
    }
};

/// Calls the trainer's stop() when `early_stopping_patience` evaluations in a row had no better loss than the best before
/// them. It adds itself to the trainer's callbacks; both must live as long as train() runs.
template <class Trainer>
class early_stopping final : public trainer_callback {
  public:
    static constexpr const char* checkpoint_name = "early_stopping";
    static constexpr bool is_of_first_rank = true;  ///< which alone is told evaluations

    /// Throws argument_error for a patience of less than 1 and a threshold that is negative or not finite.
    explicit early_stopping(Trainer& trainer, const early_stopping_options& options = {}) : trainer_(&trainer), options_(options) {
        if (options.early_stopping_patience < 1)
            fail<argument_error>("early_stopping: early_stopping_patience is ", options.early_stopping_patience, "; expected 1 or more");
        if (!(options.early_stopping_threshold >= 0 && is_finite(options.early_stopping_threshold)))
            fail<argument_error>("early_stopping: early_stopping_threshold is ", options.early_stopping_threshold,
                                 "; expected 0 or more");
        trainer.add_callback(*this);
    }

    void on_evaluate(const trainer_state&, const evaluation_result& r) override {
        ++state_.evaluations;
        const bool is_better = is_nan(state_.best) ? !is_nan(r.loss)  // a NaN is never best
                                                  : r.loss < state_.best - options_.early_stopping_threshold;
        if (is_better) {
            state_.best = r.loss;
            state_.not_better = 0;
        } else if (++state_.not_better >= options_.early_stopping_patience) {
            trainer_->stop();
        }
    }

    early_stopping_state state() const { return state_; }
    /// Restores a state.
    void load(const early_stopping_state& s) { state_ = s; }

  private:
    Trainer* trainer_;
    early_stopping_options options_;
    early_stopping_state state_;
};

template <class Trainer>
early_stopping(Trainer&) -> early_stopping<Trainer>;
template <class Trainer>
early_stopping(Trainer&, const early_stopping_options&) -> early_stopping<Trainer>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
