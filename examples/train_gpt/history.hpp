// SPDX-License-Identifier: MIT
/// \file
/// --memory-history: the history of a run's memory, written to a file at the run's end, and where memory runs out.
#pragma once

#include <memory>
#include <string>

#include <halftone/memory/resource.hpp>

#include "../seeing.hpp"
#include "run.hpp"

/// The history of one policy's run, or nothing if the options ask for none.
class run_history {
  public:
    /// Records from here on; `also` is told the operations, too. Throws halftone::output_error if the file cannot be made.
    run_history(halftone::memory_resource& memory, const std::string& policy, const options& o,
                halftone::range_listener* also);
    ~run_history();

    /// What the run's trainer tells its operations: the history, or `also`.
    halftone::range_listener* listener() const;
    /// Writes the file. Throws halftone::output_error.
    void write() const;

  private:
    struct state;
    std::unique_ptr<state> state_;
    halftone::range_listener* listener_;
};

/// Calls run(surroundings) with a history of the memory, and writes it.
template <class Run>
run_result with_history(halftone::memory_resource& memory, const std::string& policy, const options& o,
                        const surroundings& around, const Run& run) {
    const run_history history(memory, policy, o, around.listener);
    surroundings recorded = around;
    recorded.listener = history.listener();
    run_result result = run(recorded);
    if (around.writes != nullptr) (*around.writes)([&] { history.write(); });
    else history.write();
    return result;
}
