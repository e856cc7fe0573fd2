// SPDX-License-Identifier: MIT
/// \file
/// A ResNet-18 against torchvision's on the CPU, in training and in evaluation, in bfloat16.
#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "nn/resnet_checks.hpp"

namespace nn_resnet_bf16_tests {

TEST_CASE("resnet: in bfloat16 at most twice as far off as PyTorch's autocast, in training and in evaluation") {
    halftone::cpu device{{.threads = 2}};
    vision_test::is_as_resnet18<halftone::amp_bf16>(device);
}

}  // namespace nn_resnet_bf16_tests
