// SPDX-License-Identifier: MIT
/// \file
/// What train_gpt tells: progress while it runs, then the table, the text, and the files.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "run.hpp"

/// Where the program runs, as summary.json says it.
struct machine {
    std::string device, isa;
    int threads = 0;
    std::string gpu;  ///< empty: none is used
};

/// The progress of runs, and their metrics.jsonl.
class reporter {
  public:
    /// Makes the folder and opens the file in it. Throws halftone::output_error.
    reporter(const options& o, const machine& where);
    ~reporter();

    /// The observer of one policy's run; it refers to the reporter, and ends the progress bar with its life.
    std::unique_ptr<halftone::trainer_callback> observe(const std::string& policy);

    /// Writes summary.json and leaves both files. Throws halftone::output_error; then nothing is left.
    void commit(const std::vector<run_result>& runs);

  private:
    struct state;
    std::unique_ptr<state> state_;
};

void print_table(std::ostream& out, const std::vector<run_result>& runs);

/// Printable bytes as they are, others as a dot.
std::string printable(const std::string& text);
