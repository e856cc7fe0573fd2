// SPDX-License-Identifier: MIT
/// \file
/// A step of Adafactor on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/optimizer_step/adafactor/device.hpp>

#include "kernel/optimizer_step/adafactor_checks.hpp"

namespace emulator_kernel_adafactor_tests {

using namespace adafactor_checks;
namespace emulator = ht::emulator;

TEST_CASE("adafactor on a GPU: equals its definition") {
    emulator::device device;
    equals_definition<slabs<float, ht::bfloat16, float>>(device);
}

TEST_CASE("adafactor on a GPU: stochastic rounding, skipped steps, wrong arguments") {
    emulator::device device;
    rounds_by_place(device);
    skips_and_refuses(device);
}

TEST_CASE("adafactor on a GPU: any schedule gives the same bits, and every damage is found") {
    using pure = slabs<ht::bfloat16, float, float>;
    support::random data{9};
    emulator::device plain;
    const pure want(plain, data, {70, 132});
    run<ht::rounding::stochastic>(plain, want.arguments(third));
    emulator::check_kernels([&](emulator::device& device) {
        support::random again{9};
        const pure got(device, again, {70, 132});
        run<ht::rounding::stochastic>(device, got.arguments(third));
        return got.same_bits(want);
    });
}

}  // namespace emulator_kernel_adafactor_tests
