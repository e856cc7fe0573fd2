// SPDX-License-Identifier: MIT
/// \file
/// A step of AdamW with moments in 8 bits on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/device.hpp>

#include "kernel/optimizer_step/eight_bit_bound_checks.hpp"
#include "kernel/optimizer_step/eight_bit_golden.hpp"
#include "kernel/optimizer_step/eight_bit_rules_checks.hpp"

namespace emulator_kernel_eight_bit_tests {

using namespace eight_bit_checks;
namespace emulator = ht::emulator;
using mixed = slabs<float, ht::bfloat16, float>;
using pure = slabs<ht::bfloat16, ht::bfloat16, ht::bfloat16>;

TEST_CASE("8-bit state on a GPU: a step equals its definition, and codes of 100 steps are those of the golden file") {
    emulator::device device;
    equals_definition<mixed>(device);
    CHECK(has_golden_bits(device, "fused"));
}

TEST_CASE("8-bit state on a GPU: a number has the code of the nearest one in the map") {
    emulator::device device;
    finds_nearest_codes(device);
}

TEST_CASE("8-bit state on a GPU: a weight with rare gradients moves as in AdamW; steps are bounded by those of unrounded moments") {
    emulator::device device;
    rare_gradients_stay_bounded(device);
    steps_are_bounded(device, 20077, 1);
}

TEST_CASE("8-bit state on a GPU: steps are bounded by those of unrounded moments, on a million elements" * doctest::skip()) {
    emulator::device device;
    steps_are_bounded(device, 1 << 20, 2);
}

TEST_CASE("8-bit state on a GPU: a step of each rule has the bits of its step with floats, and the nearest codes") {
    emulator::device device;
    equal_steps_of_floats(device);
}

TEST_CASE("8-bit state on a GPU: skipped steps, zeros, wrong arguments") {
    emulator::device device;
    skips(device);
    keeps_zeros(device);
    refuses(device);
}

TEST_CASE("8-bit state on a GPU: the bits are the CPU's") {
    // Portable code has no fused multiply-add.
    if (!ht::supports(ht::isa::avx2)) {
        MESSAGE("not checked: the bits of the CPU (this processor lacks avx2)");
        return;
    }
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    emulator::device device;
    const auto agree = [&]<class S, ht::rounding Rounding>(std::type_identity<S>,
                                                           std::integral_constant<ht::rounding, Rounding>) {
        for (const extent n : {extent{1}, extent{131}, extent{2563}}) {
            for (const bool aligned : {true, false}) {
                support::random one{1}, two{1};
                const S there(one, n, aligned), here(two, n, aligned);
                there.fill_state(one), here.fill_state(two);
                run_steps<Rounding>(device, there, 2);
                run_steps<Rounding>(cpu, here, 2);
                CHECK(there.same_bits(here));
                CHECK(there.intact());
            }
        }
    };
    agree(std::type_identity<mixed>{}, std::integral_constant<ht::rounding, ht::rounding::nearest_even>{});
    agree(std::type_identity<pure>{}, std::integral_constant<ht::rounding, ht::rounding::stochastic>{});
}

TEST_CASE("8-bit state on a GPU: any schedule gives the same bits, and every damage is found") {
    support::random data{9};
    const mixed want(data, 2077);
    want.fill_state(data);
    emulator::device plain;
    run_steps(plain, want, 1);
    emulator::check_kernels([&](emulator::device& device) {
        support::random again{9};
        const mixed got(again, 2077);
        got.fill_state(again);
        run_steps(device, got, 1);
        return got.same_bits(want);
    });
}

}  // namespace emulator_kernel_eight_bit_tests
