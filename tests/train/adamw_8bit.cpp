// SPDX-License-Identifier: MIT
/// \file
/// A small GPT trained with moments in 8 bits learns as with AdamW.
#include <cmath>

#include <doctest/doctest.h>

#include "train/small_gpt.hpp"

namespace ht = halftone;

namespace {

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

}  // namespace
