// SPDX-License-Identifier: MIT
/// \file
/// The average of parameters in a GPU's memory, and a schedule that is followed there.
#include <halftone/kernel/gradient_norm/device.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>
#include <halftone/kernel/quantize/device.hpp>

#include <emulator/device.hpp>

#include "optim/ema_checks.hpp"

namespace {

namespace ht = halftone;
namespace emulator = ht::emulator;
using pure = ht::with_state<ht::pure_bf16, ht::bfloat16>;
using split = ht::with_split_master<ht::amp_bf16>;

TEST_CASE_TEMPLATE("ema on a GPU: equals its definition, replaces parameters and gives them back", P, ht::amp_fp16, pure,
                   split) {
    emulator::device device;
    ema_checks::equals_definition<P>(device, 7);
}

TEST_CASE("ema on a GPU: the bits are the CPU's, under a schedule of warm-up, rest and decay") {
    // Portable code has no fused multiply-add.
    if (!ht::supports(ht::isa::avx2)) {
        MESSAGE("not checked: the bits of the CPU (this processor lacks avx2)");
        return;
    }
    const auto train = [](auto& device) {
        small::model<ht::amp_bf16> model{device};
        ht::adamw optimizer{device, model, ht::adamw_options{.lr = 0.05, .ema_decay = 0.9}};
        optimizer.set_schedule({.shape = ht::schedule::warmup_stable_decay,
                                .total_steps = 8,
                                .warmup_steps = 2,
                                .final_ratio = 0.25,
                                .decay_steps = 3,
                                .decay_type = ht::rate_curve::one_minus_sqrt});
        ht::accumulator acc{model, ht::unscaled};
        small::tape tape;
        std::vector<double> rates;
        for (int t = 0; t < 8; ++t) {
            tape.gradients = [=](std::size_t entry, std::size_t i) {
                return static_cast<float>(static_cast<int>((i * 79 + entry * 31 + static_cast<std::size_t>(t) * 10) % 25) - 12);
            };
            tape.backward(small::loss{}, acc, model.parameters());
            optimizer.step(acc.take());
            rates.push_back(optimizer.last_lr());
        }
        const ht::schedule_options s = optimizer.schedule();
        for (int t = 0; t < 8; ++t) CHECK(rates[static_cast<std::size_t>(t)] == 0.05 * ht::rate_multiplier(s, t));
        std::vector<float> all = ema_checks::average_of(optimizer, model.fc1.weight);
        for (const float x : ema_checks::average_of(optimizer, model.norm.weight)) all.push_back(x);
        return all;
    };
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    emulator::device device;
    CHECK((train(cpu) == train(device)));
}

}  // namespace
