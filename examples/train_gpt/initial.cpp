// SPDX-License-Identifier: MIT
#include <algorithm>

#include <nlohmann/json.hpp>

#include <halftone/io/pretrained.hpp>

#include "initial.hpp"

namespace ht = halftone;

namespace {

void take_gpt2(options& o, const std::filesystem::path& config, bool has_context) {
    const ht::nn::gpt_config c = ht::read_gpt2_config(config);
    o.vocabulary = c.vocabulary, o.positions = c.context;
    o.layers = c.layers, o.heads = c.heads, o.width = c.width;
    if (!has_context) o.context = std::min(o.context, o.positions);
    if (o.context > o.positions)
        refuse("--context is ", o.context, "; the model of --init has ", o.positions, " positions");
}

/// Without --context it is the usual one, or that of a model that has fewer positions.
ht::nn::llama_config read_llama(const std::filesystem::path& config, std::int64_t context, bool has_context) {
    if (!has_context) return ht::read_llama_config(config, {.at_most = context});
    try {
        return ht::read_llama_config(config, {.context = context});
    } catch (const ht::argument_error& e) {
        refuse("--context is ", context, ", and --init: ", e.what());
    }
}

void take_llama(options& o, const std::filesystem::path& config, bool has_context) {
    const ht::nn::llama_config c = read_llama(config, o.context, has_context);
    if (c.head_dim % 2 != 0) refuse("--init: heads of ", c.head_dim, " channels, an odd number");
    o.vocabulary = c.vocab_size, o.context = c.max_position_embeddings;
    o.layers = c.num_hidden_layers, o.width = c.hidden_size;
    o.heads = c.num_attention_heads, o.kv_heads = c.num_key_value_heads;
    o.llama = std::make_shared<const ht::nn::llama_config>(c);
}

}  // namespace

void take_initial_model(options& o, bool has_model, bool has_context) try {
    check_range("--context", o.context, 1, 1 << 20);
    const bool is_gguf = ht::detail::is_gguf(o.init);
    const std::filesystem::path config = is_gguf ? o.init : ht::detail::config_beside(o.init);
    const std::string type = ht::read_model_type(config);
    if (type == "bert")
        refuse("--init: a BERT does not predict the next token; expected a GPT-2, a Llama, a Mistral or a Qwen2");
    if (type == "qwen3")
        refuse(
            "--init: a Qwen3 is an ht::nn::qwen3, which train_gpt does not have; ht::load_pretrained reads it into "
            "one");
    const bool is_gpt2 = type == "gpt2";
    const char* const name = is_gpt2 ? "GPT-2" : type == "llama" ? "Llama" : type == "mistral" ? "Mistral" : "Qwen2";
    const char* const model = is_gpt2 ? "gpt" : "llama";
    if (has_model && o.model != model) refuse("--init: a ", name, " is a ", model, "; --model is ", o.model);
    o.model = model;
    (is_gpt2 ? take_gpt2 : take_llama)(o, config, has_context);
    if (!is_gguf) o.like = config;
} catch (const ht::io_error& e) {
    refuse("--init: ", e.what());
}

nlohmann::ordered_json further_sizes(const ht::nn::llama_config& c) {
    nlohmann::ordered_json scaling;
    if (const ht::rotary_scaling& s = c.rope_scaling; s.factor != 1) {
        scaling = {{"factor", s.factor},
                   {"low_freq_factor", s.low_frequency},
                   {"high_freq_factor", s.high_frequency},
                   {"original_max_position_embeddings", s.original_context}};
    }
    return {{"kv_heads", c.num_key_value_heads},
            {"head_dim", c.head_dim},
            {"intermediate_size", c.intermediate_size},
            {"rms_norm_eps", ht::detail::shortest(c.rms_norm_eps)},
            {"rope_theta", c.rope_theta},
            {"rope_scaling", scaling},
            {"tie_word_embeddings", c.tie_word_embeddings},
            {"attention_bias", c.attention_bias}};
}
