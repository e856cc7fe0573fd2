// SPDX-License-Identifier: MIT
/// \file
/// Operations on shapes and broadcasting on the emulated GPU.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "autodiff/shapes_checks.hpp"

namespace emulator_models_shapes_tests {

namespace ht = halftone;

TEST_CASE("shapes on a GPU: PyTorch's numbers") {
    ht::emulator::device device{{.seed = 9}};
    shapes_checks::orders_and_parts<ht::bfloat16>(device);
    shapes_checks::broadcasts<ht::bfloat16>(device);
    shapes_checks::transposed_products<ht::bfloat16>(device);
}

TEST_CASE("shapes on a GPU: gradients in double, invalid arguments") {
    ht::emulator::device device{{.seed = 10}};
    shapes_checks::gradients_in_double(device);
    shapes_checks::refusals(device);
}

}  // namespace emulator_models_shapes_tests
