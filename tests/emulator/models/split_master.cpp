// SPDX-License-Identifier: MIT
/// \file
/// Split masters on a GPU: kernels, store and optimizers. train_gpt.cpp in this folder has a trainer with them,
/// whose steps are captured.
#include <halftone/kernel/device.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>

#include <emulator/damage.hpp>

#include "kernel/optimizer_step/split_checks.hpp"
#include "optim/split_checks.hpp"

namespace {

namespace ht = halftone;
namespace emulator = ht::emulator;
using ht::bfloat16;

emulator::options quick(std::uint64_t seed) { return {.seed = seed, .check = emulator::checking::values_only}; }

TEST_CASE("split masters on a GPU: a step gives the bits of whole masters, which are the CPU's") {
    using split_checks::placement, split_checks::rule;
    emulator::device device;
    split_checks::equals_whole<rule::adamw, float>(device);
    split_checks::equals_whole<rule::lion, float>(device);
    split_checks::equals_whole<rule::sgd, bfloat16>(device);
    split_checks::rounds_away(device);
    split_checks::refuses(device);
    if (!ht::supports(ht::isa::avx2)) {  // portable code has no multiply-add of one rounding
        MESSAGE("not checked: the bits of the CPU (this processor lacks avx2)");
        return;
    }
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    for (const placement where : {placement::aligned, placement::unaligned}) {
        const split_checks::slabs<float> here(1009, where), there(1009, where);
        const ht::kernel::step_record record{.steps = 2, .lr = 0.01};
        split_checks::step<rule::adamw>(cpu, here, here.rest, record);
        split_checks::step<rule::adamw>(device, there, there.rest, record);
        CHECK(there.same_bits(here));
    }
}

TEST_CASE("split masters on a GPU: any schedule gives the same bits, and every damage is found") {
    using namespace split_checks;
    const auto run = [](emulator::device& device) {
        return same_steps<rule::adamw, float>(device, device, 1061, placement::aligned) &&
               same_steps<rule::sgd, float>(device, device, 67, placement::unaligned);
    };
    emulator::check_schedules(run);
    const kernel::step_record record{.steps = 2, .lr = 0.01};
    const slabs<float> want(1061, placement::aligned);
    emulator::device plain;
    step<rule::adamw>(plain, want, want.rest, record);
    emulator::check_kernels([&](emulator::device& device) {
        const slabs<float> got(1061, placement::aligned);
        step<rule::adamw>(device, got, got.rest, record);
        return got.same_bits(want);
    });
}

TEST_CASE("split masters on a GPU: store, optimizers, skipped steps") {
    emulator::device device{quick(1)};
    split_training::same_steps<split_training::rule::adamw>(device, 20);
    split_training::same_steps<split_training::rule::sgd>(device, 20);
    split_training::lies_in_halves(device);
}

}  // namespace
