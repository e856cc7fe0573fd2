// SPDX-License-Identifier: MIT
/// \file
/// The description of the machine is not empty.
#include <cstdio>

#include <doctest/doctest.h>

#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/metrics/terminal.hpp>

namespace observe_machine_tests {

namespace ht = halftone;

TEST_CASE("the processor has a name and the machine some memory") {
    CHECK(!ht::cpu_model().empty());
#if defined(__linux__) || defined(_WIN32)
    CHECK(ht::physical_memory() > (1u << 20));
#endif
}

TEST_CASE("a file is not a terminal") {
    std::FILE* file = std::tmpfile();
    REQUIRE(file != nullptr);
    CHECK(ht::terminal_columns(file) == 0);
    std::fclose(file);
}

}  // namespace observe_machine_tests
