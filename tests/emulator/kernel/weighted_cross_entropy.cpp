// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy with label smoothing, class weights and a z-loss on the emulated GPU.
#include <halftone/kernel/weighted_cross_entropy/device.hpp>

#include <emulator/damage.hpp>

#include "kernel/weighted_cross_entropy/checks.hpp"

namespace emulator_kernel_weighted_cross_entropy_tests {

using namespace weighted_cross_entropy_checks;
namespace emulator = ht::emulator;

TEST_CASE("weighted cross_entropy on a GPU: within its bound of the definition") {
    emulator::device device;
    all(device);
    in_double(device);
}

TEST_CASE("weighted cross_entropy on a GPU: any schedule gives the same bits, and every damage is found") {
    emulator::device first;
    const run<all_float, emulator::device> want(first, 2, 1100, 0, 2.0, cases[5], 1);
    emulator::check_kernels([&](emulator::device& device) {
        const run<all_float, emulator::device> r(device, 2, 1100, 0, 2.0, cases[5], 1);
        return r.losses.same_bits(want.losses) && r.dx.same_bits(want.dx);
    });
}

}  // namespace emulator_kernel_weighted_cross_entropy_tests
