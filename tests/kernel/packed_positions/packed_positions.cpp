// SPDX-License-Identifier: MIT
/// \file
/// Positions in packed documents against their definition.
#include <halftone/kernel/packed_positions/cpu.hpp>

#include "kernel/packed_positions/checks.hpp"

namespace kernel_packed_positions_tests {

TEST_CASE("packed positions are as defined") {
    halftone::cpu device{{.threads = 1}};
    packed_positions_checks::as_defined(device);
}

}  // namespace kernel_packed_positions_tests
