// SPDX-License-Identifier: MIT
/// \file
/// A step with moments in 8 bits on a GPU: the checks of tests/kernel.
// compile: joined, at most 40 kernels.
#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/eight_bit/device.hpp>

#include "cuda/device.cuh"
#include "kernel/optimizer_step/eight_bit_bound_checks.hpp"
#include "kernel/optimizer_step/eight_bit_rules_checks.hpp"

namespace {

using namespace eight_bit_checks;

TEST_CASE("8-bit state on cuda: a step equals its definition, every number has the code of the nearest one") {
    support::waiting_cuda device;
    equals_definition<slabs<float, ht::bfloat16, float>>(device);
    finds_nearest_codes(device);
}

TEST_CASE("8-bit state on cuda: a weight with rare gradients moves as in AdamW; steps are bounded by those of unrounded moments") {
    support::waiting_cuda device;
    rare_gradients_stay_bounded(device);
    steps_are_bounded(device, (1 << 20) + 77, 1);
}

TEST_CASE("8-bit state on cuda: a step of each rule has the bits of its step with floats, and the nearest codes") {
    support::waiting_cuda device;
    equal_steps_of_floats(device);
}

TEST_CASE("8-bit state on cuda: skipped steps, zeros, wrong arguments") {
    support::waiting_cuda device;
    skips(device);
    keeps_zeros(device);
    refuses(device);
}

}  // namespace
