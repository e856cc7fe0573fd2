// SPDX-License-Identifier: MIT
/// \file
/// Copies between strided views on the emulated GPU.
#include <doctest/doctest.h>

#include <halftone/kernel/strided_copy/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/strided_copy/checks.hpp"

namespace emulator_kernel_strided_copy_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
using namespace strided_copy_checks;

TEST_CASE("strided_copy on a GPU: the bytes of its definition") {
    emulator::device device{{.seed = 3}};
    every_size(device);
    refusals(device);
}

TEST_CASE("strided_copy on a GPU: right in every schedule, and every damage is found") {
    for (const ht::shape<2>& s : {ht::shape<2>{33, 40}, ht::shape<2>{72, 80}}) {
        emulator::check_kernels([&](emulator::device& device) {
            return is_right<ht::bfloat16>(device, s, 0, [](const auto& v) { return ht::transpose(v); });
        });
    }
}

}  // namespace emulator_kernel_strided_copy_tests
