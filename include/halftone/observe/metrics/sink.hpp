// SPDX-License-Identifier: MIT
/// \file
/// Where a run's figures go: files, TensorBoard, or a service of the user's.
///
///     struct my_sink : ht::metrics_sink {
///         void scalar(const std::string& tag, double value, std::int64_t step) override { … }
///     };
///     ht::write_metrics(sink, trainer_state);              // "train/loss", "train/lr", …
///
/// Tags have the form of TensorBoard's, "group/name".
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <halftone/number/classify.hpp>
#include <halftone/observe/metrics/step_metrics.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How values are distributed: counts in ranges that follow one another.
struct metrics_histogram {
    double min = 0, max = 0, count = 0, sum = 0, sum_squares = 0;
    std::vector<double> upper;  ///< the upper end of each range, ascending; the lower end is the range before's
    std::vector<double> counts;

    /// The histogram of these values, in at most `ranges` equal ranges from the least to the largest; those that are
    /// not finite are left out.
    static metrics_histogram of(const std::vector<double>& values, std::size_t ranges = 30) {
        metrics_histogram h;
        for (const double v : values) {
            if (!is_finite(v)) continue;
            h.min = h.count == 0 || v < h.min ? v : h.min;
            h.max = h.count == 0 || v > h.max ? v : h.max;
            ++h.count, h.sum += v, h.sum_squares += v * v;
        }
        if (h.count == 0 || ranges == 0) return h;
        if (h.min == h.max) ranges = 1;
        for (std::size_t i = 1; i <= ranges; ++i)
            h.upper.push_back(i == ranges ? h.max : h.min + (h.max - h.min) * static_cast<double>(i) / static_cast<double>(ranges));
        h.counts.assign(ranges, 0);
        for (const double v : values) {
            if (!is_finite(v)) continue;
            std::size_t at = 0;
            while (at + 1 < ranges && v > h.upper[at]) ++at;
            ++h.counts[at];
        }
        return h;
    }
};

/// Receives figures. Calls come from one thread at a time.
class metrics_sink {
  public:
    metrics_sink() = default;
    metrics_sink(const metrics_sink&) = delete;
    metrics_sink& operator=(const metrics_sink&) = delete;
    virtual ~metrics_sink() = default;

    /// A number at a step.
    virtual void scalar(const std::string& tag, double value, std::int64_t step) = 0;
    /// A distribution at a step.
    virtual void histogram(const std::string& /*tag*/, const metrics_histogram&, std::int64_t /*step*/) {}
    /// A text, in Markdown.
    virtual void text(const std::string& /*tag*/, const std::string& /*text*/, std::int64_t /*step*/) {}
};

/// Gives a step's figures to a sink, as scalars "train/loss", "train/lr", "train/grad_norm", "train/loss_scale",
/// "train/skipped", "train/tokens_per_second", "train/step_ms" and "train/peak_bytes".
inline void write_metrics(metrics_sink& sink, const step_metrics& m, const std::string& group = "train") {
    const auto give = [&](const char* name, double value) { sink.scalar(group + "/" + name, value, m.step); };
    give("loss", m.loss);
    give("lr", m.learning_rate);
    if (m.has_grad_norm()) give("grad_norm", m.grad_norm);
    give("loss_scale", m.loss_scale);
    give("skipped", static_cast<double>(m.skipped));
    give("tokens_per_second", m.tokens_per_second);
    give("step_ms", m.step_ms);
    give("peak_bytes", static_cast<double>(m.peak_bytes));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
