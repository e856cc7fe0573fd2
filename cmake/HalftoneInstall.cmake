# SPDX-License-Identifier: MIT
# Headers, the CMake package and the pkg-config file. They do not depend on the machine, and are installed in share/, except
# halftone::compiled and the file that names it, which exist if HALFTONE_COMPILED is on.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(halftone_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/halftone")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/halftone" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
install(TARGETS halftone EXPORT halftone-targets INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT halftone-targets NAMESPACE halftone:: DESTINATION "${halftone_package_dir}")
set(halftone_architecture ARCH_INDEPENDENT)
if(HALFTONE_COMPILED)
    set(halftone_architecture "")
    install(TARGETS halftone_compiled EXPORT halftone-compiled-targets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(EXPORT halftone-compiled-targets NAMESPACE halftone:: DESTINATION "${halftone_package_dir}")
endif()

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/halftone-config.cmake.in"
                              "${PROJECT_BINARY_DIR}/halftone-config.cmake" INSTALL_DESTINATION "${halftone_package_dir}")
# Before 1.0 a minor version may change any name; from 1.0 on only a major version may.
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(halftone_compatibility SameMinorVersion)
else()
    set(halftone_compatibility SameMajorVersion)
endif()
write_basic_package_version_file("${PROJECT_BINARY_DIR}/halftone-config-version.cmake"
                                 COMPATIBILITY ${halftone_compatibility} ${halftone_architecture})
install(FILES "${PROJECT_BINARY_DIR}/halftone-config.cmake" "${PROJECT_BINARY_DIR}/halftone-config-version.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/halftone-cuda.cmake" "${CMAKE_CURRENT_LIST_DIR}/halftone-mpi.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/halftone-nccl.cmake" DESTINATION "${halftone_package_dir}")

# The prefix is relative to the .pc file, so that an installed tree can be moved.
file(RELATIVE_PATH halftone_pc_to_prefix "/prefix/${CMAKE_INSTALL_DATADIR}/pkgconfig" "/prefix")
configure_file("${CMAKE_CURRENT_LIST_DIR}/halftone.pc.in" "${PROJECT_BINARY_DIR}/halftone.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/halftone.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/halftone")
