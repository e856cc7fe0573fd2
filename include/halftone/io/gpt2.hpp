// SPDX-License-Identifier: MIT
/// \file
/// GPT-2 as Hugging Face's transformers stores it, into ht::nn::gpt and back: a folder of config.json and
/// model.safetensors, or of several files with an index.
///
///     ht::nn::gpt<ht::amp_bf16> model{device, ht::read_gpt2_config("gpt2")};      // a folder, or its config.json
///     ht::load_gpt2(model, "gpt2");                                               // a folder, a .safetensors file or an index
///     ht::save_gpt2(model, "tuned");            // transformers: GPT2LMHeadModel.from_pretrained("tuned")
///
/// transformers' names and halftone's paths:
///
///     transformer.wte.weight                 embed.tokens           also the head's weight: it has no tensor of its own
///     transformer.wpe.weight                 embed.positions
///     transformer.h.0.ln_1.weight, .bias     h.0.attn.norm.gain, .bias
///     transformer.h.0.attn.c_attn            h.0.attn.qkv           (in, out) there, (out, in) here; so are the next three
///     transformer.h.0.attn.c_proj            h.0.attn.proj
///     transformer.h.0.ln_2.weight, .bias     h.0.mlp.norm.gain, .bias
///     transformer.h.0.mlp.c_fc               h.0.mlp.up
///     transformer.h.0.mlp.c_proj             h.0.mlp.down
///     transformer.ln_f.weight, .bias         norm.gain, .bias
///
/// Files without the prefix "transformer.", as GPT-2's first ones are, are read, too. A file's "attn.bias" and
/// "attn.masked_bias", which are constants, and its "lm_head.weight", which is the table of tokens, are ignored.
#pragma once

#include <string>

#include <halftone/io/weights.hpp>
#include <halftone/nn/gpt.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// transformers' name, without the prefix, of a parameter of nn::gpt.
inline std::string gpt2_name(const std::string& path) {
    static constexpr struct {
        std::string_view here, there;
    } layers[] = {{"embed.tokens", "wte.weight"}, {"embed.positions", "wpe.weight"}, {"attn.norm.", "ln_1."},
                  {"attn.qkv.", "attn.c_attn."},  {"attn.proj.", "attn.c_proj."},    {"mlp.norm.", "ln_2."},
                  {"mlp.up.", "mlp.c_fc."},       {"mlp.down.", "mlp.c_proj."},      {"norm.", "ln_f."}};
    std::string block, rest = path;
    if (path.starts_with("h.")) {
        const std::size_t end = path.find('.', 2);
        block = path.substr(0, end + 1), rest = path.substr(end + 1);
    }
    for (const auto& each : layers) {
        if (!rest.starts_with(each.here)) continue;
        std::string last = rest.substr(each.here.size());
        if (last == "gain") last = "weight";
        return block + std::string(each.there) + last;
    }
    fail<argument_error>("gpt2: ", path, " is no parameter of ht::nn::gpt");
}
inline bool is_transposed_in_gpt2(const std::string& path) {
    return path.starts_with("h.") && path.ends_with(".weight");
}
inline bool is_no_weight_of_gpt2(const std::string& name) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name == "lm_head.weight";
}

inline std::filesystem::path config_file_of(const std::filesystem::path& path) {
    return std::filesystem::is_directory(path) ? path / "config.json" : path;
}
/// The integer of a configuration, from 1 to `most`.
inline extent config_size(const std::string& where, const nlohmann::json& config, const char* field, extent most) {
    if (!config.contains(field) || !config[field].is_number_integer())
        fail<safetensors_error>(where, ": ", field, " is missing, or no integer");
    const auto value = config[field].get<extent>();
    if (value < 1 || value > most) fail<safetensors_error>(where, ": ", field, " is ", value, "; expected 1 to ", most);
    return value;
}

}  // namespace detail

