// SPDX-License-Identifier: MIT
/// \file
/// Llama, Qwen2 and Qwen3 in GGUF files, as llama.cpp's converter writes them: the keys of the configuration, and the tensors as
/// transformers has them. (A Mistral has the architecture llama there.)
///
///     const detail::llama_folder sizes = detail::read_llama_gguf(ht::gguf_file("model.gguf"));
///
/// GGUF's names and transformers':
///
///     token_embd.weight, output_norm.weight, output.weight     model.embed_tokens, model.norm, lm_head
///     blk.0.attn_norm, .ffn_norm                               model.layers.0.input_layernorm, .post_attention_layernorm
///     blk.0.attn_q, attn_k, attn_v, attn_output                model.layers.0.self_attn.q_proj, k_proj, v_proj, o_proj
///     blk.0.attn_q_norm, attn_k_norm                           model.layers.0.self_attn.q_norm, k_norm
///     blk.0.ffn_gate, ffn_up, ffn_down                         model.layers.0.mlp.gate_proj, up_proj, down_proj
///
/// Of the architecture llama the rows of attn_q and attn_k stand in another order: rows i and i + n / 2 of a head of n are neighbours, 2 i
/// and 2 i + 1. Llama 3's scaling of the angles is a tensor, rope_freqs.weight, by which frequencies are divided.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <halftone/io/gguf.hpp>
#include <halftone/io/pretrained/folder.hpp>
#include <halftone/nn/llama.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What a config.json or a GGUF file says of a Llama.
struct llama_folder {
    nn::llama_config sizes;
    std::string model_type;     ///< llama, mistral, qwen2 or qwen3
    extent sliding_window = 0;  ///< 0: none
};

inline constexpr const char* llama_gguf_factors = "rope_freqs.weight";

/// GGUF's name of one of transformers'. Throws argument_error for a name that no Llama has.
inline std::string llama_gguf_name(const std::string& name) {
    static constexpr struct {
        std::string_view there, here;
    } parts[] = {{"model.embed_tokens", "token_embd"},
                 {"model.norm", "output_norm"},
                 {"lm_head", "output"},
                 {"input_layernorm", "attn_norm"},
                 {"post_attention_layernorm", "ffn_norm"},
                 {"self_attn.q_proj", "attn_q"},
                 {"self_attn.k_proj", "attn_k"},
                 {"self_attn.v_proj", "attn_v"},
                 {"self_attn.o_proj", "attn_output"},
                 {"self_attn.q_norm", "attn_q_norm"},
                 {"self_attn.k_norm", "attn_k_norm"},
                 {"mlp.gate_proj", "ffn_gate"},
                 {"mlp.up_proj", "ffn_up"},
                 {"mlp.down_proj", "ffn_down"}};
    constexpr std::string_view layers = "model.layers.";
    const std::size_t end = name.rfind('.');
    std::string block, rest = name.substr(0, end);
    if (rest.starts_with(layers)) {
        const std::size_t number = rest.find('.', layers.size());
        block = "blk." + rest.substr(layers.size(), number + 1 - layers.size()), rest = rest.substr(number + 1);
    }
    for (const auto& each : parts) {
        if (rest == each.there) return block + std::string(each.here) + name.substr(end);
    }
    fail<argument_error>("llama: ", name, " has no name in GGUF files");
}

