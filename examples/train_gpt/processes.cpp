// SPDX-License-Identifier: MIT
#include "processes.hpp"

#include <cstdlib>

#if defined(TRAIN_GPT_MPI)

#include <halftone/dist/mpi.hpp>

struct processes::state {
    halftone::mpi_session session;
    halftone::mpi_communicator world;
    state(int& argc, char**& argv) : session(argc, argv), world(session) {}
};

processes::processes(int& argc, char**& argv) {
    // Set by Open MPI, and by MPICH and those that descend from it.
    for (const char* const size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
        const char* const value = std::getenv(size);
        if (state_ == nullptr && value != nullptr && std::atoi(value) > 1) state_ = std::make_unique<state>(argc, argv);
    }
}
halftone::communicator* processes::world() const { return state_ == nullptr ? nullptr : &state_->world; }

#else

struct processes::state {};

processes::processes(int&, char**&) {
    const char* const value = std::getenv("OMPI_COMM_WORLD_SIZE");
    if (value != nullptr && std::atoi(value) > 1)
        halftone::fail<halftone::state_error>("mpirun: this build knows no MPI; configure with cmake -DHALFTONE_MPI=ON, or take "
                                              "--ranks, for threads as ranks");
}
halftone::communicator* processes::world() const { return nullptr; }

#endif

processes::~processes() = default;
