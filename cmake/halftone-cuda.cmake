# SPDX-License-Identifier: MIT
# Defines halftone::cuda if a CUDA toolkit is found. The build tree and the installed package both read this file.

if(NOT TARGET halftone::cuda)
    if(NOT TARGET CUDA::cudart)
        find_package(CUDAToolkit QUIET)
        foreach(library cudart cudart_static cudart_static_deps)
            if(CUDAToolkit_FOUND AND TARGET CUDA::${library})
                set_target_properties(CUDA::${library} PROPERTIES IMPORTED_GLOBAL TRUE)
            endif()
        endforeach()
    endif()
    if(TARGET CUDA::cudart)
        if(CUDAToolkit_VERSION VERSION_LESS 12.4)
            message(STATUS "halftone: CUDA ${CUDAToolkit_VERSION} is older than 12.4, so there is no halftone::cuda")
        else()
            add_library(halftone::cuda INTERFACE IMPORTED GLOBAL)
            # The runtime that nvcc links by default: the static one, which programs need not find at run time, unless the
            # target's CUDA_RUNTIME_LIBRARY is Shared.
            set(shared "$<STREQUAL:$<TARGET_PROPERTY:CUDA_RUNTIME_LIBRARY>,Shared>")
            target_link_libraries(halftone::cuda INTERFACE halftone::halftone "$<IF:${shared},CUDA::cudart,CUDA::cudart_static>")
            # The flag itself, because CMake 3.25 does not know which nvcc supports C++20.
            target_compile_options(halftone::cuda INTERFACE "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20>")
        endif()
    endif()
endif()
