// SPDX-License-Identifier: MIT
/// \file
/// Lesson 8: one layer in fp32, and what it changes.
///
/// A network learns temperatures between 99.9 and 100.1. Near 100, numbers of bfloat16 are half a degree apart, since
/// they have eight significant bits, so the last layer can give 100 and nothing closer, whatever the layers before it
/// learn. The remedy is one line of a recipe. Which line, and what it costs, is shown below; all other layers of a
/// large model would stay in bf16.
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/policy/ledger.hpp>

#include "with_device.hpp"

namespace ht = halftone;

constexpr ht::extent samples = 64, features = 4, hidden = 32, results = 4;

template <class P>
struct thermometer : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;

    // The bias is initialised with 100, which all temperatures have in common; the network learns the differences.
    explicit thermometer(auto& device)
        : model{device},
          up{parameters(), features, hidden},
          down{parameters(), hidden, results, {.mean = 0}, {.mean = 100}} {
        commit(*this, 7);
    }
    auto operator()(auto& tape, const auto& x) const { return down(tape, ht::gelu(tape, up(tape, x))); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

// The recipes: all in bf16; the wrong layer in fp32; the right layer in fp32; only the right layer's results in fp32.
using plain = ht::amp_bf16;
using wrong_layer = ht::recipe<ht::amp_bf16, ht::rule<"up", ht::full_fp32>>;
using right_layer = ht::recipe<ht::amp_bf16, ht::rule<"down", ht::full_fp32>>;
using results_alone = ht::recipe<ht::amp_bf16, ht::rule<"down", ht::with_output<ht::amp_bf16, float>>>;

// Casts are known at compile time. The network's input is data in float, of which no gradient is wanted: `const float`.
template <class P>
constexpr int casts = ht::casts<thermometer<P>, const float>;
static_assert(casts<plain> < casts<right_layer>);

template <class P>
void train(auto& device, const char* name) {
    std::vector<float> inputs(samples * features), targets(samples * results);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = 2 * ht::uniform(ht::random_bits(1, 0, 0, i)) - 1;
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = 100 + 0.125f * inputs[i];

    thermometer<P> model{device};
    ht::adamw optimizer{device, model, {.lr = 1e-2, .weight_decay = 0}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    float first = 0, last = 0;
    for (int step = 0; step < 60; ++step) {
        const auto x = tape.to_device(ht::const_view<float, 2>(inputs.data(), {samples, features}));
        const auto loss =
            ht::mean_squared_error(tape, model(tape, x), ht::const_view<float, 2>(targets.data(), {samples, results}));
        last = loss.item();
        if (step == 0) first = last;
        tape.backward(loss, acc);
        auto grads = acc.take();
        optimizer.step(grads);
    }
    const std::size_t copies = device.memory().usage().live(ht::memory_kind::copy);
    std::printf("%s: loss %.4f, in the end %s; %d casts, %d bytes of bf16 copies\n", name, static_cast<double>(first),
                last < first / 20  ? "less than a twentieth"
                : last < first / 2 ? "less than a half"
                                   : "more than a half",
                casts<P>, static_cast<int>(copies));
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    // The inputs are read as bf16, forward and for the gradient of the weights: two casts, and no other in the layers.
    // Nothing is learned, because every result is rounded to 100.
    train<plain>(device, "all in bf16");
    // Prints: all in bf16: loss 0.0050, in the end more than a half; 2 casts, 768 bytes of bf16 copies

    // fp32 in a layer that needs no more precision does not help: the next layer casts its results to bf16. (A layer in
    // fp32 reads its master, and has no copy.)
    train<wrong_layer>(device, "up in fp32");
    // Prints: up in fp32: loss 0.0050, in the end more than a half; 2 casts, 384 bytes of bf16 copies

    // What helps is fp32 in the last layer: weights, products and results. It also reads its input as fp32, forward and
    // backward.
    train<right_layer>(device, "down in fp32");
    // Prints: down in fp32: loss 0.0050, in the end less than a twentieth; 4 casts, 384 bytes of bf16 copies

    // fp32 for its results only is enough. bf16 products are summed in float anyway; precision was lost when the sums
    // were rounded to the layer's output. The gradients, now in fp32, are read as bf16: two of the four casts.
    train<results_alone>(device, "results of down in fp32");
    // Prints: results of down in fp32: loss 0.0050, in the end less than a twentieth; 4 casts, 768 bytes of bf16 copies
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
