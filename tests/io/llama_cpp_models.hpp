// SPDX-License-Identifier: MIT
/// \file
/// Models that llama.cpp computes: of each architecture, with heads of 64 and 128, tokenizers of golden/chat_models, and what halftone
/// computes of them.
///
///     for (const llama_cpp_models::real_model& of : llama_cpp_models::real_models()) ...
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/amp.hpp>
#include <halftone/io/pretrained.hpp>

#include "nn/llama_checks.hpp"
#include "support/gradient_sink.hpp"

namespace llama_cpp_models {

namespace ht = halftone;

/// A model of one of chat_models' tokenizers with heads of 64, in a folder of its own.
struct real_model {
    const char *name, *tokenizer;
    ht::nn::llama_config sizes;
};
inline std::vector<real_model> real_models() {
    const ht::nn::llama_config c{.vocab_size = 384,
                                 .hidden_size = 256,
                                 .intermediate_size = 512,
                                 .num_hidden_layers = 2,
                                 .num_attention_heads = 4,
                                 .num_key_value_heads = 2,
                                 .max_position_embeddings = 128,
                                 .rms_norm_eps = 1e-5f};
    std::vector<real_model> all{
        {"llama", "llama3", c}, {"llama3", "llama3", c}, {"qwen2", "qwen2", c}, {"qwen3", "qwen3", c}};
    all[1].sizes.rope_theta = 500000;
    all[1].sizes.rope_scaling =
        ht::rotary_scaling{.factor = 32, .low_frequency = 1, .high_frequency = 4, .original_context = 8192};
    all[1].sizes.tie_word_embeddings = true;
    all[2].sizes.rope_theta = all[3].sizes.rope_theta = 1000000;
    all[2].sizes.attention_bias = true;
    all[3].sizes.head_dim = 128;
    return all;
}

/// The logits of all tokens, and the 32 tokens that follow, each the most likely one.
template <class Model>
nlohmann::json computed(ht::cpu& device, const Model& model, std::vector<std::int32_t> tokens) {
    ht::inference eval{device};
    nlohmann::json found{{"tokens", tokens}, {"greedy", nlohmann::json::array()}};
    for (int step = 0; step <= 32; ++step) {
        const auto logits = support::doubles(
            model
                .logits(eval,
                        ht::const_view<std::int32_t, 2>{tokens.data(), {1, static_cast<ht::extent>(tokens.size())}})
                .view());
        if (step == 0) found["logits"] = logits;
        const auto last = logits.end() - static_cast<std::ptrdiff_t>(logits.size() / tokens.size());
        tokens.push_back(static_cast<std::int32_t>(std::max_element(last, logits.end()) - last));
        if (step < 32) found["greedy"].push_back(tokens.back());
    }
    return found;
}

/// Gives a model activations of about 1, as those of golden/gguf_files are.
inline void fill(ht::store& s) {
    golden_model::generator().fill(s, [](const ht::store_entry& e) {
        return e.path == "embed.tokens" || e.path == "head.weight" ? 0.25f : 0.09f;
    });
}

/// Saves a model in folder/NAME, with its tokenizer; returns that path.
template <class Model>
std::filesystem::path save_with_tokenizer(const Model& model, const real_model& of,
                                          const std::filesystem::path& folder) {
    const std::filesystem::path like = folder / of.name,
                                from = std::filesystem::path(HALFTONE_TEST_DATA) / "chat_models" / of.tokenizer;
    ht::save_pretrained(model, like);
    for (const char* const file :
         {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"}) {
        if (std::filesystem::exists(from / file))
            std::filesystem::copy_file(from / file, like / file, std::filesystem::copy_options::overwrite_existing);
    }
    return like;
}

}  // namespace llama_cpp_models