/// The sizes of a GPT-2 from its config.json; `path` is this file or its folder. Throws io_error, and safetensors_error for
/// the configuration of another model, and for what ht::nn::gpt does not compute: another activation than gelu_new,
/// another width of the perceptron than four times the model's, another epsilon than 1e-5, an untied head, scores that
/// are not scaled by the square root of the head's size.
inline nn::gpt_config read_gpt2_config(const std::filesystem::path& path) {
    const std::filesystem::path file = detail::config_file_of(path);
    const std::string where = file.string();
    const auto config = detail::parse_json<safetensors_error>(where, detail::read_small_file(file, most_header_bytes));
    if (!config.is_object() || config.value("model_type", nlohmann::json()) != "gpt2")
        fail<safetensors_error>(where, ": model_type is not \"gpt2\"");
    const auto expect = [&](const char* field, const nlohmann::json& expected, const nlohmann::json& also = nullptr) {
        if (!config.contains(field) || config[field] == expected || config[field] == also) return;
        fail<safetensors_error>(where, ": ", field, " is ", detail::shown(config[field].dump()), "; expected ", expected.dump());
    };
    constexpr extent most = extent{1} << 24;
    nn::gpt_config c;
    c.vocabulary = detail::config_size(where, config, "vocab_size", most);
    c.context = detail::config_size(where, config, "n_positions", most);
    c.layers = static_cast<int>(detail::config_size(where, config, "n_layer", 1 << 16));
    c.heads = detail::config_size(where, config, "n_head", most);
    c.width = detail::config_size(where, config, "n_embd", most);
    expect("activation_function", "gelu_new", "gelu_pytorch_tanh");
    expect("n_inner", 4 * c.width);  // also null
    expect("layer_norm_epsilon", 1e-5);
    expect("tie_word_embeddings", true);
    expect("scale_attn_weights", true);
    expect("scale_attn_by_inverse_layer_idx", false);
    return c;
}

/// Reads the weights of a GPT-2 into a model of its sizes: from a .safetensors file, an index, or a folder with either. All
/// or nothing, as load_weights, which names what is missing, unexpected or of another shape.
template <class P>
void load_gpt2(nn::gpt<P>& model, const std::filesystem::path& path) {
    const tensor_files files(path);
    const std::string prefix = files.find("wte.weight") == nullptr ? "transformer." : "";
    detail::load_weights_of(model.parameters(), files, path.string(),
                            {.names = [prefix](const std::string& at) { return prefix + detail::gpt2_name(at); },
                             .transposed = &detail::is_transposed_in_gpt2,
                             .ignored = &detail::is_no_weight_of_gpt2});
}

/// Writes a model's weights and its config.json into a folder, which transformers loads. `type`, if given, is the type of
/// all weights. The weights are written before the configuration. Throws io_error.
template <class P>
void save_gpt2(const nn::gpt<P>& model, const std::filesystem::path& folder, std::optional<dtype> type = std::nullopt) {
    const nn::gpt_config& c = model.config();
    save_weights(model, folder,
                 {.type = type,
                  .names = [](const std::string& at) { return "transformer." + detail::gpt2_name(at); },
                  .transposed = &detail::is_transposed_in_gpt2});
    const nlohmann::json config = {{"architectures", {"GPT2LMHeadModel"}},
                                   {"model_type", "gpt2"},
                                   {"vocab_size", c.vocabulary},
                                   {"n_positions", c.context},
                                   {"n_ctx", c.context},
                                   {"n_embd", c.width},
                                   {"n_layer", c.layers},
                                   {"n_head", c.heads},
                                   {"n_inner", nullptr},
                                   {"bos_token_id", c.vocabulary - 1},
                                   {"eos_token_id", c.vocabulary - 1},
                                   {"activation_function", "gelu_new"},
                                   {"layer_norm_epsilon", 1e-5},
                                   {"embd_pdrop", c.dropout},
                                   {"resid_pdrop", c.dropout},
                                   {"attn_pdrop", 0.0},
                                   {"scale_attn_weights", true},
                                   {"tie_word_embeddings", true}};
    detail::durable_file file(folder / "config.json");
    const std::string text = config.dump(2) + '\n';
    file.write(text.data(), text.size());
    file.commit();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