/// Llama 3's scaling of which these are the factors of the n frequencies of a head, from the largest on. They say how long the original
/// context was, and by how much the lowest frequencies are divided, where its low and high frequencies are 1 and 4, as they are in all of
/// Llama 3's models; the factors are then compared with those that the scaling gives. Throws gguf_error if they are others.
inline rotary_scaling scaling_of_factors(const std::string& where, const std::vector<float>& factors, double theta) {
    constexpr double two_pi = 6.283185307179586476925;
    const auto n = static_cast<extent>(factors.size());
    rotary_angles angles{.theta = theta,
                         .scaling = {.factor = factors.empty() ? 1 : static_cast<double>(factors.back())}};
    rotary_scaling& s = angles.scaling;
    if (std::all_of(factors.begin(), factors.end(), [](float f) { return f == 1; })) return {};
    if (!(s.factor > 0) || !is_finite(s.factor))
        fail<gguf_error>(where, ": ", llama_gguf_factors, " has ", s.factor, "; expected positive numbers");
    // A factor that is neither 1 nor the last one tells the context. Without one any will do in which the last frequency that is kept
    // has as many waves as that takes, and the first one that is divided as few: Llama 3's, or the least, or the most.
    double least = 1, most = std::numeric_limits<double>::infinity();
    for (extent i = 0; i < n; ++i) {
        const auto f = static_cast<double>(factors[static_cast<std::size_t>(i)]);
        const double wave = two_pi / rotary_frequency({.theta = theta}, i, n);
        if (f == 1) {
            least = std::max(least, std::ceil(s.high_frequency * wave));
        } else if (f == s.factor) {
            most = std::min(most, std::floor(s.low_frequency * wave));
        } else if (f > 0) {
            const double share = (1 / f - 1 / s.factor) / (1 - 1 / s.factor);
            least = most = std::round((s.low_frequency + share * (s.high_frequency - s.low_frequency)) * wave);
            break;
        }
    }
    s.original_context = std::max(least, std::min(most, s.original_context));
    for (extent i = 0; i < n; ++i) {
        const double expected = rotary_frequency({.theta = theta}, i, n) / rotary_frequency(angles, i, n);
        // The converter computes in float, 3e-7 off at most for heads of 16 to 128; one token more of 8192 changes factors by 1e-4.
        if (!(std::abs(static_cast<double>(factors[static_cast<std::size_t>(i)]) - expected) <= 2e-6 * expected))
            fail<gguf_error>(where, ": ", llama_gguf_factors, " has ", factors[static_cast<std::size_t>(i)],
                             " for frequency ", i, "; expected the factors of Llama 3's scaling, ", expected, " here");
    }
    return s;
}

/// Throws gguf_error for a key of this architecture that halftone does not know, or that has a value that it does not compute.
inline void check_llama_gguf_keys(const gguf_metadata& keys, const std::string& architecture) {
    static constexpr const char* known[] = {"block_count",
                                            "context_length",
                                            "embedding_length",
                                            "feed_forward_length",
                                            "vocab_size",
                                            "attention.head_count",
                                            "attention.head_count_kv",
                                            "attention.key_length",
                                            "attention.value_length",
                                            "attention.layer_norm_rms_epsilon",
                                            "attention.sliding_window",
                                            "rope.dimension_count",
                                            "rope.freq_base",
                                            "rope.scaling.type",
                                            "rope.scaling.factor",
                                            "rope.scale_linear",
                                            "rope.scaling.original_context_length",
                                            "rope.scaling.finetuned"};
    static constexpr struct {
        const char* key;
        double value;
    } harmless[] = {{"expert_count", 0}, {"expert_used_count", 0}, {"rope.scaling.attn_factor", 1}};
    const std::string begin = architecture + '.';
    for (const auto& [key, value] : keys.values()) {
        if (!key.starts_with(begin)) continue;
        const std::string rest = key.substr(begin.size());
        bool is_known = std::find(std::begin(known), std::end(known), rest) != std::end(known);
        for (const auto& each : harmless) is_known = is_known || (rest == each.key && keys.number(key) == each.value);
        if (!is_known && rest == "attention.causal") is_known = keys.flag(key);
        if (!is_known)
            fail<gguf_error>(keys.where(), ": ", shown(key), " is there; halftone does not compute such a model");
    }
}

/// The angles. llama.cpp takes a scaling without a type for a linear one.
inline void read_llama_gguf_rope(const gguf_file& file, const std::string& begin, nn::llama_config& c) {
    const gguf_metadata& keys = file.metadata();
    const double theta = keys.number(begin + "rope.freq_base", 10000);
    if (!(theta > 0) || theta > number_traits<float>::max)
        fail<gguf_error>(keys.where(), ": ", begin, "rope.freq_base is ", theta, "; expected a number above 0");
    c.rope_theta = shortest(static_cast<float>(theta));
    const std::string type = keys.text(begin + "rope.scaling.type", "linear");
    const double factor = keys.number(begin + "rope.scaling.factor", keys.number(begin + "rope.scale_linear", 0));
    if (type != "none" && (type != "linear" || (factor != 0 && factor != 1)))
        fail<gguf_error>(keys.where(), ": ", begin, "rope.scaling.type is \"", shown(type), "\", with a factor of ",
                         factor, "; expected \"none\"");
    if (const auto turned = keys.integer(begin + "rope.dimension_count", c.head_dim); turned != c.head_dim)
        fail<gguf_error>(keys.where(), ": ", begin, "rope.dimension_count is ", turned, "; expected ", c.head_dim);
    const gguf_tensor* const factors = file.find(llama_gguf_factors);
    if (factors == nullptr) return;
    if (begin != "llama." || factors->type != ggml_type::f32 || factors->shape != std::vector<extent>{c.head_dim / 2})
        fail<gguf_error>(keys.where(), ": ", factors->name, " is ", name(factors->type), ' ',
                         shape_text(factors->shape), "; expected F32 ", shape_text({c.head_dim / 2}),
                         ", of the architecture llama");
    c.rope_scaling = scaling_of_factors(keys.where(), file.read<float>(factors->name), c.rope_theta);
}

