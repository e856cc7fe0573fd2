// SPDX-License-Identifier: MIT
/// \file
/// Softmax on the emulated GPU of rows with a stride.
#include <doctest/doctest.h>

#include <halftone/kernel/softmax/device.hpp>

#include "emulator/device.hpp"
#include "kernel/softmax/apart.hpp"

namespace emulator_kernel_softmax_apart_tests {

namespace ht = halftone;
using emulated = ht::emulator::device;

TEST_CASE("softmax, log_softmax on a GPU: rows may have a stride") {
    emulated device;
    for (const ht::extent width : {8, 64, 1048, 4104}) {
        softmax_checks::rows_apart<ht::kernel::softmax<emulated>, float, float>(device, 5, width);
        softmax_checks::rows_apart<ht::kernel::softmax<emulated>, ht::bfloat16, ht::bfloat16>(device, 5, width);
        softmax_checks::rows_apart<ht::kernel::log_softmax<emulated>, ht::bfloat16, float>(device, 5, width);
    }
    softmax_checks::rows_apart<ht::kernel::softmax<emulated>, double, double>(device, 5, 64);
}

}  // namespace emulator_kernel_softmax_apart_tests
