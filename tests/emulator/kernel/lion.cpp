// SPDX-License-Identifier: MIT
/// \file
/// A step of Lion on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>

#include "kernel/optimizer_step/lion_checks.hpp"

namespace {

using namespace lion_checks;
namespace emulator = ht::emulator;
using rounding = ht::rounding;

TEST_CASE_TEMPLATE("lion on a GPU: equals its definition", S, slabs<float, ht::bfloat16, float, float>,
                   slabs<float, ht::float16, ht::bfloat16, ht::bfloat16>) {
    emulator::device device;
    equals_definition<S>(device);
}

TEST_CASE("lion on a GPU: stochastic rounding, skipped steps, wrong arguments") {
    emulator::device device;
    rounds_by_place(device);
    skips_and_refuses(device);
}

TEST_CASE("lion on a GPU: the bits are the CPU's") {
    // Portable code has no fused multiply-add.
    if (!ht::supports(ht::isa::avx2)) {
        MESSAGE("not checked: the bits of the CPU (this processor lacks avx2)");
        return;
    }
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    emulator::device device;
    const auto agree = [&]<class S, rounding Rounding>(std::type_identity<S>,
                                                       std::integral_constant<rounding, Rounding>) {
        for (const ht::extent n : {ht::extent{1}, ht::extent{67}, ht::extent{2053}}) {
            for (const placement where : {placement::aligned, placement::unaligned}) {
                support::random one{1}, two{1};
                const S there(one, n, where), here(two, n, where);
                run<Rounding>(device, there.arguments(third));
                run<Rounding>(cpu, here.arguments(third));
                CHECK(there.same_bits(here));
                CHECK(there.intact());
            }
        }
    };
    agree(std::type_identity<slabs<float, ht::bfloat16, float, float>>{},
          std::integral_constant<rounding, rounding::nearest_even>{});
    agree(std::type_identity<slabs<ht::bfloat16, ht::bfloat16, ht::bfloat16, ht::bfloat16>>{},
          std::integral_constant<rounding, rounding::stochastic>{});
}

TEST_CASE("lion on a GPU: any schedule gives the same bits, and every damage is found") {
    using pure = slabs<ht::bfloat16, float, float, ht::bfloat16>;
    support::random data{9};
    const pure want(data, 2077);
    emulator::device plain;
    run<rounding::stochastic>(plain, want.arguments(third));
    emulator::check_kernels([&](emulator::device& device) {
        support::random again{9};
        const pure got(again, 2077);
        run<rounding::stochastic>(device, got.arguments(third));
        return got.same_bits(want);
    });
}

}  // namespace
