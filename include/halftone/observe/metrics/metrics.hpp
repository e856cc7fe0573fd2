// SPDX-License-Identifier: MIT
/// \file
/// metrics.jsonl: a run's figures, one JSON object a line. Needs nlohmann-json, so no umbrella header includes it.
///
///     ht::metrics_file metrics{"results/metrics.jsonl"};
///     metrics.write(state, {{"policy", "amp_bf16"}});            // any further fields
///     metrics.commit();
///
/// Fields: step, loss, lr, grad_norm where it is computed, tokens_per_second, step_ms, peak_bytes, loss_scale, skipped, and its parts skipped_infinity,
/// skipped_nan and skipped_outlier; see step_metrics. Numbers that are not finite are "nan", "inf" and "-inf". Each line is flushed
/// when it is written; the file gets its final name by commit().
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <halftone/io/finite_json.hpp>
#include <halftone/observe/metrics/output_file.hpp>
#include <halftone/observe/metrics/step_metrics.hpp>
#include <halftone/observe/metrics/system.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A sample of the system as JSON.
inline nlohmann::ordered_json system_json(const system_sample& s) {
    nlohmann::ordered_json j{{"seconds", s.seconds}, {"rss_bytes", s.rss_bytes}, {"processors", s.processors}};
    for (const gpu_sample& g : s.gpus) {
        j["gpus"].push_back({{"used_bytes", g.used_bytes}, {"total_bytes", g.total_bytes}, {"utilisation", g.utilisation},
                             {"watts", g.watts}, {"celsius", g.celsius}});
    }
    return j;
}

/// Options of a file of metrics.
struct metrics_file_options {
    part_file part = part_file::kept;
    write_errors on_error = write_errors::stop;
    std::function<void(const std::string&)> on_note{};  ///< gets a line where the run goes on without what failed
};

/// A file of metrics in JSON lines: one object a step, one an evaluation. Without a commit, because a run was killed or the
/// disk is full, its lines stay in NAME.part, each of them whole.
class metrics_file {
  public:
    using json = nlohmann::ordered_json;

    /// Throws output_error if the file cannot be made, as the following do if it cannot be written; unless the options say
    /// that the run goes on.
    explicit metrics_file(const std::filesystem::path& path, const metrics_file_options& options = {}) : attempt_(options.on_error, options.on_note) {
        attempt_([&] { file_.emplace(path, options.part); });
    }

    /// A step's line, with additional fields first.
    void write(const step_metrics& m, const json& more = json::object()) {
        json line = more;
        line["step"] = m.step;
        line["loss"] = m.loss;
        line["lr"] = m.learning_rate;
        if (m.has_grad_norm()) line["grad_norm"] = m.grad_norm;
        line["tokens_per_second"] = m.tokens_per_second;
        line["step_ms"] = m.step_ms;
        line["peak_bytes"] = m.peak_bytes;
        line["loss_scale"] = m.loss_scale;
        line["skipped"] = m.skipped;
        line["skipped_infinity"] = m.skips.infinity;
        line["skipped_nan"] = m.skips.not_a_number;
        line["skipped_outlier"] = m.skips.outlier;
        write_line(line);
    }
    /// Any other line, such as an evaluation's.
    void write_line(const json& line) {
        if (!file_) return;
        attempt_([&] { file_->write(finite_json(line).dump(-1, ' ', false, json::error_handler_t::replace) + "\n"); });
    }

    /// Gives the file its final name, replacing an existing file.
    void commit() {
        if (file_) attempt_([&] { file_->commit(); });
    }

  private:
    detail::write_attempts attempt_;
    std::optional<output_file> file_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
