// SPDX-License-Identifier: MIT
#include "processes.hpp"

#include <cstdlib>

#if defined(TRAIN_GPT_MPI)

#include <halftone/dist/mpi.hpp>

struct processes::state {
    halftone::mpi_session session;
    halftone::mpi_communicator world;
    state(int& argc, char**& argv, std::chrono::seconds deadline) : session(argc, argv, {.deadline = deadline}), world(session) {}
};

processes::processes() {
    // Set by Open MPI, and by MPICH and those that descend from it.
    constexpr const char* names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"}};
    for (const auto& [size, rank] : names) {
        const char *const n = std::getenv(size), *const r = std::getenv(rank);
        if (size_ == 1 && n != nullptr && r != nullptr && std::atoi(n) > 1) size_ = std::atoi(n), rank_ = std::atoi(r);
    }
}
void processes::begin(int& argc, char**& argv, std::chrono::seconds deadline) {
    if (size_ > 1) state_ = std::make_unique<state>(argc, argv, deadline);
}
halftone::communicator* processes::world() const { return state_ == nullptr ? nullptr : &state_->world; }

#else

struct processes::state {};

processes::processes() {
    const char* const value = std::getenv("OMPI_COMM_WORLD_SIZE");
    if (value != nullptr && std::atoi(value) > 1)
        halftone::fail<halftone::state_error>("mpirun: this build knows no MPI; configure with cmake -DHALFTONE_MPI=ON, or take "
                                              "--ranks, for threads as ranks");
}
void processes::begin(int&, char**&, std::chrono::seconds) {}
halftone::communicator* processes::world() const { return nullptr; }

#endif

processes::~processes() = default;
