// SPDX-License-Identifier: MIT
/// \file
/// Gathering along an axis, masks, losses with options, and sampling, on tapes of the emulated GPU.
#include <halftone/kernel/device.hpp>

#include <emulator/device.hpp>

#include "autodiff/choosing_checks.hpp"
#include "autodiff/loss_options_checks.hpp"
#include "autodiff/sampling_checks.hpp"

namespace emulator_models_choosing_tests {

using machine = halftone::emulator::device;

TEST_CASE("gather, index_select, scatter_add, index_add, where, masked_fill, tril, triu, one_hot on a GPU's tapes") {
    machine device{{.seed = 3}};
    choosing_checks::all(device);
}

TEST_CASE("losses with options on a GPU: PyTorch's values and gradients") {
    machine device{{.seed = 5, .check = halftone::emulator::checking::values_only}};
    loss_options_checks::as_pytorch<float>(device);
    loss_options_checks::z_loss(device);
}

TEST_CASE("a sampler on a GPU") {
    machine device{{.seed = 7}};
    sampling_checks::gradient(device);
    sampling_checks::samples(device);
}

}  // namespace emulator_models_choosing_tests
