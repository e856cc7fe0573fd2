// SPDX-License-Identifier: MIT
/// \file
/// Whole training steps with every part in sight: the same bits at any number of threads, under every policy and on every
/// instruction set; no memory from the system once they are steady; a loss that falls. Small enough for an emulator.
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "support/each_set.hpp"
#include "support/random.hpp"

namespace {

namespace ht = halftone;

constexpr ht::nn::gpt_config config{.vocabulary = 23, .context = 8, .layers = 2, .heads = 2, .width = 32};

struct batch {
    ht::const_view<std::int32_t, 2> tokens, targets;
};

/// Model, optimizer and what lies between; two micro-batches a step.
template <class P>
struct loop {
    ht::cpu device;
    ht::nn::gpt<P> model{device, config, 3};
    ht::adamw<ht::cpu, ht::nn::gpt<P>> optimizer{device, model, {.lr = 1e-2, .weight_decay = 0.1}, {{"*.norm", {.weight_decay = 0}}, {"*.bias", {.weight_decay = 0}}}};
    ht::grad_scaler<ht::cpu> scaler{device, {.init_scale = 1024, .enabled = ht::model_needs_scaling<ht::nn::gpt<P>>}};
    ht::accumulator<ht::through_scaler, ht::types<ht::nn::gpt<P>>> acc{model};
    ht::tape<ht::cpu> tape{device};
    std::vector<std::int32_t> ids = support::random(1).indices(2 * 3 * (config.context + 1), static_cast<int>(config.vocabulary));

    explicit loop(const ht::cpu_options& options) : device(options) {}

    /// Gives the mean loss.
    float step() {
        float mean = 0;
        for (int micro = 0; micro < 2; ++micro) {
            const std::int32_t* rows = ids.data() + micro * 3 * config.context;
            const batch b{{rows, {3, config.context}}, {rows + 1, {3, config.context}}};
            const auto loss = model.loss(tape, b);
            mean += loss.item() / 2;
            tape.backward(scaler.scale(loss / 2), acc);
        }
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
        return mean;
    }
    /// Masters and copies, byte by byte.
    std::vector<std::byte> parameters() {
        std::vector<std::byte> all;
        for (const ht::store::group& g : model.parameters().groups()) {
            all.insert(all.end(), g.master.data(), g.master.data() + g.master.bytes());
            all.insert(all.end(), g.copy.data(), g.copy.data() + g.copy.bytes());
        }
        return all;
    }
};

using recipe = ht::recipe<ht::amp_bf16, ht::rule<"*.norm", ht::full_fp32>, ht::rule<"head", ht::with_output<ht::amp_bf16, float>>>;

TEST_CASE_TEMPLATE("one step: the same bits with one thread and with two, on every instruction set", P, ht::full_fp32, ht::amp_bf16, ht::amp_fp16, recipe) {
    for (const ht::isa set : ht::every_isa) {
        const std::string instruction_set = ht::name(set);
        CAPTURE(instruction_set);
        if (!support::is_tested(set)) {
            MESSAGE("not tested here: ", instruction_set);
            continue;
        }
        loop<P> one({.threads = 1, .instruction_set = set}), two({.threads = 2, .instruction_set = set});
        const std::vector<std::byte> before = one.parameters();
        for (int i = 0; i < 2; ++i) CHECK(one.step() == two.step());
        CHECK(one.parameters() == two.parameters());
        CHECK(one.parameters() != before);
        CHECK(one.scaler.state().overflows == 0);
    }
}

TEST_CASE_TEMPLATE("steps: the loss falls, and a steady step takes nothing from the system", P, ht::full_fp32, ht::amp_bf16, ht::amp_fp16) {
    loop<P> l({.threads = 2});
    const float first = l.step();
    l.step(), l.step();
    const std::uint64_t allocations = l.device.memory().usage().allocations();
    const std::size_t held = l.device.memory().usage().held();
    float last = 0;
    for (int i = 0; i < 5; ++i) last = l.step();
    CHECK(l.device.memory().usage().allocations() == allocations);
    CHECK(l.device.memory().usage().held() == held);
    CHECK(l.tape.memory().live() == 0);
    // Eight steps on one batch of 48 tokens: from the logarithm of 23 classes to well below it.
    CHECK(first == doctest::Approx(std::log(23.0)).epsilon(0.05));
    CHECK(last < first - 0.3f);
}

TEST_CASE("steps: the same seed gives the same bits again") {
    loop<ht::amp_bf16> a({.threads = 2}), b({.threads = 2});
    for (int i = 0; i < 3; ++i) CHECK(a.step() == b.step());
    CHECK(a.parameters() == b.parameters());
}

}  // namespace
