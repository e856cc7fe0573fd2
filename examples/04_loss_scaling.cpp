// SPDX-License-Identifier: MIT
/// \file
/// Lesson 4: loss scaling rescues fp16.
///
/// A network learns corrections of about 1e-5. The loss is a mean over 8192 numbers, so that the gradient of each of
/// them is about 2e-5 / 8192 = 2e-9; float16's least number is 6e-8, so all of them are rounded to zero. If the loss is
/// multiplied by 65536, so are the gradients, and an optimizer that divides them again makes the intended step
/// (Micikevicius et al. 2018). A dynamic scale finds out how large the factor may be.
#include <cmath>
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>

#include "with_device.hpp"

namespace ht = halftone;

constexpr ht::extent samples = 128, features = 8, hidden = 32, results = 64;

template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;

    // The last layer is initialised with zeros, so that the network gives zeros at first.
    explicit network(auto& device)
        : model{device}, up{parameters(), features, hidden}, down{parameters(), hidden, results, {.mean = 0}} {
        commit(*this, 7);
    }
    auto operator()(auto& tape, const auto& x) const { return down(tape, ht::gelu(tape, up(tape, x))); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

struct data_set {
    std::vector<float> inputs, targets, spoilt;

    data_set() : inputs(samples * features), targets(samples * results) {
        for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = 2 * ht::uniform(ht::random_bits(1, 0, 0, i)) - 1;
        for (std::size_t i = 0; i < targets.size(); ++i) {
            const float* x = &inputs[i / results * features];
            targets[i] = 1e-5f * (x[i % features] + x[i / features % features]);
        }
        spoilt = targets;
        spoilt[0] = 1e9f;  // one broken number in the data
    }
};

/// Trains for some steps and prints what happens. In step `accident` the data contain an outlier.
template <class P>
void train(auto& device, const char* name, const ht::grad_scaler_options& options, int steps, int accident = -1) {
    const data_set data;
    network<P> model{device};
    ht::adamw optimizer{device, model, {.lr = 2e-6, .weight_decay = 0}};
    ht::grad_scaler scaler{device, options};  // with .enabled = false it does nothing; the loop is the same
    ht::accumulator acc{model};
    ht::tape tape{device};

    float first_loss = 0, last_loss = 0, scale = scaler.get_scale();
    for (int step = 0; step < steps; ++step) {
        const auto x = tape.to_device(ht::const_view<float, 2>(data.inputs.data(), {samples, features}));
        const auto& t = step == accident ? data.spoilt : data.targets;
        const auto loss =
            ht::mean_squared_error(tape, model(tape, x), ht::const_view<float, 2>(t.data(), {samples, results}));
        if (step == 0) first_loss = loss.item();
        if (step != accident) last_loss = loss.item();

        tape.backward(scaler.scale(loss), acc);      // the gradients of scale * loss
        auto grads = scaler.unscale(acc.take());     // read times 1 / scale; finds whether all are finite
        const auto outcome = optimizer.step(grads);  // changes nothing if one is not
        scaler.update();                             // then halves the scale; after enough good steps doubles it

        if (step == 0) {
            int zeros = 0;
            const auto slopes = ht::to_host(device, grads.of(model.down.weight));  // from the device's memory
            for (const float slope : slopes) zeros += slope == 0 ? 1 : 0;
            std::printf("%s: %d of %d gradients of down.weight are zero\n", name, zeros,
                        static_cast<int>(slopes.size()));
        }
        // On a GPU these questions wait for the device; a training loop asks them when it logs.
        if (outcome.skipped()) std::printf("%s: step %d is skipped\n", name, step);
        if (scaler.get_scale() != scale) {
            scale = scaler.get_scale();
            std::printf("%s: from step %d on the scale is 2^%d\n", name, step + 1, std::ilogb(scale));
        }
    }
    std::printf("%s: loss %.1e, after %d steps %.1e\n", name, static_cast<double>(first_loss), steps,
                static_cast<double>(last_loss));
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    // The intended result, in fp32. (bf16 would do as well: it has float's range.)
    train<ht::full_fp32>(device, "fp32", {.enabled = false}, 60);
    // Prints: fp32: 0 of 2048 gradients of down.weight are zero
    // Prints: fp32: loss 6.8e-11, after 60 steps 1.6e-12

    // fp16 without a scale: no gradient, no step, no change.
    train<ht::amp_fp16>(device, "unscaled", {.enabled = false}, 10);
    // Prints: unscaled: 2048 of 2048 gradients of down.weight are zero
    // Prints: unscaled: loss 6.8e-11, after 10 steps 6.8e-11

    // With a scale it learns what fp32 learns. The scale doubles after 25 good steps; the outlier in step 40 makes
    // gradients overflow: that step is skipped, the weights are unchanged, and the scale is halved.
    train<ht::amp_fp16>(device, "scaled", {.init_scale = 0x1p16f, .growth_interval = 25}, 60, 40);
    // Prints: scaled: 0 of 2048 gradients of down.weight are zero
    // Prints: scaled: from step 25 on the scale is 2^17
    // Prints: scaled: step 40 is skipped
    // Prints: scaled: from step 41 on the scale is 2^16
    // Prints: scaled: loss 6.8e-11, after 60 steps 1.6e-12

    // A scale that is much too large costs a few steps, no more.
    train<ht::amp_fp16>(device, "too large", {.init_scale = 0x1p46f}, 10);
    // Prints: too large: step 2 is skipped
    // Prints: too large: from step 3 on the scale is 2^43
    // Prints: too large: loss 6.8e-11, after 10 steps 1.4e-11
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
