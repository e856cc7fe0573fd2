// SPDX-License-Identifier: MIT
/// \file
/// Llama 2 and 3, Mistral, Qwen2 and Qwen3 as Hugging Face's transformers stores them, into ht::nn::llama and back: a folder of
/// config.json and model.safetensors, or of several files with an index. Also from llama.cpp's GGUF files (llama_gguf.hpp).
///
///     ht::nn::llama<ht::amp_bf16> model{device, ht::read_llama_config("Llama-3.2-1B", {.context = 4096})};
///     ht::load_pretrained(model, "Llama-3.2-1B");
///     ht::save_pretrained(model, "tuned", {.like = "Llama-3.2-1B"});   // LlamaForCausalLM.from_pretrained("tuned")
///     ht::nn::qwen3<ht::amp_bf16> model{device, ht::read_llama_config("Qwen3-0.6B")};
///     ht::load_pretrained(model, "Qwen3-0.6B-Q8_0.gguf");
///
/// transformers' names and halftone's paths:
///
///     model.embed_tokens.weight                          embed.tokens
///     model.layers.0.input_layernorm.weight              h.0.attn.norm.gain
///     model.layers.0.self_attn.{q,k,v}_proj              h.0.attn.qkv              their rows, one behind the other
///     model.layers.0.self_attn.{q,k}_norm.weight         h.0.attn.{q,k}_norm.gain  of Qwen3
///     model.layers.0.self_attn.o_proj.weight             h.0.attn.proj.weight
///     model.layers.0.post_attention_layernorm.weight     h.0.mlp.norm.gain
///     model.layers.0.mlp.{gate,up}_proj.weight           h.0.mlp.gate_up.weight    the same way
///     model.layers.0.mlp.down_proj.weight                h.0.mlp.down.weight
///     model.norm.weight                                  norm.gain
///     lm_head.weight                                     head.weight               unless the head is tied
///
/// As transformers does it, files without the prefix "model." are read, too; a tied model's file may have "lm_head.weight", the table
/// again, or have it alone, as the table; "rotary_emb.inv_freq" of old files is not read.
#pragma once

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/io/pretrained/folder.hpp>
#include <halftone/io/pretrained/llama_gguf.hpp>
#include <halftone/nn/llama.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How much of a Llama's configuration a program takes over.
struct read_llama_options {
    /// The largest number of tokens in a sequence, at most max_position_embeddings, of which it takes the place; 0: that. The
    /// model has a table of so many positions.
    extent context = 0;
    /// At most so many tokens in a sequence: a model of fewer positions has those; 0: no limit.
    extent at_most = 0;
    /// The window that the program gives to every call of the model, as ht::sliding_window. A configuration with another one, of fewer
    /// tokens than the context, is refused.
    extent sliding_window = 0;
};

