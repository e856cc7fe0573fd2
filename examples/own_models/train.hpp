// SPDX-License-Identifier: MIT
/// \file
/// What the models of this folder share: numbers for their tasks, and the loop of README.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>

#include "../with_device.hpp"

namespace ht = halftone;

/// Random numbers that follow from the step and from how many were drawn in it: the same ones on every machine.
class draws {
  public:
    explicit draws(int step) : step_(static_cast<std::uint32_t>(step)) {}

    float between(float low, float high) {
        return low + (high - low) * ht::uniform(ht::random_bits(1, step_, 0, index_++));
    }
    int below(ht::extent limit) { return static_cast<int>(between(0, static_cast<float>(limit))); }

  private:
    std::uint32_t step_, index_ = 0;
};

/// Trains the model for some steps, and prints the mean loss of the first ten and what share of it the last ten have.
/// `Batch{step}` makes the numbers of a step, loss_of(tape, batch) their loss. On a CPU the tape reads them where they lie,
/// so that they have to live until the backward pass is through. The model's policy alone says whether losses are scaled.
template <class Batch, class Model>
void train(auto& device, const char* name, Model& model, int steps, double rate, const auto& loss_of) {
    ht::adamw optimizer{device, model, {.lr = rate}};
    ht::grad_scaler scaler{device, {.enabled = ht::model_needs_scaling<Model>}};
    ht::accumulator acc{model};
    ht::tape tape{device};
    double first = 0, last = 0;
    for (int step = 0; step < steps; ++step) {
        const Batch batch(step);
        const auto loss = loss_of(tape, batch);
        if (step < 10) first += static_cast<double>(loss.item());
        if (step >= steps - 10) last += static_cast<double>(loss.item());
        tape.backward(scaler.scale(loss), acc);
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
    }
    const double left = last / first;
    std::printf("%s: loss %.1f, after %d steps less than a %s of that\n", name, first / 10, steps,
                left < 0.1    ? "tenth"
                : left < 0.25 ? "quarter"
                : left < 0.5  ? "half"
                              : "[more than a half]");
}
