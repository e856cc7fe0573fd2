// SPDX-License-Identifier: MIT
/// \file
/// Counting targets on the CPU.
#include <halftone/kernel/target_share/cpu.hpp>

#include "kernel/target_share/checks.hpp"

namespace kernel_target_share_tests {

using namespace target_share_checks;

TEST_CASE("target_share: counts and shares are the definition's, wrong arguments") {
    ht::cpu device{{.threads = 1}};
    equals_definition(device);
    weights_and_sums(device);
    refuses(device);
}

}  // namespace kernel_target_share_tests
