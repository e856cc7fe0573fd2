// SPDX-License-Identifier: MIT
/// \file
/// The whole of a run of train_gpt on the emulated GPU: training, evaluation and the text it writes, by the
/// program's own code, compared with the same run on the CPU. The host accesses no memory of the device, which is closed to
/// it.
#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/observe/memory/plan.hpp>

#include <emulator/device.hpp>

#include "../../../examples/train_gpt/run_policy.hpp"
#include "train/split_net.hpp"

namespace emulator_models_train_gpt_tests {

TEST_CASE("train_gpt on the emulated machine: the CPU's losses within 0.02 nats, and a text") {
    std::string corpus;
    for (int i = 0; i < 60; ++i) corpus += "In the beginning was line " + std::to_string(i) + ", and it was good.\n";
    options o;
    o.layers = 1, o.heads = 2, o.width = 32, o.context = 16, o.batch = 2, o.accumulation = 2, o.steps = 4,
    o.eval_windows = 4, o.eval_every = 2, o.write = 20;
    ht::trainer_callback nobody;
    ht::emulator::device device{{.seed = 5, .check = ht::emulator::checking::values_only}};
    ht::cpu cpu{{.threads = 1}};
    const ht::memory_plan plan = ht::plan(device, [&](auto& twin) {
        run<ht::amp_bf16>(twin, o, ht::token_view{corpus}, {.observer = nobody, .listener = twin.listener(), .is_plan = true});
    });
    const run_result there = run<ht::amp_bf16>(device, o, ht::token_view{corpus}, {nobody});
    CHECK(plan.peak_bytes == there.training.peak_bytes);  // with the inputs of captured steps
    const run_result here = run<ht::amp_bf16>(cpu, o, ht::token_view{corpus}, {nobody});
    CHECK(there.parameters == here.parameters);
    CHECK(there.training.steps == 4);
    CHECK(there.training.train_loss < std::log(256.0));
    CHECK(std::fabs(there.training.train_loss - here.training.train_loss) <= 0.02);
    REQUIRE((there.validation.has_value() && here.validation.has_value()));
    CHECK(std::fabs(there.validation->loss - here.validation->loss) <= 0.02);
    CHECK(there.text.size() == 20);
    CHECK(here.text.size() == 20);
}

TEST_CASE("split masters on the emulated machine: a trainer whose steps are captured has the bits of whole masters") {
    ht::emulator::device one{{.seed = 1, .check = ht::emulator::checking::values_only}},
        two{{.seed = 2, .check = ht::emulator::checking::values_only}};
    split_net::same_training(one, two);
}

}  // namespace emulator_models_train_gpt_tests
