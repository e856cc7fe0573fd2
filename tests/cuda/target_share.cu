// SPDX-License-Identifier: MIT
/// \file
/// Counting targets on a GPU.
// compile: joined, at most 20 kernels.
#include <doctest/doctest.h>

#include <halftone/kernel/target_share/device.hpp>

#include "cuda/device.cuh"
#include "kernel/target_share/checks.hpp"

namespace {

using namespace target_share_checks;

TEST_CASE("target_share on cuda: counts and shares are the definition's, wrong arguments") {
    support::waiting_cuda device;
    equals_definition(device);
    weights_and_sums(device);
    refuses(device);
}

}  // namespace
