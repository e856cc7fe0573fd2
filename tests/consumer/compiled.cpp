// SPDX-License-Identifier: MIT
/// \file
/// Somebody else's training step, for halftone::compiled: 0 where the model learns.
#include <cstdint>
#include <vector>

#include <halftone/amp.hpp>

namespace ht = halftone;

struct pair {
    ht::const_view<std::int32_t, 2> tokens, targets;
};

/// Classes that programs derive from: the library has their constructors and destructors.
struct own_engine : ht::matmul_engine {
    const char* name() const override { return "own"; }
    bool can(const ht::product_description&) override { return false; }
    bool prefers(const ht::product_description&) const override { return false; }
    void multiply(const ht::product_description&, ht::workspace&) override {}
    std::size_t workspace_bytes(const ht::product_description&) override { return 0; }
};
struct own_listener : ht::memory_listener {};

int main() {
    const own_engine engine;
    ht::cpu device;
    ht::nn::gpt<ht::amp_bf16> model{device, {.vocabulary = 11, .context = 8, .layers = 1, .heads = 2, .width = 16}};
    ht::adamw optimizer{device, model, {.lr = 1e-2}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6}, targets{1, 4, 1, 5, 9, 2, 6, 5};
    float first = 0, last = 0;
    for (int step = 0; step < 20; ++step) {
        const auto loss = model.loss(tape, pair{{tokens.data(), {1, 8}}, {targets.data(), {1, 8}}});
        (step == 0 ? first : last) = loss.item();
        tape.backward(loss, acc);
        auto grads = acc.take();
        optimizer.step(grads);
    }
    return last < first / 2 ? 0 : 1;
}
