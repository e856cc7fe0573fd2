// SPDX-License-Identifier: MIT
/// \file
/// The output of train_gpt: progress while it runs, then the table, the text, and the files.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include <halftone/observe/memory/plan.hpp>
#include <halftone/observe/report/report.hpp>

#include "memory.hpp"
#include "run.hpp"

/// The machine, as described in summary.json.
struct machine {
    std::string device, isa;
    int threads = 0;
    std::string gpu;  ///< empty: no GPU is used
};

/// What decides a run's numbers, and a resumed run must have the same, as JSON.
std::string run_arguments(const options& o, std::string_view corpus);

/// Reports the progress of runs, and writes their metrics.jsonl and event files, and the report.
class reporter {
  public:
    /// Makes the folder and opens the file in it; with --resume it begins with what earlier runs reported up to their
    /// checkpoints. Throws halftone::output_error, and exit_with(2) if the run that is resumed had other arguments.
    reporter(const options& o, const machine& where, std::string_view corpus);
    ~reporter();

    /// The folder of a policy's checkpoints, and what a resumed run must have the same.
    std::string checkpoints(const std::string& policy) const;
    std::string arguments() const;

    /// The observer of one policy's run. The reporter must outlive it; its destructor ends the progress bar.
    std::unique_ptr<halftone::trainer_callback> observe(const std::string& policy);

    /// What report.html will show of a policy's run.
    halftone::run_report& page_of(const std::string& policy);

    /// Writes summary.json and report.html, and keeps all files; `budgets` has what --budget chose for each run, or is empty. Throws
    /// halftone::output_error; then no file is left.
    void commit(const std::vector<run_result>& runs, const std::vector<budget_result>& budgets);

  private:
    struct state;
    std::unique_ptr<state> state_;
};

/// Writes plan.json to the options' folder. Throws halftone::output_error; then no file is left.
void write_plans(const options& o, const std::vector<run_plan>& plans);
/// Prints for each policy the peak by kind.
void print_plans(std::ostream& out, const std::vector<run_plan>& plans);

/// `unit`: what a loss is an average over, byte or token.
void print_table(std::ostream& out, const std::vector<run_result>& runs, const std::string& unit);

/// The text with non-printable bytes replaced by dots.
std::string printable(const std::string& text);
