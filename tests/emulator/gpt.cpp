// SPDX-License-Identifier: MIT
/// \file
/// A whole model and whole training steps on the emulated machine, by the code that runs on the CPU: loss and gradients
/// within what rounding does, and steps that give the same bits whatever the schedule of threads.
#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>

#include "nn/gpt_gradients.hpp"
#include "support/random.hpp"

#include <emulator/device.hpp>

namespace {

namespace ht = halftone;

template <class P, class T>
void within_what_rounding_does(float seed) {
    const nn_test::batch b = nn_test::batch_to_check();
    ht::emulator::device device{{.seed = 7}};
    nn_test::check_on<P>(device, nn_test::expected_of<P, T>(b, seed), b, seed);
    CHECK(device.count().bank_conflicts == 0);
}

TEST_CASE("gpt on the emulated machine: loss and every gradient within what rounding does") {
    SUBCASE("full_fp32") { within_what_rounding_does<ht::full_fp32, float>(1); }
    SUBCASE("amp_bf16") { within_what_rounding_does<ht::amp_bf16, ht::bfloat16>(1); }
    SUBCASE("amp_fp16") { within_what_rounding_does<ht::amp_fp16, ht::float16>(1024); }
}

constexpr ht::nn::gpt_config config{.vocabulary = 23, .context = 8, .layers = 2, .heads = 2, .width = 32};

/// Model, optimizer and what lies between; two micro-batches a step.
template <class P, class Device>
struct loop {
    Device& device;
    ht::nn::gpt<P> model{device, config, 3};
    ht::adamw<Device, ht::nn::gpt<P>> optimizer{device, model, {.lr = 1e-2, .weight_decay = 0.1}, {{"*.norm", {.weight_decay = 0}}}};
    ht::grad_scaler<Device> scaler{device, {.init_scale = 1024, .enabled = ht::model_needs_scaling<ht::nn::gpt<P>>}};
    ht::accumulator<ht::through_scaler, ht::types<ht::nn::gpt<P>>> acc{model};
    ht::tape<Device> tape{device};
    std::vector<std::int32_t> ids = support::random(1).indices(2 * 3 * (config.context + 1), static_cast<int>(config.vocabulary));

    explicit loop(Device& d) : device(d) {}

    /// Gives the mean loss.
    float step() {
        float mean = 0;
        for (int micro = 0; micro < 2; ++micro) {
            const std::int32_t* rows = ids.data() + micro * 3 * config.context;
            struct {
                ht::const_view<std::int32_t, 2> tokens, targets;
            } const batch{{rows, {3, config.context}}, {rows + 1, {3, config.context}}};
            const auto loss = model.loss(tape, batch);
            mean += loss.item() / 2;
            tape.backward(scaler.scale(loss / 2), acc);
        }
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
        return mean;
    }
    std::vector<std::vector<float>> masters() const {
        std::vector<std::vector<float>> all;
        for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) all.push_back(support::read_masters(model.parameters(), i));
        return all;
    }
};

TEST_CASE_TEMPLATE("steps on the emulated machine: the same bits under any schedule, and a loss that falls as on the CPU", P, ht::amp_bf16, ht::amp_fp16) {
    ht::emulator::device one{{.seed = 1}}, other{{.seed = 1000, .resident_blocks = 1}};
    ht::cpu cpu{{.threads = 1}};
    loop<P, ht::emulator::device> a(one), b(other);
    loop<P, ht::cpu> c(cpu);
    const float first = a.step();
    CHECK(first == b.step());
    // The same initial weights and batches: what differs is rounding, of results with 8 bits and more.
    CHECK(first == doctest::Approx(c.step()).epsilon(ht::unit_roundoff<ht::bfloat16>));
    CHECK(a.masters() == b.masters());
    CHECK(a.scaler.overflows() == 0);
    const std::uint64_t allocations = one.memory().usage().allocations();
    a.step();
    const float last = a.step();
    CHECK(last < first - 0.1f);
    c.step();
    CHECK(last == doctest::Approx(c.step()).epsilon(0.02));
    CHECK(one.memory().usage().allocations() == allocations);
}

}  // namespace
