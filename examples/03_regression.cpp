// SPDX-License-Identifier: MIT
/// \file
/// Lesson 3: regression, with every step by hand.
///
/// A line is fitted to eight points: y = 2 a - b + 0.5. The products run in bfloat16, the weights have float masters,
/// and everything that an optimizer does is written out. All numbers here are short binary fractions, so that each can
/// be checked with a pencil.
#include <cstdio>

#include <halftone/amp.hpp>

#include "with_device.hpp"

namespace ht = halftone;

// bf16 products; the layer gives float, as a last layer should.
using policy = ht::with_output<ht::amp_bf16, float>;

/// A model owns a store, which holds its parameters, and layers, which are handles into the store.
struct line : ht::nn::model {
    ht::nn::linear<ht::at<policy, "fit">> fit;

    explicit line(auto& device) : model{device}, fit{parameters(), 2, 1} {
        commit(*this);  // all layers have been made: allocates and initialises
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fit); }
};

constexpr ht::extent points = 8, micro = points / 2;  // in all, and in a micro-batch
const float inputs[points][2] = {{1, 0}, {0, 1}, {1, 1}, {-1, 0}, {0, -1}, {-1, -1}, {1, -1}, {-1, 1}};
const float targets[points] = {2.5f, -0.5f, 1.5f, -1.5f, 1.5f, -0.5f, 3.5f, -2.5f};

/// The loss of `count` points from `first` on. Intermediate results stay on the tape.
auto loss_of(auto& tape, const line& model, ht::extent first, ht::extent count) {
    const auto x = tape.to_device(ht::const_view<float, 2>(inputs[first], {count, 2}));
    const auto prediction = model.fit(tape, x);  // (count, 1)
    return ht::mean_squared_error(tape, prediction, ht::const_view<float, 2>(targets + first, {count, 1}));
}

/// Copies from the device's memory to the host before printing: a GPU's memory cannot be read through a pointer.
void print_gradients(const char* what, auto& device, const auto& grads, const line& model) {
    const auto weight = ht::to_host(device, grads.of(model.fit.weight));  // (1, 2)
    const auto bias = ht::to_host(device, grads.of(model.fit.bias));      // (1)
    std::printf("%s: %g %g, %g\n", what, static_cast<double>(weight(0, 0)), static_cast<double>(weight(0, 1)),
                static_cast<double>(bias(0)));
}

/// master -= rate gradient, for all elements in one kernel: what ht::sgd does.
void descend(auto& device, const auto& parameter, const auto& gradient, float rate) {
    const auto master = parameter.master();
    ht::map(device, [rate](auto w, auto slope) { return w - rate * slope; }, master, gradient, master);
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    line model{device};

    // Parameters are initialised at random. assign() sets other values: the master, and its rounded bf16 copy.
    const float zeros[] = {0, 0};
    model.fit.weight.assign(zeros);

    // 1. Forward: the tape records. 2. Backward: gradients are added to an accumulator, and the tape is empty again. An
    // accumulator for losses without a scaler is declared ht::unscaled; bf16 has float's range and needs no scaler
    // (lesson 4).
    ht::tape tape{device};
    ht::accumulator acc{model, ht::unscaled};
    const auto loss = loss_of(tape, model, 0, points);
    std::printf("loss of all points: %g\n", static_cast<double>(loss.item()));
    tape.backward(loss, acc);
    print_gradients("its gradients", device, acc.take(), model);
    // Prints: loss of all points: 4
    // Prints: its gradients: -3 1.5, -1

    // Gradient accumulation: two micro-batches, each loss divided by their number, give the same gradients, while only
    // half of the activations are in memory at a time. Gradients are added in `accumulate`, float here: in bf16 small
    // ones would be lost.
    for (ht::extent first = 0; first < points; first += micro) {
        const auto part = loss_of(tape, model, first, micro);
        std::printf("loss of a micro-batch: %g\n", static_cast<double>(part.item()));
        tape.backward(part / 2, acc);
    }
    const auto grads = acc.take();  // ends the window; valid until the next backward pass
    print_gradients("gradients of both", device, grads, model);
    // Prints: loss of a micro-batch: 2.75
    // Prints: loss of a micro-batch: 5.25
    // Prints: gradients of both: -3 1.5, -1

    // 3. The update happens on the masters. Until they are rounded again, products read the old copies.
    constexpr float rate = 0.25f;
    descend(device, model.fit.weight, grads.of(model.fit.weight), rate);
    descend(device, model.fit.bias, grads.of(model.fit.bias), rate);
    const auto show = [&](const char* when) {
        const auto master = ht::to_host(device, model.fit.weight.master());  // float
        const auto copy = ht::to_host(device, model.fit.weight.values());    // bfloat16
        std::printf("%s: master %.5f %.5f, products read %g %g\n", when, static_cast<double>(master(0, 0)),
                    static_cast<double>(master(0, 1)), static_cast<double>(copy(0, 0)),
                    static_cast<double>(copy(0, 1)));
    };
    show("updated");
    model.parameters().refresh();
    show("refreshed");
    // Prints: updated: master 0.75000 -0.37500, products read 0 0
    // Prints: refreshed: master 0.75000 -0.37500, products read 0.75 -0.375

    // Then the same again and again.
    for (int step = 2; step <= 24; ++step) {
        const auto now = loss_of(tape, model, 0, points);
        if (step % 4 == 0) std::printf("step %2d: loss %.3g\n", step, static_cast<double>(now.item()));
        tape.backward(now, acc);
        const auto g = acc.take();
        descend(device, model.fit.weight, g.of(model.fit.weight), rate);
        descend(device, model.fit.bias, g.of(model.fit.bias), rate);
        model.parameters().refresh();
    }
    // Once the copies are right the loss is zero, and the masters stay at values that round to the copies.
    show("fitted");
    const auto bias = ht::to_host(device, model.fit.bias.master());
    const auto bias_copy = ht::to_host(device, model.fit.bias.values());
    std::printf("bias: master %.4f, products read %g\n", static_cast<double>(bias(0)),
                static_cast<double>(bias_copy(0)));
    // Prints: step  4: loss 0.224
    // Prints: step  8: loss 0.00574
    // Prints: step 12: loss 5.72e-05
    // Prints: step 16: loss 0
    // Prints: fitted: master 1.99805 -0.99902, products read 2 -1
    // Prints: bias: master 0.4990, products read 0.5
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
