// SPDX-License-Identifier: MIT
#include <cstdlib>

#include "processes.hpp"

#if defined(TRAIN_GPT_MPI)

#include <halftone/ranks/mpi.hpp>

process_number number_of_process() {
    // Set by Open MPI, and by MPICH and those that descend from it.
    constexpr const char* names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"}};
    for (const auto& [size, rank] : names) {
        const char *const n = std::getenv(size), *const r = std::getenv(rank);
        if (n != nullptr && r != nullptr && std::atoi(n) > 1) return {std::atoi(r), std::atoi(n)};
    }
    return {};
}

std::shared_ptr<halftone::communicator> join_processes(const process_number& mine, int& argc, char**& argv,
                                                       std::chrono::seconds deadline) {
    if (mine.size == 1) return nullptr;
    struct joined {
        halftone::mpi_session session;
        halftone::mpi_communicator world;
        joined(int& c, char**& v, std::chrono::seconds seconds)
            : session(c, v, {.deadline = seconds}), world(session) {}
    };
    const auto all = std::make_shared<joined>(argc, argv, deadline);
    return {all, &all->world};
}

#else

process_number number_of_process() {
    const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
    if (size != nullptr && std::atoi(size) > 1)
        halftone::fail<halftone::state_error>(
            "mpirun: this build knows no MPI; configure with cmake -DHALFTONE_MPI=ON, or take "
            "--ranks, for threads as ranks");
    return {};
}
std::shared_ptr<halftone::communicator> join_processes(const process_number&, int&, char**&, std::chrono::seconds) {
    return nullptr;
}

#endif
