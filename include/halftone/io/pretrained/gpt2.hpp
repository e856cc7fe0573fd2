// SPDX-License-Identifier: MIT
/// \file
/// GPT-2 as Hugging Face's transformers stores it, into ht::nn::gpt and back: a folder of config.json and
/// model.safetensors, or of several files with an index.
///
///     ht::nn::gpt<ht::amp_bf16> model{device, ht::read_gpt2_config("gpt2")};      // a folder, or its config.json
///     ht::load_pretrained(model, "gpt2");                                         // a folder, a .safetensors file or an index
///     ht::save_pretrained(model, "tuned", {.like = "gpt2"});      // transformers: GPT2LMHeadModel.from_pretrained("tuned")
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
/// Files without the prefix "transformer.", as GPT-2's first ones are, are read, too. Old files have "attn.bias", the causal
/// mask, and "attn.masked_bias", what stands for a masked score, in each block, and "lm_head.weight", the table of tokens
/// again, or instead of "wte.weight". They are compared with what they should be: transformers saves a head that was trained
/// apart beside "tie_word_embeddings": true, too, and reads it apart.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/io/pretrained/folder.hpp>
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
/// The number N of "PREFIXh.N.attn.END"; -1 for another name.
inline int gpt2_block_of(std::string_view name, std::string_view prefix, std::string_view end) {
    const std::string begin = std::string(prefix) + "h.";
    if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size()) return -1;
    const std::string number(name.substr(begin.size(), name.size() - begin.size() - end.size()));
    if (number.size() > 5 || number.find_first_not_of("0123456789") != std::string::npos) return -1;
    return std::stoi(number);
}

/// Whether a tensor (1, 1, n, n) of any type is zero above its diagonal, and only there.
inline bool is_causal_mask(const tensor_files& files, const tensor_info& t) {
    if (t.shape.size() != 4 || t.shape[0] != 1 || t.shape[1] != 1 || t.shape[2] != t.shape[3] || t.bytes == 0)
        return false;
    const std::vector<std::byte> bytes = bytes_of_tensor(files, t);
    const auto side = static_cast<std::size_t>(t.shape[2]);
    const std::size_t each = bytes.size() / (side * side);
    for (std::size_t i = 0; i < side * side; ++i) {
        const auto* const from = bytes.data() + i * each;
        const bool is_zero = std::all_of(from, from + each, [](std::byte b) { return b == std::byte{0}; });
        if (is_zero != (i % side > i / side)) return false;
    }
    return true;
}
/// Whether a tensor is one number that makes a probability 0 in any type: the usual one is -10000, -9984 in bfloat16.
inline bool is_masked_score(const tensor_files& files, const tensor_info& t) {
    if (!is_float(t.type) || t.count() != 1) return false;
    float value = 0;
    convert(t.type, bytes_of_tensor(files, t).data(), dtype::f32, reinterpret_cast<std::byte*>(&value), 1);
    return value <= -1000.0f;
}

/// How a file stores a GPT-2.
struct gpt2_file_names {
    std::string prefix;  ///< "transformer." or nothing
    std::string table;   ///< the name of the table of tokens

    explicit gpt2_file_names(const tensor_files& files) {
        prefix = files.find("wte.weight") != nullptr || files.find("wpe.weight") != nullptr ? "" : "transformer.";
        const bool has_head_alone =
            files.find(prefix + "wte.weight") == nullptr && files.find("lm_head.weight") != nullptr;
        table = has_head_alone ? "lm_head.weight" : prefix + "wte.weight";
    }
    std::string operator()(const std::string& path) const {
        return path == "embed.tokens" ? table : prefix + gpt2_name(path);
    }
    /// Whether a tensor holds what nn::gpt has without it. Throws safetensors_error if it holds something else.
    bool is_implied(const std::string& where, const tensor_files& files, int layers, const tensor_info& t) const {
        const auto has_block = [&](const char* end) {
            const int block = gpt2_block_of(t.name, prefix, end);
            return block >= 0 && block < layers;
        };
        const char* const otherwise = ", so this model's attention is another than that of ht::nn::gpt";
        if (has_block(".attn.bias")) {
            if (!is_causal_mask(files, t))
                fail<safetensors_error>(where, ": ", t.name, " is no causal mask", otherwise);
            return true;
        }
        if (has_block(".attn.masked_bias")) {
            if (!is_masked_score(files, t))
                fail<safetensors_error>(where, ": ", t.name, " is no number of -1000 or less", otherwise);
            return true;
        }
        const tensor_info* const tokens = files.find(table);
        if (t.name != "lm_head.weight" || tokens == nullptr) return false;
        check_tied_head(where, files, t, *tokens, "that of ht::nn::gpt is the table of tokens");
        return true;
    }
};