namespace detail {

/// The rotary angles: of rope_parameters (transformers 5) or, where a file has both, as transformers 5.24 does it, of rope_scaling; a
/// theta that is not in it stands beside it.
inline void read_llama_rope(const config_reader& config, nn::llama_config& c) {
    const nlohmann::json none = nlohmann::json::object();
    const bool scales = config.has("rope_scaling") && config["rope_scaling"] != none;
    const char* const key = scales ? "rope_scaling" : "rope_parameters";
    const nlohmann::json& rope = config.has(key) ? config[key] : none;
    if (!rope.is_object())
        fail<safetensors_error>(config.where(), ": ", key, " is ", shown(rope.dump()), "; expected an object");
    c.rope_theta = config.positive(rope, "rope_theta", config.positive("rope_theta", 10000));
    const auto type = rope.value("rope_type", rope.value("type", nlohmann::json("default")));
    const double turned = config.positive(rope, "partial_rotary_factor", config.positive("partial_rotary_factor", 1));
    if (turned != 1) fail<safetensors_error>(config.where(), ": partial_rotary_factor is ", turned, "; expected 1");
    if (type == "llama3") {
        c.rope_scaling =
            rotary_scaling{.factor = config.positive(rope, "factor", std::nullopt),
                           .low_frequency = config.positive(rope, "low_freq_factor", std::nullopt),
                           .high_frequency = config.positive(rope, "high_freq_factor", std::nullopt),
                           .original_context = config.positive(rope, "original_max_position_embeddings", std::nullopt)};
    } else if (type != "default") {
        fail<safetensors_error>(config.where(), ": ", key, "'s rope_type is ", shown(type.dump()),
                                "; expected \"default\" or \"llama3\"");
    }
    for (const auto& each : rope) {
        if (each.is_object())
            fail<safetensors_error>(config.where(), ": ", key,
                                    " has angles of its own for some layers; expected the same for all");
    }
}

/// The window of all layers, of those kinds that have one. Throws safetensors_error where layers differ.
inline extent read_llama_window(const config_reader& config, const std::string& model_type) {
    constexpr extent most = extent{1} << 40;
    const bool is_qwen = model_type.starts_with("qwen");
    if (is_qwen && config.flag("use_sliding_window", false))
        fail<safetensors_error>(
            config.where(),
            ": use_sliding_window is true; expected false, as layers of ht::nn::llama have one window or none");
    const bool has_window =
        !is_qwen && (config.has("sliding_window") || (model_type == "mistral" && !config.is_named("sliding_window")));
    if (config.has("layer_types")) {
        const char* const one = has_window ? "sliding_attention" : "full_attention";
        for (const auto& type : config["layer_types"]) {
            if (type != one)
                fail<safetensors_error>(config.where(), ": layer_types has ", shown(type.dump()), "; expected \"", one,
                                        "\" for all layers");
        }
    }
    return has_window ? config.size("sliding_window", most, 4096) : 0;
}

inline llama_folder read_llama_folder(const config_reader& config) {
    llama_folder all;
    const auto type = config.has("model_type") ? config["model_type"] : nlohmann::json();
    if (type != "llama" && type != "mistral" && type != "qwen2" && type != "qwen3")
        fail<safetensors_error>(config.where(), ": model_type is ", shown(type.dump()),
                                "; expected \"llama\", \"mistral\", \"qwen2\" or \"qwen3\"");
    all.model_type = type;
    for (const char* const key : {"quantization_config", "num_experts", "num_local_experts"}) config.refuse(key);
    constexpr extent most = extent{1} << 24;
    nn::llama_config& c = all.sizes;
    c.vocab_size = config.size("vocab_size", most);
    c.hidden_size = config.size("hidden_size", most);
    c.intermediate_size = config.size("intermediate_size", most);
    c.num_hidden_layers = static_cast<int>(config.size("num_hidden_layers", 1 << 16));
    c.num_attention_heads = config.size("num_attention_heads", most);
    // transformers' numbers for keys that are not there; null is each head's own, and all of the width divided among heads.
    const extent kv_heads = type == "llama" ? c.num_attention_heads : type == "mistral" ? 8 : 32;
    c.num_key_value_heads = config.is_named("num_key_value_heads")
                                ? config.size("num_key_value_heads", most, c.num_attention_heads)
                                : kv_heads;
    const extent divided = std::max<extent>(1, c.hidden_size / c.num_attention_heads);
    c.head_dim = type == "qwen3" && !config.is_named("head_dim") ? 128 : config.size("head_dim", most, divided);
    c.max_position_embeddings = config.size("max_position_embeddings", extent{1} << 30);
    c.rms_norm_eps = static_cast<float>(config.positive("rms_norm_eps", 1e-6));
    c.tie_word_embeddings = config.flag("tie_word_embeddings", false);
    c.attention_bias = type == "qwen2";  // of q, k and v; transformers' attention_bias would be of o_proj, too
    config.expect("hidden_act", "silu");
    config.expect("attention_bias", false, {nullptr});
    config.expect("mlp_bias", false, {nullptr});
    config.expect("attention_dropout", 0.0, {nullptr});
    read_llama_rope(config, c);
    all.sliding_window = read_llama_window(config, all.model_type);
    return all;
}

/// Whether a folder's weights have a head of other numbers than the table of tokens, which transformers keeps apart also where the
/// configuration ties the two. Weights that cannot be read are for load_pretrained to refuse.
inline bool has_head_apart(const std::filesystem::path& folder) {
    try {
        const tensor_files files(folder);
        const tensor_info* const head = files.find("lm_head.weight");
        const tensor_info* table = files.find("model.embed_tokens.weight");
        if (table == nullptr) table = files.find("embed_tokens.weight");
        return head != nullptr && table != nullptr && head->shape == table->shape && is_float(head->type) &&
               is_float(table->type) && !have_equal_values(files, *head, files, *table);
    } catch (const error&) {
        return false;
    }
}

/// Throws Error for a window of a configuration that a model of this context would overlook.
template <class Error = safetensors_error>
void check_llama_window(const std::string& where, const llama_folder& there, extent context, extent window) {
    if (there.sliding_window == 0 || there.sliding_window == window || context <= there.sliding_window) return;
    fail<Error>(where, ": sliding_window is ", there.sliding_window,
                ", which ht::nn::llama does not apply by itself: take a context of at most as many tokens, or give "
                "ht::sliding_window to every call and its size to the reader");
}

}  // namespace detail

