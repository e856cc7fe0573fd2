// SPDX-License-Identifier: MIT
/// \file
/// Pooling on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/pooling/cpu.hpp>
#include <halftone/kernel/pooling/device.hpp>

#include "kernel/pooling/checks.hpp"

namespace emulator_kernel_pooling_tests {

using namespace pooling_checks;
namespace emulator = ht::emulator;

TEST_CASE("max_pool2d, avg_pool2d, adaptive_avg_pool2d on a GPU: as defined") {
    emulator::device device;
    largest<float, float>(device, write_mode::add);
    largest<bfloat16, bfloat16>(device, write_mode::overwrite);
    means<bfloat16, bfloat16>(device, write_mode::add);
    means<float16, float>(device, write_mode::overwrite);
    what_is_special(device);
    refuses(device);
}

TEST_CASE("pooling on a GPU: the CPU's bits, in every schedule") {
    ht::cpu cpu;
    emulator::device first{{.seed = 1}}, second{{.seed = 1000, .resident_blocks = 7}};
    const std::vector<float> want = overlapping(cpu);
    CHECK(overlapping(first) == want);
    CHECK(overlapping(second) == want);
}

}  // namespace emulator_kernel_pooling_tests