/// The sizes of a Llama, Qwen2 or Qwen3 from a GGUF file. Throws gguf_error for another architecture, and, by the name of the key, for what
/// ht::nn::llama does not compute.
inline llama_folder read_llama_gguf(const gguf_file& file) {
    const gguf_metadata& keys = file.metadata();
    llama_folder all;
    all.model_type = keys.text("general.architecture");
    if (all.model_type != "llama" && all.model_type != "qwen2" && all.model_type != "qwen3")
        fail<gguf_error>(keys.where(), ": general.architecture is \"", shown(all.model_type),
                         "\"; expected \"llama\", \"qwen2\" or \"qwen3\"");
    if (const auto type = keys.text("general.type", "model"); type != "model")
        fail<gguf_error>(keys.where(), ": general.type is \"", shown(type), "\"; expected \"model\"");
    if (const auto parts = keys.integer("split.count", 1); parts > 1)
        fail<gguf_error>(keys.where(), ": split.count is ", parts, "; expected a model in one file");
    const std::string begin = all.model_type + '.';
    check_llama_gguf_keys(keys, all.model_type);
    constexpr extent most = extent{1} << 24;
    const auto size = [&](const char* key, extent at_most, std::optional<extent> otherwise = std::nullopt) {
        const extent value = keys.integer(begin + key, otherwise);
        if (value < 1 || value > at_most)
            fail<gguf_error>(keys.where(), ": ", begin, key, " is ", value, "; expected 1 to ", at_most);
        return value;
    };
    nn::llama_config& c = all.sizes;
    c.hidden_size = size("embedding_length", most);
    c.intermediate_size = size("feed_forward_length", most);
    c.num_hidden_layers = static_cast<int>(size("block_count", 1 << 16));
    c.num_attention_heads = size("attention.head_count", most);
    c.num_key_value_heads = size("attention.head_count_kv", most, c.num_attention_heads);
    c.head_dim = size("attention.key_length", most, std::max<extent>(1, c.hidden_size / c.num_attention_heads));
    if (const extent of_values = size("attention.value_length", most, c.head_dim); of_values != c.head_dim)
        fail<gguf_error>(keys.where(), ": ", begin, "attention.value_length is ", of_values, "; expected ", c.head_dim);
    if (c.head_dim % 2 != 0)
        fail<gguf_error>(keys.where(), ": ", begin, "attention.key_length is ", c.head_dim,
                         "; expected an even number");
    c.max_position_embeddings = size("context_length", extent{1} << 30);
    const double epsilon = keys.number(begin + "attention.layer_norm_rms_epsilon");
    if (!(epsilon > 0) || epsilon > number_traits<float>::max)
        fail<gguf_error>(keys.where(), ": ", begin, "attention.layer_norm_rms_epsilon is ", epsilon,
                         "; expected a number above 0");
    c.rms_norm_eps = static_cast<float>(epsilon);
    const gguf_tensor* const table = file.find("token_embd.weight");
    if (table == nullptr) fail<gguf_error>(keys.where(), ": there is no 'token_embd.weight'");
    if (table->shape.size() != 2) fail<gguf_error>(keys.where(), ": 'token_embd.weight' is no matrix");
    c.vocab_size = table->shape[0];
    if (const extent stated = size("vocab_size", most, c.vocab_size); stated != c.vocab_size)
        fail<gguf_error>(keys.where(), ": ", begin, "vocab_size is ", stated, ", token_embd.weight is ",
                         shape_text(table->shape));
    c.tie_word_embeddings = file.find("output.weight") == nullptr;
    c.attention_bias = all.model_type == "qwen2";
    read_llama_gguf_rope(file, begin, c);
    if (keys.has(begin + "attention.sliding_window"))
        all.sliding_window = size("attention.sliding_window", extent{1} << 40);
    return all;
}