inline nn::gpt_config gpt2_config_in(const config_reader& config) {
    if (!config.has("model_type") || config["model_type"] != "gpt2")
        fail<safetensors_error>(config.where(), ": model_type is not \"gpt2\"");
    constexpr extent most = extent{1} << 24;
    nn::gpt_config c;
    c.vocabulary = config.size("vocab_size", most);
    c.context = config.size("n_positions", most);
    c.layers = static_cast<int>(config.size("n_layer", 1 << 16));
    c.heads = config.size("n_head", most);
    c.width = config.size("n_embd", most);
    // transformers' names for one formula: in float64 they differ by 9.2e-13 at most, the last digits of sqrt(2 / pi).
    config.expect("activation_function", "gelu_new",
                  {"gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh", "gelu_accurate"});
    config.expect("n_inner", 4 * c.width, {nullptr});
    config.expect("layer_norm_epsilon", 1e-5);
    config.expect("tie_word_embeddings", true);
    config.expect("scale_attn_weights", true);
    config.expect("scale_attn_by_inverse_layer_idx", false);
    config.expect("add_cross_attention", false);
    return c;
}

}  // namespace detail

/// The sizes of a GPT-2 from its config.json; `path` is this file or its folder. Throws io_error, and safetensors_error for
/// the configuration of another model, and for what ht::nn::gpt does not compute: another activation than gelu_new, which
/// transformers also calls gelu_fast, gelu_accurate, gelu_pytorch_tanh and gelu_python_tanh, another width of the perceptron
/// than four times the model's, another epsilon than 1e-5, an untied head, cross-attention, scores that are not scaled by the
/// square root of the head's size.
inline nn::gpt_config read_gpt2_config(const std::filesystem::path& path) {
    return detail::gpt2_config_in(detail::config_reader(path));
}

namespace detail {

/// Throws safetensors_error if a config.json is of a model that nn::gpt does not compute, or of one of other sizes.
inline void check_gpt2_config(const std::filesystem::path& file, const nn::gpt_config& model) {
    const nn::gpt_config c = read_gpt2_config(file);
    config_comparison compare;
    compare("vocab_size", c.vocabulary, model.vocabulary);
    compare("n_positions", c.context, model.context);
    compare("n_layer", c.layers, model.layers);
    compare("n_head", c.heads, model.heads);
    compare("n_embd", c.width, model.width);
    compare.check(file.string());
}

}  // namespace detail

/// Reads the weights of a GPT-2 into a model of its sizes: from a .safetensors file, an index, or a folder with either. All
/// or nothing, as load_weights, which names what is missing, unexpected or of another shape. A config.json beside the
/// weights is compared with the model: numbers of heads, for one, have no shape. Throws safetensors_error, too, for a head
/// with other values than the table of tokens, and for a mask that is not causal.
template <class P>
void load_pretrained(nn::gpt<P>& model, const std::filesystem::path& path) {
    const tensor_files files(path);
    const std::filesystem::path config = detail::config_beside(path);
    if (detail::is_there(config)) detail::check_gpt2_config(config, model.config());
    const detail::gpt2_file_names names(files);
    std::set<std::string> implied;
    for (const tensor_info& t : files.tensors()) {
        if (t.name != names.table && names.is_implied(path.string(), files, model.config().layers, t))
            implied.insert(t.name);
    }
    detail::load_weights_of(model.parameters(), files, path.string(),
                            {.names = names,
                             .transposed = &detail::is_transposed_in_gpt2,
                             .ignored = [&implied](const std::string& name) { return implied.count(name) != 0; },
                             .which = weights_of::base});
}

namespace detail {

/// A configuration with nothing made up. Keys whose value is null are needed: without them transformers has GPT-2's ids.
inline nlohmann::json gpt2_config_of(const nn::gpt_config& c) {
    return {{"model_type", "gpt2"},       {"vocab_size", c.vocabulary}, {"n_positions", c.context},
            {"n_ctx", c.context},         {"n_embd", c.width},          {"n_layer", c.layers},
            {"n_head", c.heads},          {"n_inner", nullptr},         {"bos_token_id", nullptr},
            {"eos_token_id", nullptr},    {"pad_token_id", nullptr},    {"activation_function", "gelu_new"},
            {"layer_norm_epsilon", 1e-5}, {"embd_pdrop", 0.0},          {"resid_pdrop", 0.0},
            {"attn_pdrop", 0.0},          {"scale_attn_weights", true}, {"tie_word_embeddings", true}};
}
}  // namespace detail

/// Writes a model's weights and its config.json into a folder, which transformers loads; the configuration after the
/// weights. Dropouts of the model replace those of `like` unless they are 0. Throws io_error, and safetensors_error if
/// `like` is of another model.
template <class P>
void save_pretrained(const nn::gpt<P>& model, const std::filesystem::path& folder,
                     const save_pretrained_options& options = {}) {
    const nn::gpt_config& c = model.config();
    nlohmann::json config = detail::gpt2_config_of(c);
    if (!options.like.empty()) {
        detail::check_gpt2_config(detail::config_file_of(options.like), c);
        config = detail::config_like(options.like);
    }
    config["architectures"] = nlohmann::json::array({"GPT2LMHeadModel"});
    if (c.dropout != 0) config["embd_pdrop"] = config["resid_pdrop"] = c.dropout;
    detail::save_folder(model.parameters(), folder, config, options,
                        {.names = [](const std::string& at) { return "transformer." + detail::gpt2_name(at); },
                         .transposed = &detail::is_transposed_in_gpt2});
}
/// Saves the model as transformers' GPT-2, with all weights of this type.
template <class P>
void save_pretrained(const nn::gpt<P>& model, const std::filesystem::path& folder, dtype type) {
    save_pretrained(model, folder, save_pretrained_options{.type = type});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
