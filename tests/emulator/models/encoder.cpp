// SPDX-License-Identifier: MIT
/// \file
/// A classifier over an encoder against transformers' as a GPU runs it.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "nn/encoder_checks.hpp"

namespace emulator_models_encoder_tests {

namespace ht = halftone;

TEST_CASE("encoder on a GPU: in bfloat16 at most twice as far off as PyTorch's autocast") {
    ht::emulator::device device;
    encoder_test::is_as_bert<ht::amp_bf16>(device);
}

}  // namespace emulator_models_encoder_tests
