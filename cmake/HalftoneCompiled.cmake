# SPDX-License-Identifier: MIT
# halftone::compiled: the same library as halftone::halftone, with the CPU's kernels and the GPT of the presets compiled once. It
# is built when something links it, or always if HALFTONE_COMPILED is on; then it is also installed.
#
#     target_link_libraries(program PRIVATE halftone::compiled)

add_library(halftone_compiled STATIC "${PROJECT_SOURCE_DIR}/src/elements.cpp" "${PROJECT_SOURCE_DIR}/src/functions.cpp"
            "${PROJECT_SOURCE_DIR}/src/models.cpp" "${PROJECT_SOURCE_DIR}/src/products.cpp" "${PROJECT_SOURCE_DIR}/src/rows.cpp")
add_library(halftone::compiled ALIAS halftone_compiled)
target_link_libraries(halftone_compiled PUBLIC halftone)
target_compile_definitions(halftone_compiled PUBLIC HALFTONE_COMPILED)
set_target_properties(halftone_compiled PROPERTIES EXPORT_NAME compiled POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
if(NOT HALFTONE_COMPILED)
    set_target_properties(halftone_compiled PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
if(NOT MSVC AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    # Optimised in every configuration, so that kernels run at full speed in a debug build, too.
    target_compile_options(halftone_compiled PRIVATE -O2)
endif()
target_compile_options(halftone_compiled PRIVATE ${halftone_compiler_options})
