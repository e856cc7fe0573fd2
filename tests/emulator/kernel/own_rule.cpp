// SPDX-License-Identifier: MIT
/// \file
/// A step by a rule outside of the library on the emulated GPU.
#include <emulator/device.hpp>

#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>

#include "kernel/optimizer_step/own_rule_checks.hpp"

namespace emulator_kernel_own_rule_tests {

namespace ht = halftone;

TEST_CASE("a rule of a program's own on a GPU: the bits are the CPU's") {
    // Portable code has no fused multiply-add.
    if (!ht::supports(ht::isa::avx2)) {
        MESSAGE("not tested here: this processor lacks avx2");
        return;
    }
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    ht::emulator::device device;
    own_rule_checks::agrees(cpu, device);
}

}  // namespace emulator_kernel_own_rule_tests
