// SPDX-License-Identifier: MIT
/// \file
/// Pooling, batch norm and group norm on tapes as a GPU runs them.
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "autodiff/images_checks.hpp"

namespace emulator_models_images_tests {

TEST_CASE("pooling, batch_norm and group_norm on a GPU's tapes: gradients against differences") {
    halftone::emulator::device device{{.seed = 3, .check = halftone::emulator::checking::values_only}};
    images_checks::gradients(device);
    images_checks::far_from_zero(device);
}

}  // namespace emulator_models_images_tests
