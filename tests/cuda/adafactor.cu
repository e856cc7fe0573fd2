// SPDX-License-Identifier: MIT
/// \file
/// A step of Adafactor on a GPU: the checks of tests/kernel.
// compile: joined, at most 30 kernels.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/optimizer_step/adafactor_checks.hpp"

namespace {

using namespace adafactor_checks;
using device_type = support::waiting_cuda;

TEST_CASE("adafactor on cuda: equals its definition") {
    device_type device;
    equals_definition<slabs<float, ht::bfloat16, float>>(device);
}

TEST_CASE("adafactor on cuda: stochastic rounding, skipped steps, wrong arguments") {
    device_type device;
    rounds_by_place(device);
    skips_and_refuses(device);
}

}  // namespace
