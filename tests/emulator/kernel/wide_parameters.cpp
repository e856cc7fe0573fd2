// SPDX-License-Identifier: MIT
/// \file
/// Parameters in a user's own type that float does not hold, on the emulated GPU.
#include <emulator/device.hpp>

#include <halftone/kernel/convert/device.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>

#include "kernel/optimizer_step/wide_checks.hpp"

namespace emulator_kernel_wide_parameters_tests {

TEST_CASE("parameters that float does not hold on a GPU: steps and conversions are in double, and rounded once") {
    halftone::emulator::device device{{.seed = 5}};
    wide_checks::steps(device);
    wide_checks::own_rule(device);
    wide_checks::conversions(device);
}

}  // namespace emulator_kernel_wide_parameters_tests
