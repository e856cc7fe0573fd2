# SPDX-License-Identifier: MIT
# Defines halftone::mpi if an MPI is found: for programs that include <halftone/ranks/mpi.hpp>. The build tree and the installed
# package both read this file, each only if it is asked to.

if(NOT TARGET halftone::mpi)
    set(MPI_CXX_SKIP_MPICXX ON)  # MPI's own C++ bindings, which MPI no longer has
    find_package(MPI QUIET COMPONENTS CXX)
    if(TARGET MPI::MPI_CXX)
        add_library(halftone::mpi INTERFACE IMPORTED GLOBAL)
        set_target_properties(MPI::MPI_CXX PROPERTIES IMPORTED_GLOBAL TRUE)
        target_link_libraries(halftone::mpi INTERFACE halftone::halftone MPI::MPI_CXX)
    endif()
endif()