/// The tensors of a Llama in a GGUF file, their numbers as F32, F16 or BF16 and in transformers' order; as tensor_files has those of
/// safetensors.
class llama_gguf_tensors {
  public:
    using error = gguf_error;

    /// Throws io_error, and gguf_error for a model that is not computed, and for tensors of types that halftone does not read.
    explicit llama_gguf_tensors(const std::filesystem::path& path) : file_(path), description_(read_llama_gguf(file_)) {
        name_list others;
        for (const gguf_tensor& t : file_.tensors()) {
            if (!is_converted(t.type)) {
                others.add(t.name + ", " + halftone::name(t.type));
                continue;
            }
            tensors_.push_back(
                {t.name, converted_type(t.type), t.shape, 0, t.count() * size_of(converted_type(t.type))});
        }
        if (others.count != 0)
            fail<gguf_error>(path.string(), ": has tensors of types that halftone does not read: ", others.all(),
                             "; expected F32, F16, BF16, Q8_0, Q4_0 or MXFP4");
        for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
    }

    const llama_folder& description() const { return description_; }
    const std::vector<tensor_info>& tensors() const { return tensors_; }
    const tensor_info* find(const std::string& name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &tensors_[found->second];
    }
    /// Copies a tensor's numbers, in transformers' order. Throws io_error and gguf_error.
    void read(const tensor_info& t, void* to) const { read(t, 0, static_cast<std::size_t>(t.bytes), to); }
    /// Copies so many bytes of them, from byte `first` on.
    void read(const tensor_info& t, std::uint64_t first, std::size_t bytes, void* to) const {
        const gguf_tensor& there = *file_.find(t.name);
        const std::size_t each = size_of(t.type), begin = static_cast<std::size_t>(first) / each, count = bytes / each;
        const extent heads = description_.model_type != "llama" ? 0 : heads_of(t.name);
        const std::size_t rows = t.shape.empty() ? 0 : static_cast<std::size_t>(t.shape[0]);
        if (heads == 0 || rows == 0 || rows % static_cast<std::size_t>(2 * heads) != 0)
            return read_numbers(there, begin, count, to);
        const std::size_t width = t.count() / rows, of_head = rows / static_cast<std::size_t>(heads);
        auto* place = static_cast<std::byte*>(to);
        for (std::size_t at = begin, end = begin + count; at < end;) {
            // Rows i and i + half of a head are 2 i and 2 i + 1 in the file.
            const std::size_t row = at / width, i = row % of_head, half = of_head / 2;
            const std::size_t stored = row - i + i % half * 2 + i / half, some = std::min(end, (row + 1) * width) - at;
            read_numbers(there, stored * width + at % width, some, place);
            at += some, place += some * each;
        }
    }
    /// No keys that loads look for.
    const std::map<std::string, std::string>& metadata() const { return none_; }

  private:
    /// Copies numbers of which the first and the last may be in the middle of a block.
    void read_numbers(const gguf_tensor& t, std::size_t first, std::size_t count, void* to) const {
        const auto block = static_cast<std::size_t>(entry_of(t.type).elements);
        const std::size_t begin = first / block * block, end = detail::round_up(first + count, block);
        if (begin == first && end == first + count) return file_.read(t, first, count, to);
        std::vector<float> numbers(end - begin);
        file_.read(t, begin, end - begin, numbers.data());
        std::memcpy(to, numbers.data() + (first - begin), count * sizeof(float));
    }
    /// The heads of a tensor whose rows are in another order; 0 for all others.
    extent heads_of(std::string_view name) const {
        if (name.ends_with(".attn_q.weight") || name.ends_with(".attn_q.bias"))
            return description_.sizes.num_attention_heads;
        if (name.ends_with(".attn_k.weight") || name.ends_with(".attn_k.bias"))
            return description_.sizes.num_key_value_heads;
        return 0;
    }

    gguf_file file_;
    llama_folder description_;
    std::vector<tensor_info> tensors_;
    std::map<std::string, std::size_t> by_name_;
    std::map<std::string, std::string> none_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