/// The sizes of a Llama, a Mistral, a Qwen2 or a Qwen3 from its config.json, of transformers 5 or before, or from a GGUF file; `path` is
/// this file or the folder. A Qwen3 is an ht::nn::qwen3. A folder's model whose weights have a head of their own is not tied, whatever the
/// configuration says. Throws io_error; safetensors_error or gguf_error for another model, and, with the name of the key, for what
/// ht::nn::llama does not compute: rope types other than default and llama3, angles for a part of a head, other activations than
/// silu, attention_bias and mlp_bias, dropout of attention, sliding windows of some layers, experts, quantised weights; argument_error for
/// a context beyond max_position_embeddings.
inline nn::llama_config read_llama_config(const std::filesystem::path& path, const read_llama_options& options = {}) {
    const bool is_gguf = detail::is_gguf(path);
    detail::llama_folder there =
        is_gguf ? detail::read_llama_gguf(gguf_file(path)) : detail::read_llama_folder(detail::config_reader(path));
    nn::llama_config& c = there.sizes;
    const std::string where = is_gguf ? path.string() : detail::config_file_of(path).string();
    if (options.context < 0 || options.context > c.max_position_embeddings)
        fail<argument_error>("read_llama_config: a context of ", options.context, "; expected at most the ",
                             c.max_position_embeddings, " of ", where);
    if (!is_gguf && c.tie_word_embeddings && detail::is_folder(path) && detail::has_head_apart(path))
        c.tie_word_embeddings = false;
    if (options.context != 0) c.max_position_embeddings = options.context;
    if (options.at_most > 0) c.max_position_embeddings = std::min(c.max_position_embeddings, options.at_most);
    (is_gguf ? &detail::check_llama_window<gguf_error>
             : &detail::check_llama_window<safetensors_error>)(where, there, c.max_position_embeddings,
                                                               options.sliding_window);
    return c;
}

