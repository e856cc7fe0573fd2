// SPDX-License-Identifier: MIT
/// \file
/// Lesson 9: eight bits, and the scale that they need.
///
/// A float8_e4m3 holds magnitudes from 2^-9 to 448, a float8_e5m2 from 2^-16 to 57344, and a tensor's numbers are
/// rarely in these ranges by themselves. So each tensor has a factor, its scale, that maps its largest magnitude to the
/// format's; the product of two such tensors is divided by both scales. Weights and activations need the four
/// significant bits of the first format, gradients the range of the second (Micikevicius et al. 2022). With delayed
/// scaling the factor follows from the tensors of the last steps, so that a tensor is read only once.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>

#include "with_device.hpp"

namespace ht = halftone;

/// Prints what numbers lose in eight bits: the fraction that becomes zero, and the mean relative error of the others.
template <class T>
void look(const char* what, const std::vector<float>& numbers, float scale) {
    int zeros = 0;
    double error = 0;
    for (const float x : numbers) {
        const float back = ht::saturate<T>(x * scale) / scale;
        if (back == 0) {
            ++zeros;
        } else {
            error += std::fabs(static_cast<double>(back - x) / static_cast<double>(x));
        }
    }
    const auto left = static_cast<int>(numbers.size()) - zeros;
    std::printf("%s: %d%% become zero", what, 100 * zeros / static_cast<int>(numbers.size()));
    if (left > 0) std::printf(", the others are off by %.1f%%", 100 * error / left);
    std::printf("\n");
}

void formats() {
    // Activations differ by a factor of a hundred or so, gradients by millions.
    std::vector<float> activations, gradients;
    for (std::uint32_t i = 0; i < 4096; ++i) {
        const double normal =
            static_cast<double>(ht::normal(ht::random_bits(1, 0, 0, 2 * i), ht::random_bits(1, 0, 0, 2 * i + 1)).first);
        activations.push_back(static_cast<float>(0.001 * normal));
        gradients.push_back(static_cast<float>(1e-9 * std::exp(3 * normal)));
    }
    const auto scale_of = [](const std::vector<float>& numbers, double largest) {
        float amax = 0;
        for (const float x : numbers) amax = std::max(amax, std::fabs(x));
        return ht::scale_for(amax, static_cast<float>(largest), {}, 1.0f);
    };
    constexpr double e4m3 = ht::number_traits<ht::float8_e4m3>::max, e5m2 = ht::number_traits<ht::float8_e5m2>::max;

    look<ht::float8_e4m3>("activations as they are, e4m3", activations, 1);
    look<ht::float8_e4m3>("activations, scaled, e4m3", activations, scale_of(activations, e4m3));
    look<ht::float8_e5m2>("activations, scaled, e5m2", activations, scale_of(activations, e5m2));
    // Prints: activations as they are, e4m3: 67% become zero, the others are off by 43.5%
    // Prints: activations, scaled, e4m3: 0% become zero, the others are off by 2.2%
    // Prints: activations, scaled, e5m2: 0% become zero, the others are off by 4.5%
    look<ht::float8_e4m3>("gradients, scaled, e4m3", gradients, scale_of(gradients, e4m3));
    look<ht::float8_e5m2>("gradients, scaled, e5m2", gradients, scale_of(gradients, e5m2));
    // Prints: gradients, scaled, e4m3: 23% become zero, the others are off by 9.1%
    // Prints: gradients, scaled, e5m2: 0% become zero, the others are off by 4.5%
}

template <class P>
struct layer : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;

    explicit layer(auto& device) : model{device}, fc{parameters(), 8, 4} { commit(*this, 7); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

/// The scale of a layer's input over some steps, in one of which the input is sixteen times as large.
void windows(auto& device) {
    layer<ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<3>>> model{device};
    ht::sgd optimizer{device, model, {.lr = 1e-3}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const std::vector<float> targets(8);
    for (int step = 0; step < 7; ++step) {
        const ht::amax_state before = model.parameters().amaxes().read()[0];  // the record of fc.weight's input
        const float amax = step == 2 ? 16.0f : 1.0f;
        std::vector<ht::bfloat16> x(16, ht::bfloat16(amax / 2));
        x[5] = ht::bfloat16(amax);
        const auto y = model.fc(tape, tape.to_device(ht::const_view<ht::bfloat16, 2>(x.data(), {2, 8})));
        tape.backward(ht::mean_squared_error(tape, y, ht::const_view<float, 2>(targets.data(), {2, 4})), acc);
        auto grads = acc.take();
        optimizer.step(grads);  // ends the window: stores the amax in the history
        std::printf("step %d: amax %g, scale %g%s\n", step, static_cast<double>(amax),
                    static_cast<double>(before.scale),
                    amax * before.scale > 448 ? ", too large: what is beyond 448 becomes that" : "");
    }
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    formats();
    // The first step has no history, and its scale is 1. The third has an amax sixteen times as large as any in its
    // history, and saturates. The next three steps scale for that amax, until it has left the history of three windows.
    windows(device);
    // Prints: step 0: amax 1, scale 1
    // Prints: step 1: amax 1, scale 448
    // Prints: step 2: amax 16, scale 448, too large: what is beyond 448 becomes that
    // Prints: step 3: amax 1, scale 28
    // Prints: step 4: amax 1, scale 28
    // Prints: step 5: amax 1, scale 28
    // Prints: step 6: amax 1, scale 448
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
