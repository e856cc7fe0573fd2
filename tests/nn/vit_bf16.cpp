// SPDX-License-Identifier: MIT
/// \file
/// A vision transformer against torchvision's on the CPU in bfloat16, where the residual stream is fp32 as PyTorch's is.
#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "nn/vit_checks.hpp"

namespace nn_vit_bf16_tests {

TEST_CASE("vit: in bfloat16 at most twice as far off as PyTorch's autocast") {
    halftone::cpu device{{.threads = 2}};
    vision_test::is_as_vit<vision_test::autocast_bf16>(device);
}

}  // namespace nn_vit_bf16_tests
