// SPDX-License-Identifier: MIT
/// \file
/// Operations on tensors of which an extent is 0, on the emulated GPU; autodiff/empty_checks.hpp has the tests.
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "autodiff/empty_checks.hpp"

namespace emulator_models_empty_tests {

namespace ht = halftone;

TEST_CASE("tensors with an extent of 0 on a GPU") {
    ht::emulator::device device{{.seed = 5, .check = ht::emulator::checking::values_only}};
    empty_checks::all(device);
}

}  // namespace emulator_models_empty_tests
