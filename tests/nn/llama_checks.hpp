// SPDX-License-Identifier: MIT
/// \file
/// A Llama against transformers' (golden/llama.py) on any device: logits, loss and every gradient of small random models, in
/// float32, and in bfloat16 with at most twice the error of PyTorch's autocast.
///
///     for (const golden_case& c : golden_cases()) is_as_transformers_has_it<ht::full_fp32>(device, c);
#pragma once

#include <halftone/nn/llama.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "nn/golden_model.hpp"

namespace llama_test {

using namespace golden_model;

/// Those that need neither norms of heads nor functions of scores; and the case of a name.
inline std::vector<golden_case> golden_cases() {
    std::vector<golden_case> all = read_cases("llama.txt");
    REQUIRE(all.size() == 5);
    std::erase_if(all, [](const golden_case& c) { return c.name == "qwen3" || c.name == "mistral"; });
    return all;
}
inline golden_case golden_case_of(const std::string& name) {
    for (const golden_case& c : read_cases("llama.txt")) {
        if (c.name == name) return c;
    }
    FAIL("no case " << name);
    return {};
}

inline ht::nn::llama_config config_of(const std::string& name) {
    ht::nn::llama_config c{.vocab_size = 32,
                           .hidden_size = 16,
                           .intermediate_size = 20,
                           .num_hidden_layers = 2,
                           .num_attention_heads = 4,
                           .num_key_value_heads = 2,
                           .max_position_embeddings = 32,
                           .rms_norm_eps = name.starts_with("qwen") ? 1e-6f : 1e-5f};
    if (name == "llama" || name == "qwen3") c.head_dim = 8;
    if (name == "llama3") {
        c.rope_theta = 500;
        c.rope_scaling = ht::rotary_scaling{.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_context = 16};
    }
    if (name.starts_with("qwen")) c.rope_theta = 1000;
    c.tie_word_embeddings = name == "llama3" || name.starts_with("qwen");
    c.attention_bias = name == "qwen2";
    return c;
}

constexpr int rows = 2, steps = 13;

/// What PyTorch's autocast computes: the stream between blocks is float.
using autocast_bf16 = ht::with_stream<ht::amp_bf16, float>;

/// The model's masters, and tokens and targets behind them, by the generator.
struct batch {
    std::vector<std::int32_t> token_ids, target_ids;
    ht::const_view<std::int32_t, 2> tokens, targets;

    template <class Model>
    explicit batch(Model& model) {
        generator values;
        values.fill(model.parameters());
        token_ids = values.ids(rows * steps, model.config().vocab_size);
        target_ids = values.ids(rows * steps, model.config().vocab_size);
        target_ids[3] = -100;
        tokens = {token_ids.data(), {rows, steps}};
        targets = {target_ids.data(), {rows, steps}};
    }
    batch(const batch&) = delete;
};

/// With norms of queries and keys or without, and with functions of attention's scores or without.
template <class P, ht::nn::qk_norm Norm = ht::nn::qk_norm::none, class Device, class... F>
void is_as_transformers_has_it(Device& device, const golden_case& golden, const F&... functions) {
    CAPTURE(golden.name);
    ht::nn::llama<P, Norm> model{device, config_of(golden.name)};
    const batch b(model);
    ht::inference eval{device};
    const auto logits = model.logits(eval, b.tokens, {}, functions...);
    CHECK(logits.shape() == ht::shape<3>{rows, steps, model.config().vocab_size});
    CHECK(off(support::doubles(ht::to_host(device, logits).view()), golden.logits) <= allowed<P>(golden.logits_off));
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = model.loss(tape, b, functions...);
    check_loss<P>(static_cast<double>(loss.item()), golden);
    tape.backward(loss, sink);
    check_gradients<P>(model.parameters(), sink, golden);
}

}  // namespace llama_test
