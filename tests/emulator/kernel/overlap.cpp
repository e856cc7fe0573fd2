// SPDX-License-Identifier: MIT
/// \file
/// Outputs of kernels on a GPU must not overlap themselves; kernel/overlap_checks.hpp has the tests.
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "kernel/overlap_checks.hpp"

namespace emulator_kernel_overlap_tests {

TEST_CASE("outputs that overlap themselves are refused on a GPU; inputs may overlap") {
    halftone::emulator::device device{{.seed = 3}};
    overlap_checks::all(device);
}

}  // namespace emulator_kernel_overlap_tests
