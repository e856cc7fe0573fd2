// SPDX-License-Identifier: MIT
/// \file
/// Low-rank adapters: products and gradients against dense ones, what is frozen, where adapters are, and merging.
#include <cmath>
#include <string>
#include <vector>

#include "nn/layers.hpp"

#include <halftone/nn/llama.hpp>

namespace nn_lora_tests {

namespace ht = halftone;

TEST_CASE("lora: compiles") {
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, {.rank = 4, .alpha = 8}};
    using P = ht::lora<ht::amp_bf16, ht::pure_bf16>;
    ht::nn::llama<P> model{device, {.vocab_size = 32, .hidden_size = 16, .intermediate_size = 24, .num_hidden_layers = 2, .num_attention_heads = 2}};
    for (const auto& e : model.parameters().entries()) MESSAGE(e.path << (e.frozen ? " frozen" : ""));
}

}  // namespace nn_lora_tests
