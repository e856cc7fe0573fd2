// SPDX-License-Identifier: MIT
/// \file
/// Steps that are repeated on the emulated GPU, where later ones are captured.
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "train/repeated_step.hpp"

namespace emulator_models_repeated_step_tests {

namespace ht = halftone;

struct gpu {
    ht::emulator::device operator()() const { return ht::emulator::device({.check = ht::emulator::checking::values_only}); }
};

TEST_CASE("a step on a device that an exception ended is repeated with the states of its beginning") {
    repeated_step::check_thrown<ht::amp_fp16, gpu>(true);
}

TEST_CASE("auto_find_batch_size on a device: a model with batch norm is the one that began with what fits") {
    repeated_step::check_out_of_memory<ht::amp_fp16, gpu>(true);
}

}  // namespace emulator_models_repeated_step_tests
