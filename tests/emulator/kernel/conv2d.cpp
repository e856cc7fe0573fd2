// SPDX-License-Identifier: MIT
/// \file
/// Convolution on the emulated GPU.
#include <halftone/kernel/conv2d/device.hpp>
#include <halftone/kernel/sum/device.hpp>

#include <emulator/damage.hpp>

#include "autodiff/conv2d_checks.hpp"
#include "kernel/conv2d/checks.hpp"

namespace emulator_kernel_conv2d_tests {

using namespace conv2d_checks;
namespace emulator = ht::emulator;

TEST_CASE("unfold and fold on a GPU: as defined") {
    emulator::device device;
    unfolds<float, float>(device);
    unfolds<bfloat16, bfloat16>(device);
}

TEST_CASE("conv2d on a GPU: exact on small whole numbers") {
    emulator::device device;
    exact<ht::full_fp32, float, float, float>(device);
    exact<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device);
}

TEST_CASE("conv2d on a GPU: within bounds") {
    emulator::device device;
    within_bounds<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device);
    refuses(device);
}

TEST_CASE("conv2d on a GPU's tapes: values and gradients, exact on small whole numbers") {
    emulator::device device;
    conv2d_tape_checks::of_variables<bfloat16>(device);
    conv2d_tape_checks::of_parameters<ht::amp_bf16>(device);
}

}  // namespace emulator_kernel_conv2d_tests
