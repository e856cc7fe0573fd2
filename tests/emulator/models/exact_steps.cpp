// SPDX-License-Identifier: MIT
/// \file
/// Steps with a gradient penalty, with dropout and with sparse gradients on the emulated GPU: with whole numbers they have the
/// CPU's bits.
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "train/exact_steps.hpp"

namespace emulator_models_exact_steps_tests {

namespace ht = halftone;

struct devices {
    ht::cpu cpu{{.threads = 1}};
    ht::emulator::device device{{.seed = 3}};
};

TEST_CASE_FIXTURE(devices, "steps in whole numbers on a GPU: a gradient penalty has the CPU's bits") {
    exact_steps::check_penalty(device, cpu);
}
TEST_CASE_FIXTURE(devices, "steps in whole numbers on a GPU: dropout has the CPU's bits") {
    exact_steps::check_dropout(device, cpu);
}
TEST_CASE_FIXTURE(devices, "steps in whole numbers on a GPU: sparse gradients have the CPU's bits") {
    exact_steps::check_lookup(device, cpu);
}

}  // namespace emulator_models_exact_steps_tests
