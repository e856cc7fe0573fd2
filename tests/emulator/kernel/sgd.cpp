// SPDX-License-Identifier: MIT
/// \file
/// A step of stochastic gradient descent on the emulated GPU.
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>

#include <emulator/damage.hpp>

#include "kernel/optimizer_step/sgd_checks.hpp"

namespace {

using namespace sgd_checks;
namespace emulator = ht::emulator;
using rounding = ht::rounding;

const kernel::step_record fifth{.steps = 5, .lr = 0.01};

TEST_CASE_TEMPLATE("sgd on a GPU: equals its definition", G, float, ht::bfloat16) {
    emulator::device device;
    equals_definition<G>(device);
}

TEST_CASE("sgd on a GPU: stochastic rounding, skipped steps, wrong arguments") {
    emulator::device device;
    rounds_by_place<ht::bfloat16>(device);
    rounds_by_place<ht::float16>(device);
    moves_on_average(device);
    skips_and_refuses(device);
}

/// The same step on the CPU and on the device, with the same operands.
template <ht::rounding Rounding, class Param, class Copy, class Accumulate, class State>
struct both_devices {
    static bool agree(ht::cpu& cpu, emulator::device& device, ht::extent n, placement where,
                      const kernel::sgd_rule& c) {
        support::random one{1}, two{1};
        const slabs<Param, Copy, Accumulate, State> there(one, n, where), here(two, n, where);
        run<Rounding>(device, there.arguments(c, fifth));
        run<Rounding>(cpu, here.arguments(c, fifth));
        return there.same_bits(here) && there.intact();
    }
};
using mixed = both_devices<rounding::nearest_even, float, ht::bfloat16, float, float>;

TEST_CASE_TEMPLATE("sgd on a GPU: the bits are the CPU's", T, mixed,
                   both_devices<rounding::nearest_even, float, ht::float16, ht::bfloat16, ht::bfloat16>,
                   both_devices<rounding::stochastic, ht::bfloat16, ht::bfloat16, float, ht::float16>,
                   both_devices<rounding::stochastic, ht::bfloat16, ht::bfloat16, ht::bfloat16, ht::bfloat16>) {
    // Portable code has no fused multiply-add.
    if (!ht::supports(ht::isa::avx2)) {
        MESSAGE("not checked: the bits of the CPU (this processor lacks avx2)");
        return;
    }
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    emulator::device device;
    for (const ht::extent n : {ht::extent{1}, ht::extent{67}, ht::extent{2053}}) {
        CAPTURE(n);
        for (const kernel::sgd_rule& c : kinds) {
            CHECK(T::agree(cpu, device, n, placement::aligned, c));
            CHECK(T::agree(cpu, device, n, placement::unaligned, c));
        }
    }
}

TEST_CASE("sgd on a GPU: any schedule gives the same bits, and every damage is found") {
    using pure = slabs<ht::bfloat16, float, float, ht::bfloat16>;
    support::random data{9};
    const pure want(data, 2077);
    emulator::device plain;
    run<rounding::stochastic>(plain, want.arguments(kinds[3], fifth));
    emulator::check_kernels([&](emulator::device& device) {
        support::random again{9};
        const pure got(again, 2077);
        run<rounding::stochastic>(device, got.arguments(kinds[3], fifth));
        return got.same_bits(want);
    });
}

}  // namespace
