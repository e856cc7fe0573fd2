// SPDX-License-Identifier: MIT
/// \file
/// Adafactor with all its operands in a GPU's memory: torch's numbers, its state.
#include <halftone/kernel/gradient_norm/device.hpp>
#include <halftone/kernel/optimizer_step/adafactor/device.hpp>
#include <halftone/kernel/quantize/device.hpp>

#include <emulator/device.hpp>

#include "optim/adafactor_checks.hpp"

namespace emulator_models_adafactor_tests {

namespace emulator = halftone::emulator;
using namespace adafactor_model;

TEST_CASE("adafactor on a GPU: equals torch.optim.Adafactor, keeps a number for each row and column") {
    emulator::device device;
    equals_torch(device, 10);
    keeps_little(device);
}

}  // namespace emulator_models_adafactor_tests
