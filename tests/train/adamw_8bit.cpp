// SPDX-License-Identifier: MIT
/// \file
/// A small GPT trained with moments in 8 bits learns as with AdamW, in a loop of one's own and by the trainer.
#include <cmath>

#include <doctest/doctest.h>

#include <halftone/observe/memory/history.hpp>
#include <halftone/observe/memory/plan.hpp>

#include "train/small_gpt.hpp"

namespace train_adamw_8bit_tests {

namespace ht = halftone;

/// The loss of the held-out windows after a training loop with the optimizer that make(device, model) returns.
template <class Make>
double loss_after(int steps, const Make& make) {
    static const std::string corpus = small::text();
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::amp_bf16> model{device, small::config, 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    auto optimizer = make(device, model);
    optimizer.set_schedule({.shape = ht::cosine, .total_steps = steps, .warmup_steps = 5});
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    for (int step = 0; step < steps; ++step) {
        tape.backward(model.loss(tape, data.sample(static_cast<std::uint32_t>(step), 8)), acc);
        auto grads = acc.take();
        ht::clip_grad_norm(device, grads, 1.0f);
        optimizer.step(grads);
    }
    ht::inference eval{device};
    return static_cast<double>(model.loss(eval, data.window(0, data.windows())).item());
}

TEST_CASE("adamw_8bit: a small GPT learns as with AdamW") {
    using gpt = ht::nn::gpt<ht::amp_bf16>;
    const double adamw = loss_after(200, [](ht::cpu& device, gpt& model) {
        return ht::adamw<ht::cpu, gpt>(device, model, ht::adamw_options{.lr = 3e-3, .weight_decay = 0.1}, {});
    });
    const double in_8_bits = loss_after(200, [](ht::cpu& device, gpt& model) {
        return ht::adamw_8bit<ht::cpu, gpt>(
            device, model, ht::adamw_8bit_options{.lr = 3e-3, .weight_decay = 0.1, .min_8bit_size = 256}, {});
    });
    MESSAGE("after 200 steps: adamw ", adamw, ", adamw_8bit ", in_8_bits);
    CHECK(adamw < 0.8 * std::log(32.0));
    CHECK(in_8_bits < 1.01 * adamw);
    CHECK(in_8_bits != adamw);
}

TEST_CASE("adamw_8bit: the trainer has the bits of the loop written out; its plan is what the run needs") {
    const std::string corpus = small::text();
    // Of 96 x 64 elements in its smaller large matrices.
    ht::nn::gpt_config config = small::config;
    config.width = 64;
    const auto train = [&](auto& device, std::int64_t steps, const auto& then) {
        ht::nn::gpt<ht::amp_bf16> model{device, config, 1};
        ht::language_data data{ht::token_view{corpus}, small::options};
        ht::trainer trainer{device, model,
                            {.per_device_train_batch_size = 4,
                             .max_steps = steps,
                             .optim = "adamw_8bit",
                             .learning_rate = 3e-3,
                             .lr_scheduler_type = ht::schedule::constant}};
        trainer.train(data);
        then(model, trainer);
    };
    ht::cpu device{{.threads = 2}};
    const ht::memory_plan plan = ht::plan(device, [&](auto& twin) { train(twin, 2, [](auto&, auto&) {}); });
    std::vector<std::byte> trained;
    train(device, 5, [&](auto& model, auto& trainer) {
        trained = small::masters(model.parameters());
        REQUIRE(trainer.optimizer_8bit() != nullptr);
        CHECK(trainer.optimizer_8bit()->is_eight_bit(0) == false);
        CHECK(trainer.optimizer().steps() == 5);
    });
    const ht::memory_usage& usage = device.memory().usage();
    CHECK(plan.peak_bytes == usage.peak());
    CHECK(plan.peak_of(ht::memory_kind::moment) == usage.peak(ht::memory_kind::moment));
    std::size_t of_parameters = 0;
    for (const ht::planned_parameter& p : plan.parameters) of_parameters += p.of(ht::memory_kind::moment);
    CHECK(of_parameters == usage.peak(ht::memory_kind::moment));

    ht::nn::gpt<ht::amp_bf16> model{device, config, 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::adamw_8bit optimizer{device, model, {.lr = 3e-3, .weight_decay = 0}};
    ht::grad_scaler scaler{device, {.enabled = false}};
    ht::accumulator acc{model};
    ht::tape tape{device};
    for (std::uint32_t step = 0; step < 5; ++step) {
        tape.backward(scaler.scale(model.loss(tape, data.sample(step, 4))), acc);
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
    }
    CHECK(trained == small::masters(model.parameters()));
    ht::trainer other{device, model, {.max_steps = 1}};
    CHECK(other.optimizer_8bit() == nullptr);
}

TEST_CASE("adamw_8bit: a memory history names the parameters of its slabs") {
    const std::string corpus = small::text();
    ht::cpu device{{.threads = 1}};
    ht::memory_history history{device};
    ht::nn::gpt<ht::amp_bf16> model{device, small::config, 1};
    const ht::adamw_8bit optimizer{device, model, {.min_8bit_size = 256}};
    std::size_t named = 0, all = 0;
    for (const ht::memory_allocation& a : history.snapshot().allocations) {
        if (a.kind != ht::memory_kind::moment) continue;
        all += a.bytes;
        for (const ht::memory_part& p : a.parts) named += p.bytes;
    }
    CHECK(named == all);
    CHECK(all == device.memory().usage().live(ht::memory_kind::moment));
}

}  // namespace train_adamw_8bit_tests
