// SPDX-License-Identifier: MIT
/// \file
/// Shadow runs on the emulated GPU: they read and replace values in memory that the host cannot access.
#include <emulator/device.hpp>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>

#include "train/shadow_checks.hpp"

namespace emulator_models_shadow_tests {

namespace ht = halftone;
using namespace shadow_checks;

TEST_CASE(
    "shadow on the emulated machine: layers whose gradients leave float16's range, and lost addends, have names") {
    ht::emulator::device device{{.seed = 5}};
    names_what_leaves_the_range(device);
    CHECK(first_of(report_of<fault::swamped, ht::amp_fp16>(device, 1024, as_it_is)) == "mix own forward value");
}

}  // namespace emulator_models_shadow_tests
