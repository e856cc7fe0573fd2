// SPDX-License-Identifier: MIT
/// \file
/// A Llama with low-rank adapters on the emulated GPU, compared with that on the CPU: losses and gradients, steps of AdamW, merged
/// weights.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "nn/lora.hpp"
#include "support/gradient_sink.hpp"

namespace emulator_models_lora_tests {

namespace ht = halftone;
using namespace lora_test;
using doubles = std::vector<double>;

/// What a device computes.
struct seen {
    double loss = 0;
    std::vector<doubles> gradients{};  // of every A and B
    doubles trained{}, merged{};       // logits after steps, and after merging
};

template <class P, class Device>
seen on(Device& device) {
    const ht::add_adapters added{device, {.rank = 4, .alpha = 6, .targets = {"*.q", "*.v", "*.proj", "*.mlp"}}};
    using model_type = ht::nn::llama<P>;
    model_type model{device, llama_config(), 3};
    fill_b(model.parameters());
    const batch b;
    seen all;
    {
        ht::tape tape{device};
        support::gradient_sink sink(model.parameters());
        const auto loss = model.loss(tape, b);
        all.loss = static_cast<double>(loss.item());
        tape.backward(loss, sink);
        for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
            if (!model.parameters().entries()[i].is_adapter) continue;
            const std::vector<float> g = sink.entry(i);
            all.gradients.emplace_back(g.begin(), g.end());
        }
    }
    ht::adamw optimizer{device, model, {.lr = 0.01}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    for (int step = 0; step < 3; ++step) {
        tape.backward(model.loss(tape, b), acc);
        auto gradients = acc.take();
        optimizer.step(gradients);
    }
    ht::inference eval{device};
    const auto logits = [&] { return support::doubles(ht::to_host(device, model.logits(eval, b.tokens)).view()); };
    all.trained = logits();
    ht::merge_adapters(model);
    all.merged = logits();
    return all;
}

/// The largest difference, as a share of the largest magnitude.
double apart(const doubles& a, const doubles& b) {
    REQUIRE(a.size() == b.size());
    double most = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        most = std::max(most, std::fabs(a[i] - b[i])), size = std::max(size, std::fabs(b[i]));
    return most / size;
}

TEST_CASE("lora on a GPU: losses, gradients, steps and merged weights are the CPU's within rounding") {
    ht::emulator::device device;
    ht::cpu cpu{{.threads = 1}};
    using P = ht::lora<ht::full_fp32, ht::full_fp32>;
    const seen got = on<P>(device), want = on<P>(cpu);
    CHECK(std::fabs(got.loss - want.loss) < 1e-5);
    REQUIRE(got.gradients.size() == want.gradients.size());
    for (std::size_t i = 0; i < got.gradients.size(); ++i) CHECK(apart(got.gradients[i], want.gradients[i]) < 1e-4);
    CHECK(apart(got.trained, want.trained) < 1e-3);
    CHECK(apart(got.merged, got.trained) < 1e-4);
    const seen narrow = on<ht::lora<ht::amp_bf16, ht::pure_bf16>>(device);
    CHECK(std::fabs(narrow.loss - want.loss) < 0.02);
    CHECK(apart(narrow.merged, narrow.trained) < 0.05);
}

}  // namespace emulator_models_lora_tests
