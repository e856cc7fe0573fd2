// SPDX-License-Identifier: MIT
/// \file
/// Batch norm and group norm on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/channel_norm/device.hpp>

#include "kernel/channel_norm/checks.hpp"

namespace emulator_kernel_channel_norm_tests {

using namespace channel_norm_checks;
namespace emulator = ht::emulator;

TEST_CASE("batch_norm, group_norm on a GPU: within their bounds of the definition") {
    emulator::device device;
    within_bounds<float, float, float>(device);
    within_bounds<bfloat16, float, bfloat16>(device);
    far_from_zero(device);
    what_is_special(device);
    refuses(device);
}

TEST_CASE("batch_norm on a GPU: the same bits in every schedule") {
    emulator::device first{{.seed = 1}}, second{{.seed = 1000, .resident_blocks = 7}};
    CHECK(many(first) == many(second));
}

}  // namespace emulator_kernel_channel_norm_tests
