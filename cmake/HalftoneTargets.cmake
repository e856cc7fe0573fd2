# SPDX-License-Identifier: MIT
# How the executables of this repository are built, and how they find the header-only libraries that they use.

# An interface target over one header, found wherever the compiler or CMAKE_PREFIX_PATH would find it; distributions
# disagree on the names of CMake package files, but not on the names of headers.
function(halftone_find_header target header debian_package option)
    if(TARGET ${target})
        return()
    endif()
    string(MAKE_C_IDENTIFIER "HALFTONE_${header}_DIR" variable)
    find_path(${variable} NAMES "${header}" CMAKE_FIND_ROOT_PATH_BOTH)
    mark_as_advanced(${variable})
    if(NOT ${variable})
        message(FATAL_ERROR "halftone: <${header}> was not found. Install it (Debian: ${debian_package}), name its "
                            "folder in CMAKE_PREFIX_PATH, or go without: -D${option}=OFF")
    endif()
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    set(folder "${${variable}}")
    if(CMAKE_CROSSCOMPILING AND folder MATCHES "^/usr/(local/)?include$")
        # The machine's headers include the C library's; only those of the one library are used.
        string(REGEX REPLACE "/.*" "" library "${header}")
        set(folder "${PROJECT_BINARY_DIR}/headers")
        file(MAKE_DIRECTORY "${folder}")
        file(CREATE_LINK "${${variable}}/${library}" "${folder}/${library}" SYMBOLIC)
    endif()
    # A folder that the compiler searches anyway must not be named, because that would move it before the compiler's other folders.
    if(NOT "${folder}" IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
        target_include_directories(${target} SYSTEM INTERFACE "${folder}")
    endif()
endfunction()

# The warnings that this repository enables; there are no flags that change the code.
function(halftone_set_warnings name)
    if(MSVC)
        target_compile_options(${name} PRIVATE /W4 /permissive- /utf-8 /bigobj $<$<BOOL:${HALFTONE_WERROR}>:/WX>)
    else()
        if(MINGW AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
            target_compile_options(${name} PRIVATE -Wa,-mbig-obj)  # templates give more sections than an object has by default
        endif()
        set(as_errors "$<BOOL:${HALFTONE_WERROR}>")
        target_compile_options(${name} PRIVATE
            "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;$<${as_errors}:-Werror>>"
            # Not -Wpedantic, which nvcc's own output is not.
            "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;$<${as_errors}:SHELL:-Werror all-warnings -Xcompiler=-Werror>>")
    endif()
endfunction()

# add_executable with these. Targets with CUDA sources must be linked with halftone::cuda by their CMakeLists.txt.
function(halftone_add_executable name)
    add_executable(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE halftone::halftone)
    halftone_set_warnings(${name})
    target_compile_options(${name} PRIVATE ${halftone_compiler_options})
endfunction()

# The headers that nearly all sources begin with, read once for all programs of the same flags. Not by default: a change of one
# header compiles them all anew, and sources may forget an #include without being told. Sources that are compiled by themselves
# (SKIP_PRECOMPILE_HEADERS) do without. CMake would have the compiler take these headers for a system's, whose warnings it suppresses.
option(HALFTONE_TEST_PCH "Precompile headers for halftone's tests and lessons" OFF)
set(CMAKE_PCH_PROLOGUE "")
# halftone_precompile(<name> LIBRARIES <target>... OPTIONS <option>... HEADERS <header>...) compiles headers for programs that have
# these libraries and options; halftone_use_precompiled(<program> <name>) has a program use them.
function(halftone_precompile name)
    cmake_parse_arguments(PARSE_ARGV 1 precompile "" "" "LIBRARIES;OPTIONS;HEADERS")
    if(NOT HALFTONE_TEST_PCH OR MSVC)
        return()
    endif()
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "// What precompiled headers belong to has a source.\n")
    add_library(${name} OBJECT EXCLUDE_FROM_ALL "${source}")
    target_link_libraries(${name} PRIVATE halftone::halftone ${precompile_LIBRARIES})
    halftone_set_warnings(${name})
    target_compile_options(${name} PRIVATE ${precompile_OPTIONS} ${halftone_compiler_options})
    target_precompile_headers(${name} PRIVATE ${precompile_HEADERS})
endfunction()
function(halftone_use_precompiled program name)
    if(NOT TARGET ${name})
        return()
    endif()
    target_precompile_headers(${program} REUSE_FROM ${name})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        target_compile_options(${program} PRIVATE -Wno-error=invalid-pch)  # the headers themselves are read then
    endif()
endfunction()
