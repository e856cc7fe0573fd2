// SPDX-License-Identifier: MIT
/// \file
/// Pointwise operations and losses by name, as a GPU runs them.
#include <halftone/kernel/map/device.hpp>
#include <halftone/kernel/sum/device.hpp>

#include <emulator/device.hpp>

#include "autodiff/elementwise_checks.hpp"

namespace {

namespace emulator = halftone::emulator;

TEST_CASE("operations and losses by name on a GPU") {
    emulator::device device{{.seed = 7}};
    elementwise_checks::gradients(device);
    elementwise_checks::further(device);
}

}  // namespace
