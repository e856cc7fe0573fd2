// SPDX-License-Identifier: MIT
/// \file
/// The processes that mpirun began, as ranks; needs a build with HALFTONE_MPI. Without mpirun a process is alone.
#pragma once

#include <chrono>
#include <memory>

#include <halftone/dist/communicator.hpp>

class processes {
  public:
    /// Looks for those that mpirun began, in the environment. Throws halftone::error.
    processes();
    processes(const processes&) = delete;
    processes& operator=(const processes&) = delete;
    ~processes();

    int size() const { return size_; }
    bool is_first() const { return rank_ == 0; }
    /// Joins the others, who call it, too: MPI begins, if there are several. Throws halftone::error.
    void begin(int& argc, char**& argv, std::chrono::seconds deadline);
    /// All processes; nullptr for a process alone, and before begin().
    halftone::communicator* world() const;

  private:
    struct state;
    int rank_ = 0, size_ = 1;
    std::unique_ptr<state> state_;
};
