// SPDX-License-Identifier: MIT
/// \file
/// The output of train_gpt: progress while it runs, then the table, the text, and the files.
#pragma once

#include <deque>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <halftone/observe/metrics/metrics.hpp>
#include <halftone/observe/report/report.hpp>

#include "../seeing.hpp"
#include "run.hpp"

/// The machine, as described in summary.json.
struct machine {
    std::string device, isa;
    int threads = 0;
    std::string gpu;  ///< empty: no GPU is used
};

/// What decides a run's numbers, and a resumed run must have the same, as JSON.
std::string run_arguments(const options& o, std::string_view corpus);

/// Prepares metrics.jsonl.part, and tells how it is opened: with --resume it holds the lines that earlier runs wrote up to
/// the newest good checkpoint of each policy. `arguments` are those that decide a run's numbers; the number of steps may
/// differ. Throws exit_with(2) if a checkpoint was saved with others.
ht::part_file rejoin_metrics(const options& o, const std::string& arguments);

/// Reports the progress of runs, and writes their metrics.jsonl and event files, and the report.
class reporter {
  public:
    /// Makes the folder and opens the file in it; with --resume it begins with what earlier runs reported up to their
    /// checkpoints. Throws ht::output_error, as `writes` says, and exit_with(2) if the run that is resumed had other
    /// arguments.
    reporter(const options& o, const machine& where, const std::string& arguments, file_writes& writes);

    /// The observer of one policy's run. The reporter must outlive it; its destructor ends the progress bar.
    std::unique_ptr<ht::trainer_callback> observe(const std::string& policy);
    /// What report.html will show of a policy's run.
    ht::run_report& page_of(const std::string& policy);
    /// Writes the page of a policy's shadow run, to which the report links.
    void write_shadow(const std::string& policy, const ht::shadow_report& shadow);
    /// Writes summary.json and report.html, and keeps all files; `budgets` has what --budget chose for each run, or is empty.
    /// Throws ht::output_error, as `writes` says; then metrics.jsonl.part and event files are left.
    void commit(const std::vector<run_result>& runs, const std::vector<ht::memory_choice>& budgets);

  private:
    class observer;

    options o_;
    machine where_;
    file_writes& write_;
    std::optional<ht::output_folder> folder_{};
    std::optional<ht::metrics_file> metrics_{};
    std::optional<ht::output_file>
        summary_{};  // opened early, so that an unwritable folder is reported before training
    ht::system_monitor monitor_{};
    std::deque<ht::run_report> pages_{};  // which observers refer to
};

/// Writes plan.json to the options' folder. Throws ht::output_error; then no file is left.
void write_plans(const options& o, const std::vector<run_result>& plans);
/// Prints for each policy the peak by kind.
void print_plans(std::ostream& out, const std::vector<run_result>& plans);

/// `unit`: what a loss is an average over, byte or token.
void print_table(std::ostream& out, const std::vector<run_result>& runs, const std::string& unit);
/// Prints the text that the bf16 model wrote, or, without such a model, the last one; dots for what cannot be printed.
void print_text(std::ostream& out, const std::vector<run_result>& runs);
