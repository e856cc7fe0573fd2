# SPDX-License-Identifier: MIT
# Toolchain file: for Windows on x86-64 by mingw-w64's g++ with POSIX threads (Debian: g++-mingw-w64-x86-64-posix). If Wine
# is installed, CTest runs the programs under it.
#
#     cmake --preset windows && cmake --build --preset windows && ctest --preset windows

set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)

# Debian's name for the one with POSIX threads; elsewhere the name has no suffix.
find_program(HALFTONE_MINGW NAMES x86_64-w64-mingw32-g++-posix x86_64-w64-mingw32-g++ REQUIRED)
mark_as_advanced(HALFTONE_MINGW)
set(CMAKE_CXX_COMPILER "${HALFTONE_MINGW}")
# A single file that runs on any Windows, with the compiler's run-time libraries linked statically.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)

set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# Debian's wine64 is not in PATH.
find_program(HALFTONE_WINE NAMES wine64 wine PATHS /usr/lib/wine)
mark_as_advanced(HALFTONE_WINE)
if(HALFTONE_WINE)
    set(CMAKE_CROSSCOMPILING_EMULATOR "${HALFTONE_WINE}")
endif()
