// SPDX-License-Identifier: MIT
/// \file
/// Convolution on a GPU.
// compile: read, at most 80 kernels.
#include <doctest/doctest.h>

#include <halftone/kernel/conv2d/device.hpp>

#include "cuda/device.cuh"
#include "kernel/conv2d/checks.hpp"

namespace {

using namespace conv2d_checks;

TEST_CASE("conv2d on cuda: exact on small whole numbers, within bounds on others") {
    support::waiting_cuda device;
    unfolds<bfloat16, bfloat16>(device);
    exact<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device);
    within_bounds<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device);
    refuses(device);
}

}  // namespace
