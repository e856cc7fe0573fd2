// SPDX-License-Identifier: MIT
/// \file
/// Dropout on a tape on a GPU: the record of its random numbers is in memory that the host cannot read.
#include <halftone/kernel/device.hpp>

#include <emulator/device.hpp>

#include "autodiff/dropout_checks.hpp"

namespace emulator_models_dropout_tests {

namespace ht = halftone;

TEST_CASE("dropout on a GPU: the backward pass uses the forward pass's mask") {
    ht::emulator::device device;
    dropout_test::same_mask_backward<ht::bfloat16, float>(device);
}

TEST_CASE("dropout on a GPU: the saved state repeats a step") {
    ht::emulator::device device;
    dropout_test::replays(device);
}

TEST_CASE("dropout on a GPU: seed and state cannot be set between a forward pass and its backward pass") {
    ht::emulator::device device;
    dropout_test::keeps_its_numbers(device);
}

TEST_CASE("dropout on a GPU: in inference, and with probabilities of 0 and 1") {
    ht::emulator::device device;
    dropout_test::ends_of_the_range(device);
}

}  // namespace emulator_models_dropout_tests
