// SPDX-License-Identifier: MIT
/// \file
/// Lesson 17: AdamW with moments in 8 bits, by hand.
///
/// AdamW stores two moments for each parameter, 8 bytes as floats. A byte has 256 values: which 256 numbers should they
/// be, if the moments of a layer differ by factors of thousands?
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>

#include "with_device.hpp"

namespace ht = halftone;

constexpr int block = 256;  // neighbours with a common largest magnitude

/// The dynamic map: seven decades from 1e-7 to 1, each divided into twice as many equal parts as the one below. Small
/// numbers have a large range, large ones a high precision.
std::vector<float> dynamic_map(bool has_sign) {
    std::vector<float> map{0, 1};
    for (int decade = 0; decade < 7; ++decade) {
        const int parts = (has_sign ? 1 : 2) << decade;
        for (int part = 0; part < parts; ++part) {
            const double middle = std::pow(10.0, decade - 6) * (0.1 + 0.9 * (part + 0.5) / parts);
            map.push_back(static_cast<float>(middle));
            if (has_sign) map.push_back(static_cast<float>(-middle));
        }
    }
    std::sort(map.begin(), map.end());
    return map;
}

std::vector<float> equal_steps() {
    std::vector<float> map;
    for (int i = -127; i <= 127; ++i) map.push_back(static_cast<float>(i) / 127);
    return map;
}

unsigned char nearest(const std::vector<float>& map, float x) {
    const auto distance = [x](float number) { return std::fabs(number - x); };
    const auto best = std::min_element(map.begin(), map.end(), [&](float a, float b) { return distance(a) < distance(b); });
    return static_cast<unsigned char>(best - map.begin());
}

/// A moment of every parameter: a byte each, and a float for each block.
struct moment {
    std::vector<float> map;
    std::vector<unsigned char> codes = {};
    std::vector<float> absmax = {};  // largest magnitudes of the blocks

    std::vector<float> read() const {
        std::vector<float> values;
        for (std::size_t i = 0; i < codes.size(); ++i) values.push_back(map[codes[i]] * absmax[i / block]);
        return values;
    }
    /// Numbers that are not 0 get at least the code `least`.
    void write(const std::vector<float>& values, unsigned char least = 0) {
        codes.resize(values.size()), absmax.assign((values.size() + block - 1) / block, 0.0f);
        for (std::size_t i = 0; i < values.size(); ++i) absmax[i / block] = std::max(absmax[i / block], std::fabs(values[i]));
        for (std::size_t i = 0; i < values.size(); ++i)
            codes[i] = std::max(nearest(map, absmax[i / block] > 0 ? values[i] / absmax[i / block] : 0),
                                values[i] == 0 ? static_cast<unsigned char>(0) : least);
    }
};

using policy = ht::full_fp32;
struct network : ht::nn::model {
    ht::nn::linear_no_bias<ht::at<policy, "fit">> fit;
    explicit network(auto& device) : model{device}, fit{parameters(), 32, 16} { commit(*this, 7); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fit); }
};

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    // A block whose largest moment is 1: what becomes of its smaller ones?
    std::printf("a moment      by equal steps   by the dynamic map\n");
    for (const float x : {1.0f, 0.3f, 0.03f, 0.003f, 0.0003f, 0.00003f}) {
        const auto stored = [x](const std::vector<float>& map) { return static_cast<double>(map[nearest(map, x)]); };
        std::printf("%-8g      %-14.3g   %.3g\n", static_cast<double>(x), stored(equal_steps()), stored(dynamic_map(true)));
    }
    // Prints: 0.3           0.299            0.304
    // Prints: 0.003         0                0.00297
    // Prints: 3e-05         0                2.12e-05

    // Now AdamW: the library's over a model, and by hand, from the same gradients.
    constexpr double lr = 0.02, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0.01;
    network model{device};
    ht::adamw_8bit optimizer{device, model, {.lr = lr, .weight_decay = decay, .min_8bit_size = 1}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    std::vector<float> inputs(64 * 32), targets(64 * 16);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = 2 * ht::uniform(ht::random_bits(1, 0, 0, i)) - 1;
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = inputs[i / 16 * 32 + i % 16] - inputs[i / 16 * 32 + 31];

    const auto initial = ht::to_host(device, model.fit.weight.master());  // (16, 32)
    std::vector<float> weights(initial.begin(), initial.end());
    moment first{dynamic_map(true)}, second{dynamic_map(false)};  // the second is never negative
    first.write(std::vector<float>(512)), second.write(std::vector<float>(512));
    for (int step = 1; step <= 100; ++step) {
        const auto x = tape.to_device(ht::const_view<float, 2>(inputs.data(), {64, 32}));
        const auto loss = ht::mean_squared_error(tape, model.fit(tape, x), ht::const_view<float, 2>(targets.data(), {64, 16}));
        if (step == 1 || step == 100) std::printf("step %d: loss %.2g\n", step, static_cast<double>(loss.item()));
        tape.backward(loss, acc);
        auto grads = acc.take();
        const auto gradient = ht::to_host(device, grads.of(model.fit.weight));

        std::vector<float> m = first.read(), v = second.read();
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const double g = static_cast<double>(gradient.begin()[i]);
            m[i] = static_cast<float>(beta1 * static_cast<double>(m[i]) + (1 - beta1) * g);
            v[i] = static_cast<float>(beta2 * static_cast<double>(v[i]) + (1 - beta2) * g * g);
            const double mean = static_cast<double>(m[i]) / (1 - std::pow(beta1, step));
            const double root = std::sqrt(static_cast<double>(v[i]) / (1 - std::pow(beta2, step)));
            // The parameter moves by the new moments, before they are rounded.
            weights[i] = static_cast<float>(static_cast<double>(weights[i]) * (1 - lr * decay) - lr * mean / (root + epsilon));
        }
        // A step divides by the second moment's root, so that it must not become 0 beside a first moment that does not.
        first.write(m), second.write(v, 1);
        optimizer.step(grads);
    }
    // Prints: step 1: loss 1
    // Prints: step 100: loss 0.0

    // The same weights but for roundings, and the same codes, but for moments near the middle of two.
    const auto trained = ht::to_host(device, model.fit.weight.master());
    float off = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) off = std::max(off, std::fabs(weights[i] - trained.begin()[i]));
    std::vector<unsigned char> codes(512);
    model.parameters().memory().read(codes.data(), optimizer.codes(0, 0).data(), codes.size());
    int same = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) same += codes[i] == first.codes[i] ? 1 : 0;
    std::printf("weights differ by less than a hundredth of a step: %s; equal codes: %s\n",
                static_cast<double>(off) < lr / 100 ? "yes" : "no", same > 500 ? "nearly all" : "few");
    // Prints: weights differ by less than a hundredth of a step: yes; equal codes: nearly all

    std::printf("a moment: 2048 bytes as floats, %zu in 8 bits\n", first.codes.size() + first.absmax.size() * sizeof(float));
    // Prints: a moment: 2048 bytes as floats, 520 in 8 bits
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
