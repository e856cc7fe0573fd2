// SPDX-License-Identifier: MIT
/// \file
/// Dropout on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/dropout/device.hpp>

#include "kernel/dropout/checks.hpp"

namespace emulator_kernel_dropout_tests {

using namespace dropout_checks;
namespace emulator = ht::emulator;

TEST_CASE("dropout on a GPU: as its definition, at any alignment") {
    emulator::device device;
    for (const extent count : {1, 3, 7, 8, 63, 1031}) {
        CAPTURE(count);
        for (const extent offset : {0, 1, 4}) {
            CHECK(is_right<float, float>(device, count, 0.1f, offset, offset));
            CHECK(is_right<bfloat16, float>(device, count, 0.75f, offset, 0));
            CHECK(is_right<bfloat16, bfloat16>(device, count, 0.5f, offset, 0));
        }
    }
}

TEST_CASE("dropout on a GPU: of no element, of every element, of an empty tensor; wrong arguments") {
    emulator::device device;
    ends_of_the_range(device);
}

TEST_CASE("dropout on a GPU: masks are random") {
    emulator::device device;
    masks_are_random(device, 4000);
}

TEST_CASE("dropout on a GPU: right in every schedule") {
    emulator::check_kernels(
        [](emulator::device& device) { return is_right<bfloat16, bfloat16>(device, 1031, 0.5f, 0, 0); });
}

}  // namespace emulator_kernel_dropout_tests