namespace detail {

/// Throws Error if a file or a folder, whose name `where` is, describes another model than this one.
template <class Error = safetensors_error>
void check_llama_sizes(const std::string& where, const llama_folder& there, const nn::llama_config& model,
                       bool normalises_heads, extent window) {
    const nn::llama_config& c = there.sizes;
    if (normalises_heads != (there.model_type == "qwen3"))
        fail<Error>(where, ": model_type is ", there.model_type, ", which is an ",
                    normalises_heads ? "ht::nn::llama, not an ht::nn::qwen3" : "ht::nn::qwen3, not an ht::nn::llama");
    const auto key_value_heads = model.num_key_value_heads != 0 ? model.num_key_value_heads : model.num_attention_heads;
    config_comparison compare;
    compare("vocab_size", c.vocab_size, model.vocab_size);
    compare("hidden_size", c.hidden_size, model.hidden_size);
    compare("intermediate_size", c.intermediate_size, model.intermediate_size);
    compare("num_hidden_layers", c.num_hidden_layers, model.num_hidden_layers);
    compare("num_attention_heads", c.num_attention_heads, model.num_attention_heads);
    compare("num_key_value_heads", c.num_key_value_heads, key_value_heads);
    compare("head_dim", c.head_dim,
            model.head_dim != 0 ? model.head_dim : model.hidden_size / model.num_attention_heads);
    compare("rms_norm_eps", c.rms_norm_eps, model.rms_norm_eps);
    compare("tie_word_embeddings", c.tie_word_embeddings, model.tie_word_embeddings);
    compare("rope_theta", c.rope_theta, model.rope_theta);
    compare("rope factor", c.rope_scaling.factor, model.rope_scaling.factor);
    if (c.rope_scaling.factor != 1) {
        compare("low_freq_factor", c.rope_scaling.low_frequency, model.rope_scaling.low_frequency);
        compare("high_freq_factor", c.rope_scaling.high_frequency, model.rope_scaling.high_frequency);
        compare("original_max_position_embeddings", c.rope_scaling.original_context,
                model.rope_scaling.original_context);
    }
    if (model.max_position_embeddings > c.max_position_embeddings)
        compare("max_position_embeddings", c.max_position_embeddings, model.max_position_embeddings);
    compare.check<Error>(where);
    check_llama_window<Error>(where, there, model.max_position_embeddings, window);
}

/// How files store a Llama.
class llama_file_names {
  public:
    /// The names in files that are written.
    explicit llama_file_names(const nn::llama_config& config) : config_(config) {}
    /// The names in these files: with the prefix "model." or without, the table under its own name or under the head's.
    llama_file_names(const nn::llama_config& config, const tensor_files& files) : config_(config) {
        if (files.find("embed_tokens.weight") != nullptr || files.find("norm.weight") != nullptr) prefix_.clear();
        if (config.tie_word_embeddings && files.find(table()) == nullptr && files.find(head) != nullptr) table_ = head;
    }

    static constexpr const char* head = "lm_head.weight";
    std::string table() const { return table_.empty() ? prefix_ + "embed_tokens.weight" : table_; }

    /// transformers' name of a parameter that is one tensor.
    std::string operator()(const std::string& path) const {
        if (path == "embed.tokens") return table();
        if (path == "norm.gain") return prefix_ + "norm.weight";
        if (path == "head.weight") return head;
        const auto [block, rest] = divided(path);
        static constexpr struct {
            std::string_view here, there;
        } layers[] = {
            {"attn.norm.gain", "input_layernorm.weight"},         {"attn.q_norm.gain", "self_attn.q_norm.weight"},
            {"attn.k_norm.gain", "self_attn.k_norm.weight"},      {"attn.proj.weight", "self_attn.o_proj.weight"},
            {"mlp.norm.gain", "post_attention_layernorm.weight"}, {"mlp.down.weight", "mlp.down_proj.weight"}};
        for (const auto& each : layers) {
            if (rest == each.here) return block + std::string(each.there);
        }
        fail<argument_error>("llama: ", path, " is no parameter of ht::nn::llama");
    }
    /// The tensors of a parameter that is several.
    std::vector<weight_piece> pieces(const std::string& path) const {
        const auto [block, rest] = divided(path);
        if (rest == "mlp.gate_up.weight") {
            return {{block + "mlp.gate_proj.weight", config_.intermediate_size},
                    {block + "mlp.up_proj.weight", config_.intermediate_size}};
        }
        if (!rest.starts_with("attn.qkv.")) return {};
        const std::string end = rest.substr(std::string("attn.qkv").size());  // .weight or .bias
        const extent heads = config_.num_attention_heads,
                     kv_heads = config_.num_key_value_heads != 0 ? config_.num_key_value_heads : heads,
                     each = config_.head_dim != 0 ? config_.head_dim : config_.hidden_size / heads;
        return {{block + "self_attn.q_proj" + end, heads * each},
                {block + "self_attn.k_proj" + end, kv_heads * each},
                {block + "self_attn.v_proj" + end, kv_heads * each}};
    }

