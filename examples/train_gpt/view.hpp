// SPDX-License-Identifier: MIT
/// \file
/// What a run's ranges are used for: --profile, --speed-of-light, --trace, and the memory timeline of the report.
#pragma once

#include <memory>
#include <ostream>
#include <string>

#include <halftone/exec/cpu/executor.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/observe/profile/machine_peaks.hpp>
#include <halftone/observe/report/report.hpp>
#include <halftone/observe/trace/recorder.hpp>

#include "run.hpp"

/// The listeners of one policy's run, as the options ask for them.
class run_view {
  public:
    /// `page` gets the memory timeline and the table of --speed-of-light. Throws halftone::output_error if the trace's file
    /// cannot be made.
    run_view(const std::string& policy, const options& o, halftone::run_report& page);
    ~run_view();

    /// The executor of the run's CPU, which records its workers; nullptr: the CPU's own.
    halftone::executor* executor();
    /// Counts this memory from here on; it must live while the run's ranges are told.
    void watch(halftone::memory_resource& memory);
    /// What the run's trainer tells its operations; nullptr: nobody.
    halftone::range_listener* listener();
    /// The recorder of --trace, for a GPU's kernels; nullptr without it.
    halftone::trace_recorder* trace();
    /// Prints tables, writes the trace. Throws halftone::output_error.
    void finish(std::ostream& out, std::int64_t steps, const halftone::machine_peaks& peaks);

  private:
    struct state;
    std::unique_ptr<state> state_;
};

/// The peaks of the options' file, or measured ones.
halftone::machine_peaks peaks_of(const options& o);
