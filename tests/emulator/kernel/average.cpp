// SPDX-License-Identifier: MIT
/// \file
/// The average of parameters in a step on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/optimizer_step/device.hpp>

#include "kernel/optimizer_step/average_checks.hpp"

namespace emulator_kernel_average_tests {

using namespace average_checks;
namespace emulator = ht::emulator;

TEST_CASE_TEMPLATE("average in a step on a GPU: equals its definition", S, slabs<float, ht::bfloat16, float, float>,
                   slabs<ht::bfloat16, ht::float16, float, float>) {
    emulator::device device;
    keeps_average<S>(device);
}

TEST_CASE("average in a step on a GPU: the assigning rule, and saved parameters") {
    emulator::device device;
    assigns(device);
}

TEST_CASE("average in a step on a GPU: any schedule gives the same bits, and every damage is found") {
    using mixed = averaged<slabs<float, ht::bfloat16, float, float>>;
    support::random data{9};
    const mixed want(data, 2077);
    emulator::device plain;
    run(plain, want.arguments(third));
    emulator::check_kernels([&](emulator::device& device) {
        support::random again{9};
        const mixed got(again, 2077);
        run(device, got.arguments(third));
        return got.same_bits(want);
    });
}

}  // namespace emulator_kernel_average_tests