  private:
    /// "model.layers.0." and "attn.proj.weight" of "h.0.attn.proj.weight".
    std::pair<std::string, std::string> divided(const std::string& path) const {
        if (!path.starts_with("h.")) return {prefix_, path};
        const std::size_t end = path.find('.', 2);
        return {prefix_ + "layers." + path.substr(2, end - 1), path.substr(end + 1)};
    }

    nn::llama_config config_;
    std::string prefix_ = "model.", table_{};
};

/// load_pretrained from a GGUF file.
inline void load_llama_gguf(store& parameters, const nn::llama_config& c, bool normalises_heads,
                            const std::filesystem::path& path, extent window) {
    const llama_gguf_tensors files(path);
    check_llama_sizes<gguf_error>(path.string(), files.description(), c, normalises_heads, window);
    const llama_file_names names(c);
    const auto pieces_of = [&names](const std::string& at) {
        std::vector<weight_piece> pieces = names.pieces(at);
        for (weight_piece& piece : pieces) piece.name = llama_gguf_name(piece.name);
        return pieces;
    };
    load_weights_of(parameters, files, path.string(),
                    {.names = [&names](const std::string& at) { return llama_gguf_name(names(at)); },
                     .ignored = [](const std::string& name) { return name == llama_gguf_factors; },
                     .pieces = pieces_of,
                     .one_at_a_time = true,
                     .which = weights_of::base});
}

}  // namespace detail

/// Reads the weights of a Llama, a Mistral, a Qwen2 or a Qwen3 into a model of its sizes: from a .safetensors file, an index, a
/// folder with either, or a GGUF file; the numbers of any floating-point type, or of GGUF's Q8_0, Q4_0 and MXFP4. One tensor at a time is
/// in host memory. A config.json beside the weights, or the keys of a GGUF file, are compared with the model; `window` is as in read_llama_options. Throws as load_weights does: names of what is missing,
/// unexpected or of another shape; for a tied head also if the file has another one, which was trained apart: a model without
/// tie_word_embeddings takes it, whatever the configuration says. If reading fails on the way the model has a part of the weights.
template <class P, nn::qk_norm Norm>
void load_pretrained(nn::llama<P, Norm>& model, const std::filesystem::path& path, extent window = 0) {
    const nn::llama_config& c = model.config();
    if (detail::is_gguf(path))
        return detail::load_llama_gguf(model.parameters(), c, Norm == nn::qk_norm::rms, path, window);
    const tensor_files files(path);
    const detail::llama_file_names names(c, files);
    const tensor_info *const head = files.find(names.head), *const table = files.find(names.table());
    if (const auto config = detail::config_beside(path); detail::is_there(config)) {
        detail::llama_folder there = detail::read_llama_folder(detail::config_reader(config));
        // A head of its own beside a configuration that ties it, which transformers keeps apart, too.
        if (!c.tie_word_embeddings && head != nullptr && table != nullptr) there.sizes.tie_word_embeddings = false;
        detail::check_llama_sizes(config.string(), there, c, Norm == nn::qk_norm::rms, window);
    }
    if (c.tie_word_embeddings && head != nullptr && table != nullptr && head != table)
        detail::check_tied_head(path.string(), files, *head, *table,
                                "load it into a model without tie_word_embeddings");
    const auto is_ignored = [&c, &names](const std::string& name) {
        return (c.tie_word_embeddings && name == names.head) || name.ends_with(".rotary_emb.inv_freq");
    };
    detail::load_weights_of(model.parameters(), files, path.string(),
                            {.names = names,
                             .ignored = is_ignored,
                             .pieces = [&names](const std::string& at) { return names.pieces(at); },
                             .one_at_a_time = true,
                             .which = weights_of::base});
}

