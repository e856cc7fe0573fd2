# SPDX-License-Identifier: MIT
# Defines halftone::nccl if halftone::cuda is there and NCCL is found: for programs that include <halftone/ranks/nccl.cuh>. The
# build tree and the installed package both read this file, each only if it is asked to. NCCL_ROOT names its folder, as that
# of PyPI's nvidia-nccl-cu13 (nvidia/nccl).

if(TARGET halftone::cuda AND NOT TARGET halftone::nccl)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATHS ENV NCCL_ROOT "${NCCL_ROOT}" PATH_SUFFIXES include)
    find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS "${CUDAToolkit_LIBRARY_DIR}" PATHS ENV NCCL_ROOT "${NCCL_ROOT}"
                 PATH_SUFFIXES lib)
    mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
    if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
        add_library(halftone::nccl INTERFACE IMPORTED GLOBAL)
        target_include_directories(halftone::nccl SYSTEM INTERFACE "${NCCL_INCLUDE_DIR}")
        target_link_libraries(halftone::nccl INTERFACE halftone::cuda "${NCCL_LIBRARY}")
    endif()
endif()
