// SPDX-License-Identifier: MIT
/// \file
/// The figures of a training run at one of its steps: what a trainer reports, and what metrics.jsonl contains.
#pragma once

#include <cstddef>
#include <cstdint>

#include <halftone/number/classify.hpp>
#include <halftone/optim/step_result.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The figures of a run after a step.
struct step_metrics {
    std::int64_t step = 0;             ///< steps done, skipped ones included
    double loss = 0;                   ///< nats a token, the mean over the steps since the last report
    double step_loss = 0;              ///< nats a token, of the last step that was read
    double grad_norm = -1;             ///< of the last step that was read, before clipping; -1: not computed
    double learning_rate = 0;
    double tokens_per_second = 0;      ///< over the steps since the last report, without evaluations
    double step_ms = 0;                ///< milliseconds a step, the median over the latest steps
    std::size_t peak_bytes = 0;        ///< the most memory used at one time so far
    double loss_scale = 1;
    std::int64_t skipped = 0;          ///< steps skipped so far
    skip_counts skips{};               ///< steps skipped so far, by reason

    /// Whether the norm was computed: a NaN was, too.
    bool has_grad_norm() const { return is_nan(grad_norm) || grad_norm >= 0; }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
