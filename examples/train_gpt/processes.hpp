// SPDX-License-Identifier: MIT
/// \file
/// The processes that mpirun began, as ranks; needs a build with HALFTONE_MPI. Without mpirun a process is alone.
#pragma once

#include <memory>

#include <halftone/dist/communicator.hpp>

class processes {
  public:
    /// Takes from the command line what is MPI's. Throws halftone::error.
    processes(int& argc, char**& argv);
    processes(const processes&) = delete;
    processes& operator=(const processes&) = delete;
    ~processes();

    /// All processes; nullptr for a process alone.
    halftone::communicator* world() const;
    int size() const { return world() == nullptr ? 1 : world()->size(); }
    bool is_first() const { return world() == nullptr || world()->rank() == 0; }

  private:
    struct state;
    std::unique_ptr<state> state_;
};
