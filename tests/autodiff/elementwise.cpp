// SPDX-License-Identifier: MIT
/// \file
/// Named pointwise operations and losses, on the CPU.
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

#include "autodiff/elementwise_checks.hpp"
#include "support/each_set.hpp"

namespace autodiff_elementwise_tests {

namespace ht = halftone;

/// The instruction set is kernel/map's to test; here each operation runs on the best one.
TEST_CASE("operations by name: values and gradients") {
    ht::cpu device{{.threads = 1}};
    elementwise_checks::gradients(device);
    elementwise_checks::of_two_and_three(device);
}

TEST_CASE("losses by name: values and gradients") {
    ht::cpu device{{.threads = 2}};
    elementwise_checks::losses(device);
    elementwise_checks::further(device);
}

}  // namespace autodiff_elementwise_tests