namespace detail {

/// A configuration with nothing made up, which transformers reads as a Qwen3, a Qwen2, a Llama, or, where the heads do not divide the
/// width, which it refuses for a Llama, as a Mistral without a window.
inline nlohmann::json llama_config_of(const nn::llama_config& c, bool normalises_heads) {
    const extent heads = c.num_attention_heads;
    const bool is_divided = c.hidden_size % heads == 0;
    const char *const type = normalises_heads   ? "qwen3"
                             : c.attention_bias ? "qwen2"
                             : is_divided       ? "llama"
                                                : "mistral",
                      *const architecture = normalises_heads   ? "Qwen3ForCausalLM"
                                            : c.attention_bias ? "Qwen2ForCausalLM"
                                            : is_divided       ? "LlamaForCausalLM"
                                                               : "MistralForCausalLM";
    if (normalises_heads && c.attention_bias)
        fail<argument_error>(
            "save_pretrained: norms of queries and keys together with biases are no model of transformers");
    nlohmann::json rope = {{"rope_type", "default"}, {"rope_theta", c.rope_theta}};
    if (c.rope_scaling.factor != 1) {
        rope["rope_type"] = "llama3";
        rope["factor"] = c.rope_scaling.factor;
        rope["low_freq_factor"] = c.rope_scaling.low_frequency;
        rope["high_freq_factor"] = c.rope_scaling.high_frequency;
        const double original = c.rope_scaling.original_context;
        rope["original_max_position_embeddings"] = original;
        if (original < 9e15 && original == std::floor(original))
            rope["original_max_position_embeddings"] = static_cast<extent>(original);
    }
    nlohmann::json config = {{"architectures", nlohmann::json::array({architecture})},
                             {"model_type", type},
                             {"vocab_size", c.vocab_size},
                             {"hidden_size", c.hidden_size},
                             {"intermediate_size", c.intermediate_size},
                             {"num_hidden_layers", c.num_hidden_layers},
                             {"num_attention_heads", heads},
                             {"num_key_value_heads", c.num_key_value_heads != 0 ? c.num_key_value_heads : heads},
                             {"head_dim", c.head_dim != 0 ? c.head_dim : c.hidden_size / heads},
                             {"max_position_embeddings", c.max_position_embeddings},
                             {"rms_norm_eps", shortest(c.rms_norm_eps)},
                             {"rope_parameters", rope},
                             {"tie_word_embeddings", c.tie_word_embeddings},
                             {"hidden_act", "silu"},
                             {"bos_token_id", nullptr},
                             {"eos_token_id", nullptr},
                             {"pad_token_id", nullptr}};
    if (config["model_type"] == "mistral") config["sliding_window"] = nullptr;
    // What transformers 4 reads.
    config["rope_theta"] = c.rope_theta;
    if (c.rope_scaling.factor != 1) config["rope_scaling"] = rope;
    return config;
}

}  // namespace detail

/// Writes a model's weights and its config.json into a folder, which transformers loads; the configuration after the weights.
/// Without `like` it is that of a Llama (of a Mistral without a window if the heads do not divide the width), of a Qwen2 if the model has
/// biases, or of a Qwen3. Throws io_error, and safetensors_error if
/// `like` is of another model.
template <class P, nn::qk_norm Norm>
void save_pretrained(const nn::llama<P, Norm>& model, const std::filesystem::path& folder,
                     const save_pretrained_options& options = {}) {
    const nn::llama_config& c = model.config();
    constexpr bool normalises_heads = Norm == nn::qk_norm::rms;
    nlohmann::json config = detail::llama_config_of(c, normalises_heads);
    if (!options.like.empty()) {
        const auto file = detail::config_file_of(options.like);
        detail::llama_folder there = detail::read_llama_folder(detail::config_reader(file));
        const bool is_untied = there.sizes.tie_word_embeddings && !c.tie_word_embeddings;
        if (is_untied) there.sizes.tie_word_embeddings = false;
        detail::check_llama_sizes(file.string(), there, c, normalises_heads, there.sliding_window);
        config = detail::config_like(options.like);
        if (is_untied) config["tie_word_embeddings"] = false;
    }
    const detail::llama_file_names names(c);
    detail::save_folder(model.parameters(), folder, config, options,
                        {.names = names, .pieces = [names](const std::string& at) { return names.pieces(at); }});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
