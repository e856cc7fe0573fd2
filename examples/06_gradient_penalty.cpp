// SPDX-License-Identifier: MIT
/// \file
/// Lesson 6: a loss with a gradient in it.
///
/// A network that learns a jump becomes as steep as it can. A gradient penalty prevents that: where the derivative of
/// the network with respect to its input exceeds 1, the excess is part of the loss (Gulrajani et al. 2017, "Improved
/// Training of Wasserstein GANs"). So a gradient has to be differentiated once more. Under a loss scale it must be
/// unscaled first: otherwise the penalty would be that of a derivative 65536 times as large, and would change whenever
/// the scale changes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

#include "with_device.hpp"

namespace ht = halftone;

constexpr ht::extent samples = 32, hidden = 16;

template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;

    explicit network(auto& device) : model{device}, up{parameters(), 1, hidden}, down{parameters(), hidden, 1} {
        commit(*this, 7);
    }
    auto operator()(auto& tape, const auto& x) const { return down(tape, ht::tanh(tape, up(tape, x))); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

/// Trains on a jump from -1 to 1, and prints how steep the network is at the end.
template <class P>
void train(auto& device, const char* name, float weight) {
    std::vector<float> inputs, targets;
    for (ht::extent i = 0; i < samples; ++i) {
        inputs.push_back((static_cast<float>(i) + 0.5f) / samples * 2 - 1);
        targets.push_back(inputs.back() < 0 ? -1.0f : 1.0f);
    }
    const ht::const_view<float, 2> x_values(inputs.data(), {samples, 1}), t_values(targets.data(), {samples, 1});

    network<P> model{device};
    ht::adamw optimizer{device, model, {.lr = 0.03f, .weight_decay = 0}};
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
    ht::tape tape{device, ht::double_backward};  // what it records can be differentiated twice

    const auto in = ht::to_device(device, x_values);
    double steepest = 0;
    int skipped = 0;
    for (int step = 0; step < 60; ++step) {
        const auto x = tape.leaf(ht::as_view(in));  // an input that takes a gradient
        const auto y = model(tape, x);
        const auto loss = ht::mean_squared_error(tape, y, t_values);

        // The gradient of the sum of all results contains the derivative at each sample. It is a variable of the tape.
        const auto scaled = scaler.scale(ht::sum(ht::autocast<ht::full_fp32>(tape), y));
        const auto slopes = scaler.unscale(tape.gradients(scaled, x)).of(x);
        // Without unscale, ht::norm(tape, tape.gradients(scaled, x)) does not compile.
        const auto penalty = ht::mean(
            tape, ht::map(tape, [](auto s) { return ht::square(ht::max(ht::abs(s) - 1.0f, 0.0f)); }, slopes));
        const auto total = ht::map(tape, [weight](auto l, auto p) { return l + weight * p; }, loss, penalty);

        tape.backward(scaler.scale(total), acc);  // through the loss, and through its gradient
        auto grads = scaler.unscale(acc.take());
        skipped += optimizer.step(grads).skipped() ? 1 : 0;
        scaler.update();

        const auto all = ht::to_host(device, slopes.view());
        steepest = 0;
        for (const float s : all) steepest = std::max(steepest, std::fabs(static_cast<double>(s)));
    }
    std::printf("%s: the steepest slope is %s2, %d of 60 steps skipped\n", name, steepest > 2 ? "above " : "below ",
                skipped);
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    train<ht::amp_fp16>(device, "without a penalty", 0);
    // Prints: without a penalty: the steepest slope is above 2

    // The same network, which may now rise by about 1 for each 1 of its input: a ramp instead of a jump.
    train<ht::amp_fp16>(device, "with one", 10);
    // Prints: with one: the steepest slope is below 2
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
