// SPDX-License-Identifier: MIT
/// \file
/// A step of AdamW on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>

#include "kernel/optimizer_step/adamw_checks.hpp"

namespace {

using namespace adamw_checks;
namespace emulator = ht::emulator;

TEST_CASE_TEMPLATE("adamw on a GPU: equals its definition", S, slabs<float, ht::bfloat16, float, float>,
                   slabs<float, float, ht::bfloat16, float>, slabs<float, ht::float16, float, ht::bfloat16>) {
    emulator::device device;
    equals_definition<S>(device);
}

TEST_CASE("adamw on a GPU: stochastic rounding, skipped steps, wrong arguments") {
    emulator::device device;
    rounds_to_neighbours(device);
    cuts_alike(device);
    rounds_by_place(device);
    moment_shrinks(device);
    skips(device);
    refuses(device);
}

/// The same step on the CPU and on the device, with the same operands.
template <ht::rounding Rounding, class Param, class Copy, class Accumulate, class State>
struct both_devices {
    using arrays = slabs<Param, Copy, Accumulate, State>;

    static bool agree(ht::cpu& cpu, emulator::device& device, ht::extent n, placement where, std::uint64_t seed = 1) {
        support::random one{seed}, two{seed};
        const arrays there(one, n, where), here(two, n, where);
        run<Rounding>(device, there.arguments(factors, third));
        run<Rounding>(cpu, here.arguments(factors, third));
        return there.same_bits(here) && there.intact();
    }
};
using rounding = ht::rounding;
using mixed = both_devices<rounding::nearest_even, float, ht::bfloat16, float, float>;

TEST_CASE_TEMPLATE("adamw on a GPU: the bits are the CPU's", T, mixed,
                   both_devices<rounding::nearest_even, float, ht::float16, float, float>,
                   both_devices<rounding::nearest_even, float, float, ht::bfloat16, ht::bfloat16>,
                   both_devices<rounding::stochastic, ht::bfloat16, ht::bfloat16, float, float>,
                   both_devices<rounding::stochastic, ht::float16, ht::float16, float, float>,
                   both_devices<rounding::stochastic, ht::bfloat16, ht::bfloat16, ht::bfloat16, ht::bfloat16>) {
    // Portable code has no fused multiply-add.
    if (!ht::supports(ht::isa::avx2)) {
        MESSAGE("not checked: the bits of the CPU (this processor lacks avx2)");
        return;
    }
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    emulator::device device;
    for (const ht::extent n : sizes) {
        CAPTURE(n);
        CHECK(T::agree(cpu, device, n, placement::aligned));
        CHECK(T::agree(cpu, device, n, placement::unaligned));
    }
}

TEST_CASE("adamw on a GPU: with few blocks each thread updates several runs of elements") {
    using pure = slabs<ht::bfloat16, float, float, ht::bfloat16>;
    support::random one{1}, two{1};
    const pure all(one, 9001, placement::aligned), few(two, 9001, placement::aligned);
    emulator::device device;
    run<rounding::stochastic>(device, all.arguments(factors, third));
    CHECK(device.count().blocks == 9);
    const auto a = few.arguments(factors, third);
    device.launch(kernel::on_device::optimizer_step_kernel<kernel::adamw_rule, rounding::stochastic,
                                                           rounding::nearest_even, ht::bfloat16, float, float,
                                                           ht::bfloat16, kernel::on_device::run_access::vectors>(a, 2));
    CHECK(few.same_bits(all));
    CHECK(kernel::on_device::update_blocks(ht::extent{1} << 40, 256) == 2048);
}

TEST_CASE("adamw on a GPU: any schedule gives the same bits, and every damage is found") {
    using pure = slabs<ht::bfloat16, float, float, ht::bfloat16>;
    support::random data{9};
    const pure want(data, 2077);
    emulator::device plain;
    run<rounding::stochastic>(plain, want.arguments(factors, third));
    emulator::check_kernels([&](emulator::device& device) {
        support::random again{9};
        const pure got(again, 2077);
        run<rounding::stochastic>(device, got.arguments(factors, third));
        return got.same_bits(want);
    });
}

}  // namespace
