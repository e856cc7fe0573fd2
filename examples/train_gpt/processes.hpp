// SPDX-License-Identifier: MIT
/// \file
/// The processes that mpirun began, as ranks; needs a build with HALFTONE_MPI. Without mpirun a process is alone.
#pragma once

#include <chrono>
#include <memory>

#include <halftone/ranks/communicator.hpp>

/// A process's number, and how many there are.
struct process_number {
    int rank = 0, size = 1;
};
/// As mpirun says in the environment. Throws ht::state_error if there are several, and the build knows no MPI.
process_number number_of_process();

/// Joins the others, who call it, too: MPI begins, and ends with what is returned. nullptr for a process alone.
std::shared_ptr<halftone::communicator> join_processes(const process_number& mine, int& argc, char**& argv,
                                                       std::chrono::seconds deadline);
