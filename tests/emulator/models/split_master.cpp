// SPDX-License-Identifier: MIT
/// \file
/// Split masters on a GPU: kernels, store and optimizers. train_gpt.cpp in this folder has a trainer with them,
/// whose steps are captured.
#include <halftone/kernel/device.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>

#include <emulator/damage.hpp>

#include "kernel/optimizer_step/split_checks.hpp"
#include "optim/split_checks.hpp"

namespace emulator_models_split_master_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
using ht::bfloat16;

emulator::options quick(std::uint64_t seed) { return {.seed = seed, .check = emulator::checking::values_only}; }

TEST_CASE("split masters on a GPU: a step gives the bits of whole masters, which are the CPU's") {
    using namespace split_checks;
    emulator::device device;
    equals_whole<adamw_rule, float>(device);
    equals_whole<lion_rule, float>(device);
    equals_whole<sgd_rule, bfloat16>(device);
    rounds_away(device);
    refuses(device);
    if (!ht::supports(ht::isa::avx2)) {  // portable code has no multiply-add of one rounding
        MESSAGE("not checked: the bits of the CPU (this processor lacks avx2)");
        return;
    }
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    for (const placement where : placements) {
        const both<adamw_rule, float> here(1009, where), there(1009, where);
        const ht::kernel::step_record record{.steps = 2, .lr = 0.01};
        step_masters(cpu, here, here.rest, record);
        step_masters(device, there, there.rest, record);
        CHECK(there.same_halves(here));
    }
}

TEST_CASE("split masters on a GPU: any schedule gives the same bits, and every damage is found") {
    using namespace split_checks;
    const auto run = [](emulator::device& device) {
        return same_steps<adamw_rule, float>(device, device, 1061, placement::aligned) &&
               same_steps<sgd_rule, float>(device, device, 67, placement::unaligned);
    };
    emulator::check_schedules(run);
    const kernel::step_record record{.steps = 2, .lr = 0.01};
    const both<adamw_rule, float> want(1061, placement::aligned);
    emulator::device plain;
    step_masters(plain, want, want.rest, record);
    emulator::check_kernels([&](emulator::device& device) {
        const both<adamw_rule, float> got(1061, placement::aligned);
        step_masters(device, got, got.rest, record);
        return got.same_halves(want);
    });
}

TEST_CASE("split masters on a GPU: store, optimizers, skipped steps") {
    emulator::device device{quick(1)};
    split_training::same_steps<split_training::rule::adamw>(device, 20);
    split_training::same_steps<split_training::rule::sgd>(device, 20);
    split_training::lies_in_halves(device);
}

}  // namespace emulator_models_split_master_tests
