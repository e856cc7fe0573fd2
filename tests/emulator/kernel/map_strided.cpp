// SPDX-License-Identifier: MIT
/// \file
/// Maps of views of any strides on the emulated GPU.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/map/device.hpp>

#include "kernel/map/checks.hpp"

namespace emulator_kernel_map_strided_tests {

namespace ht = halftone;

TEST_CASE("map on a GPU: operands of any strides") {
    ht::emulator::device device{{.seed = 5}};
    map_checks::strided<float>(device);
    map_checks::strided<ht::bfloat16>(device);
    map_checks::strided<double>(device);
    map_checks::refuses(device);
}

}  // namespace emulator_kernel_map_strided_tests
