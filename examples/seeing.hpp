// SPDX-License-Identifier: MIT
/// \file
/// What the programs here show of their runs: metrics.jsonl, event files, a timeline, tables of time, the report; and what
/// becomes of a run whose files cannot be written.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include <halftone/exec/cpu/executor.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/observe/profile/machine_peaks.hpp>
#include <halftone/observe/report/report.hpp>
#include <halftone/observe/trace/recorder.hpp>

#include "seeing_options.hpp"

namespace halftone {
inline namespace HALFTONE_ABI {
class progress;
}
}  // namespace halftone

/// The writing of a program's files: an error is thrown, or becomes a line on stderr and is remembered.
class file_writes {
  public:
    file_writes(std::string program, halftone::write_errors on_error);
    file_writes(const file_writes&) = delete;
    file_writes& operator=(const file_writes&) = delete;

    /// Calls what writes a file. False if it could not, and the run goes on.
    bool operator()(const std::function<void()>& write);
    /// For the files' own options.
    halftone::write_errors on_error() const { return on_error_; }
    std::function<void(const std::string&)> on_note();
    /// From now on lines are printed above this bar, or, with nullptr, below what was printed before.
    void print_above(halftone::progress* bar) { bar_ = bar; }
    /// Whether something could not be written: the program then ends with code 2.
    bool any_failed() const { return any_failed_; }

  private:
    void note(const std::string& line);

    std::string program_;
    halftone::write_errors on_error_;
    halftone::progress* bar_ = nullptr;
    bool any_failed_ = false;
};

/// A run of a program that has several.
struct run_view_options {
    std::filesystem::path out;
    std::int64_t steps = 0;  ///< 0: unknown yet
    int threads = 0;         ///< 0: all cores
    bool is_alone = true;    ///< else files have the run's name in theirs
    bool is_on_gpu = false;
};

/// The listeners of one run, as the options ask for them: --profile, --speed-of-light, --trace, and the memory timeline of
/// the report.
class run_view {
  public:
    /// `page` gets the memory timeline and the table of --speed-of-light. Throws halftone::output_error if the trace's file
    /// cannot be made, unless the run goes on without.
    run_view(const run_view_options& run, const seeing_options& o, halftone::run_report& page);
    ~run_view();

    /// The executor of the run's CPU, which records its workers; nullptr: the CPU's own.
    halftone::executor* executor();
    /// Counts this memory from here on; it must live while the run's ranges are told.
    void watch(halftone::memory_resource& memory);
    /// What the run tells its operations; nullptr: nobody.
    halftone::range_listener* listener();
    /// The recorder of --trace, for a GPU's kernels; nullptr without it.
    halftone::trace_recorder* trace();
    /// Prints tables, writes the trace.
    void finish(std::ostream& out, std::int64_t steps, const halftone::machine_peaks& peaks, file_writes& writes);

  private:
    struct state;
    std::unique_ptr<state> state_;
};

/// A name that a file can have: "bf16, checkpointing" as "bf16_checkpointing".
std::string file_name_of(const std::string& run);

/// The files of a program's runs: metrics.jsonl, event files, traces and the report.
class seen_runs {
  public:
    /// Opens metrics.jsonl in the folder, which is there.
    seen_runs(std::filesystem::path out, const seeing_options& o, file_writes& writes);
    ~seen_runs();

    /// One run.
    class run {
      public:
        run(seen_runs& all, const std::string& name, const run_view_options& options);
        ~run();

        run_view view;
        /// Every step, and every step whose figures are to be in metrics.jsonl and event files.
        void on_step(const halftone::step_metrics& m);
        void on_log(const halftone::step_metrics& m);
        /// A figure of the test after training, "test/accuracy".
        void on_test(const std::string& tag, double value, std::int64_t step);
        halftone::run_report& page() { return *page_; }

      private:
        friend seen_runs;
        struct state;
        halftone::run_report* page_;
        std::unique_ptr<state> state_;
    };
    run& begin(const std::string& name, const run_view_options& options);
    /// Writes the traces and report.html, and gives metrics.jsonl its name. The figures, policies and facts of `page` are
    /// the caller's.
    void commit(halftone::report page);

  private:
    struct state;
    std::unique_ptr<state> state_;
    std::deque<halftone::run_report> pages_;
    std::deque<run> runs_;
};
