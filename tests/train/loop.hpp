// SPDX-License-Identifier: MIT
/// \file
/// A training loop with all its parts, on any device: a GPT whose steps take milliseconds, with two micro-batches per step.
///
///     training::loop<ht::amp_bf16, ht::cpu> l(device);
///     const float mean_loss = l.step();
#pragma once

#include <vector>

#include <halftone/amp.hpp>

#include "support/random.hpp"
#include "support/store_bytes.hpp"

namespace training {

namespace ht = halftone;

inline constexpr ht::nn::gpt_config config{.vocabulary = 23, .context = 8, .layers = 2, .heads = 2, .width = 32};

struct batch {
    ht::const_view<std::int32_t, 2> tokens, targets;
};

template <class P, class Device>
struct loop {
    Device& device;
    std::uint64_t seed;
    ht::nn::gpt<P> model{device, config, seed};
    ht::adamw<Device, ht::nn::gpt<P>> optimizer{device,
                                                model,
                                                {.lr = 1e-2, .weight_decay = 0.1},
                                                {{"*.norm", {.weight_decay = 0}}, {"*.bias", {.weight_decay = 0}}}};
    ht::grad_scaler<Device> scaler{device, {.init_scale = 1024, .enabled = ht::model_needs_scaling<ht::nn::gpt<P>>}};
    ht::accumulator<ht::through_scaler, ht::types<ht::nn::gpt<P>>> acc{model};
    ht::tape<Device> tape{device};
    std::vector<std::int32_t> ids =
        support::random(1).indices(2 * 3 * (config.context + 1), static_cast<int>(config.vocabulary));

    explicit loop(Device& d, std::uint64_t s = 3) : device(d), seed(s) {}

    /// Returns the mean loss.
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
    /// The bytes of masters and copies, read from the device's memory.
    std::vector<std::byte> parameters() const { return support::bytes_of(model.parameters()); }
};

}  // namespace training
