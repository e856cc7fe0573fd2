// SPDX-License-Identifier: MIT
/// \file
/// A training run on a GPU that runs out of memory, anywhere.
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "train/out_of_memory_checks.hpp"

TEST_CASE("out of memory on a device at each request in turn: one error, nothing lost, and the next run is as a fresh one") {
    halftone::emulator::device gpu{{.check = halftone::emulator::checking::values_only}};
    out_of_memory_checks::expect_errors_everywhere<halftone::amp_bf16, halftone::plain_tape>(gpu);
}
