// SPDX-License-Identifier: MIT
/// \file
/// Writes models of ht::nn::llama, Llamas, Mistrals, Qwen2 and Qwen3, as GGUF files for llama.cpp: what llama_gguf.hpp reads.
///
///     ht::save_gguf(model, "model.gguf", {.like = "Llama-3.2-1B", .type = ht::ggml_type::q8_0});    // llama-cli -m model.gguf
///
/// Keys, names and the order of rows are those of llama.cpp's converter. Matrices have options.type, and vectors are F32; a matrix
/// whose rows are no whole number of blocks is F16, as the converter has it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halftone/io/gguf/tokenizer_keys.hpp>
#include <halftone/io/gguf/writer.hpp>
#include <halftone/io/pretrained/gguf_tokenizer.hpp>
#include <halftone/io/pretrained/llama.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How a model is saved as a GGUF file.
struct save_gguf_options {
    /// A folder of transformers, whose tokenizer the file gets, or a GGUF file, whose keys of the tokenizer are copied; the length of the
    /// context and the name are those of it, too. Without one the file has no tokenizer: llama.cpp loads it, and computes with ids.
    std::filesystem::path like{};
    ggml_type type = ggml_type::f16;  ///< of matrices: F32, F16, BF16, Q8_0 or Q4_0
    /// The type of output.weight, or of token_embd.weight of a model whose head is tied; by default `type`. llama.cpp's own Q4_0
    /// files have one of more bits there.
    std::optional<ggml_type> head_type = std::nullopt;
    std::string name{};  ///< general.name; by default that of `like`
    std::string pre{};   ///< tokenizer.ggml.pre; by default found by the pre_tokenizer in tokenizer.json
};

namespace detail {

/// The architecture of a model in GGUF files. Throws argument_error for a model that llama.cpp has none for.
inline std::string llama_gguf_architecture(const nn::llama_config& c, bool normalises_heads) {
    if (normalises_heads && c.attention_bias)
        fail<argument_error>("save_gguf: norms of queries and keys together with biases are no model of llama.cpp");
    const char* const type = normalises_heads ? "qwen3" : c.attention_bias ? "qwen2" : "llama";
    if (c.rope_scaling.factor != 1 && (normalises_heads || c.attention_bias))
        fail<argument_error>("save_gguf: Llama 3's scaling of the angles in a ", type,
                             ", which llama.cpp computes for the architecture llama alone");
    return type;
}
inline extent llama_head_size(const nn::llama_config& c) {
    return c.head_dim != 0 ? c.head_dim : c.hidden_size / c.num_attention_heads;
}
inline extent llama_kv_heads(const nn::llama_config& c) {
    return c.num_key_value_heads != 0 ? c.num_key_value_heads : c.num_attention_heads;
}

/// llama.cpp's number for a file most of whose tensors have this type.
inline std::uint32_t gguf_file_type(ggml_type type) {
    switch (type) {
        case ggml_type::f32:
            return 0;
        case ggml_type::f16:
            return 1;
        case ggml_type::q4_0:
            return 2;
        case ggml_type::q8_0:
            return 7;
        default:
            return 32;  // BF16
    }
}

/// The keys of a model's sizes; there.sizes has the context, there.sliding_window the window, if it has one.
inline gguf_keys llama_gguf_keys(const nn::llama_config& c, const llama_folder& there,
                                 const std::string& architecture) {
    const auto size = [](extent n) { return gguf_value_of(static_cast<std::uint32_t>(n)); };
    const extent of_head = llama_head_size(c);
    const std::string begin = architecture + '.';
    gguf_keys keys{
        {"general.architecture", gguf_value_of(architecture)},
        {"general.type", gguf_value_of("model")},
        {"general.quantization_version", gguf_value_of(std::uint32_t{2})},
        {begin + "vocab_size", size(c.vocab_size)},
        {begin + "context_length", size(there.sizes.max_position_embeddings)},
        {begin + "embedding_length", size(c.hidden_size)},
        {begin + "block_count", size(c.num_hidden_layers)},
        {begin + "feed_forward_length", size(c.intermediate_size)},
        {begin + "attention.head_count", size(c.num_attention_heads)},
        {begin + "attention.head_count_kv", size(llama_kv_heads(c))},
        {begin + "attention.layer_norm_rms_epsilon", gguf_value_of(c.rms_norm_eps)},
        {begin + "rope.freq_base", gguf_value_of(static_cast<float>(c.rope_theta))},
        {begin + "rope.dimension_count", size(of_head)},
    };
    if (of_head * c.num_attention_heads != c.hidden_size) {
        keys[begin + "attention.key_length"] = size(of_head);
        keys[begin + "attention.value_length"] = size(of_head);
    }
    if (there.sliding_window != 0) keys[begin + "attention.sliding_window"] = size(there.sliding_window);
    return keys;
}

/// What a file has of options.like besides weights: its sizes, compared with the model's, keys of the tokenizer, and its name. Throws
/// what reading it throws, and argument_error for a model of another architecture.
struct gguf_likeness {
    llama_folder there;
    gguf_keys keys{};
};
inline std::string gguf_name_of(const std::filesystem::path& folder) {
    std::filesystem::path whole = std::filesystem::absolute(folder).lexically_normal();
    if (!whole.has_filename()) whole = whole.parent_path();
    return whole.filename().string();
}
inline void check_gguf_architecture(const std::filesystem::path& like, const std::string& there,
                                    const std::string& architecture) {
    if ((there == "mistral" ? "llama" : there) != architecture)
        fail<argument_error>("save_gguf: ", like.string(), " is a ", there, ", the model a ", architecture);
}
inline gguf_likeness like_gguf(const gguf_file& file, const nn::llama_config& c, const std::string& architecture) {
    gguf_likeness made{read_llama_gguf(file)};
    check_gguf_architecture(file.path(), made.there.model_type, architecture);
    check_llama_sizes<gguf_error>(file.path().string(), made.there, c, architecture == "qwen3",
                                  made.there.sliding_window);
    for (const auto& [key, value] : file.metadata().values()) {
        if (key.starts_with("tokenizer.") || key == "general.name") made.keys.emplace(key, value);
    }
    if (!made.keys.contains("tokenizer.ggml.model")) made.keys["tokenizer.ggml.model"] = gguf_value_of("no_vocab");
    if (const auto tokens = made.keys.find("tokenizer.ggml.tokens");
        tokens != made.keys.end() && static_cast<extent>(tokens->second.count) != c.vocab_size)
        fail<gguf_error>(file.path().string(), ": has ", tokens->second.count, " tokens; expected the model's ",
                         c.vocab_size);
    return made;
}
inline gguf_likeness like_folder(const nn::llama_config& c, const std::string& architecture,
                                 const save_gguf_options& options) {
    const std::filesystem::path config = config_file_of(options.like),
                                folder = config.has_parent_path() ? config.parent_path() : ".";
    gguf_likeness made{read_llama_folder(config_reader(config))};
    check_gguf_architecture(config, made.there.model_type, architecture);
    check_llama_sizes(config.string(), made.there, c, architecture == "qwen3", made.there.sliding_window);
    made.keys = gguf_keys_of(gguf_tokenizer_of_folder(folder, c.vocab_size, options.pre));
    made.keys["general.name"] = gguf_value_of(gguf_name_of(folder));
    return made;
}
inline gguf_likeness likeness_of(const nn::llama_config& c, const std::string& architecture,
                                 const save_gguf_options& options) {
    if (options.like.empty()) return {{c, architecture}, {{"tokenizer.ggml.model", gguf_value_of("no_vocab")}}};
    return is_gguf(options.like) ? like_gguf(gguf_file(options.like), c, architecture)
                                 : like_folder(c, architecture, options);
}

/// Half the rows of a head, of a tensor whose rows i and i + half of each head are neighbours in a file; 0: its rows stay in their order.
inline std::size_t turned_half_of(const std::string& name, const std::string& architecture, const nn::llama_config& c) {
    const bool is_turned = name.find(".attn_q.") != name.npos || name.find(".attn_k.") != name.npos;
    return architecture == "llama" && is_turned ? static_cast<std::size_t>(llama_head_size(c) / 2) : 0;
}
/// The row here of a file's row of such a tensor.
inline std::size_t turned_row(std::size_t row, std::size_t half) {
    if (half == 0) return row;
    const std::size_t of_head = row % (2 * half);
    return row - of_head + of_head % 2 * half + of_head / 2;
}

/// Gives the numbers of a parameter, or of rows of it, as they stand in a GGUF file.
class llama_gguf_values {
  public:
    /// `half`: half the rows of a head, whose rows i and i + half become neighbours; 0: rows stay in their order.
    llama_gguf_values(const store& parameters, std::shared_ptr<value_reader> read, std::size_t index,
                      const stored_piece& piece, std::string name, ggml_type type, std::size_t half)
        : read_(std::move(read)),
          index_(index),
          first_(piece.first),
          width_(static_cast<std::size_t>(piece.shape.back())),
          half_(half),
          type_(type),
          name_(std::move(name)) {
        const store_entry& e = parameters.entries()[index];
        own_ = &saved_type(parameters.groups()[e.group], e);
    }

    void operator()(std::byte* to, std::size_t first, std::size_t count) const {
        std::vector<std::byte> values(count * own_->bytes);
        std::byte* at = values.data();
        for (std::size_t i = first, end = first + count; i < end;) {
            const std::size_t some = half_ == 0 ? count : std::min(end, (i / width_ + 1) * width_) - i;
            (*read_)(index_, first_ + place_of(i), some, at);
            i += some, at += some * own_->bytes;
        }
        const dtype as = converted_type(type_);
        if (entry_of(type_).elements == 1) return convert_values(values.data(), as, to, count);
        std::vector<float> numbers(count);
        convert_values(values.data(), as, reinterpret_cast<std::byte*>(numbers.data()), count);
        ggml_bytes_of("save_gguf: " + name_, type_, numbers.data(), count, to);
    }

  private:
    /// The place here of element i of the file.
    std::size_t place_of(std::size_t i) const {
        return half_ == 0 ? i : turned_row(i / width_, half_) * width_ + i % width_;
    }
    void convert_values(const std::byte* values, dtype as, std::byte* to, std::size_t count) const {
        convert_from(*own_, values, as, to, count);
        if (const auto x = first_lost(*own_, values, traits_of(as), to, count))
            fail<argument_error>("save_gguf: ", name_, " has ", *x, ", which ", halftone::name(as), " does not hold");
    }

    std::shared_ptr<value_reader> read_;
    std::size_t index_, first_, width_, half_;
    ggml_type type_;
    std::string name_;
    const value_traits* own_ = nullptr;
};

/// The type of a tensor in a file.
inline ggml_type llama_gguf_type(const std::string& name, const std::vector<extent>& shape, bool is_head,
                                 const save_gguf_options& options) {
    if (shape.size() != 2) return ggml_type::f32;
    const ggml_type wanted = is_head ? options.head_type.value_or(options.type) : options.type;
    if (!is_written(wanted))
        fail<argument_error>("save_gguf: ", name, " of type ", halftone::name(wanted),
                             "; expected F32, F16, BF16, Q8_0 or Q4_0");
    return shape[1] % entry_of(wanted).elements == 0 ? wanted : ggml_type::f16;
}

/// The factors by which llama.cpp divides the frequencies of a head.
inline gguf_source llama_gguf_factors_of(const nn::llama_config& c) {
    const extent n = llama_head_size(c) / 2;
    std::vector<float> factors;
    for (extent i = 0; i < n; ++i)
        factors.push_back(
            static_cast<float>(rotary_frequency({.theta = c.rope_theta}, i, n) /
                               rotary_frequency({.theta = c.rope_theta, .scaling = c.rope_scaling}, i, n)));
    return {llama_gguf_factors, ggml_type::f32, {n}, [factors](std::byte* to, std::size_t first, std::size_t count) {
                std::memcpy(to, factors.data() + first, count * sizeof(float));
            }};
}

/// The tensors of a model in a file: pieces of one parameter stand behind each other.
inline std::vector<gguf_source> llama_gguf_sources(const store& parameters, const nn::llama_config& c,
                                                   const std::string& architecture, const save_gguf_options& options) {
    parameters.check_committed();
    const llama_file_names names(c);
    const save_weights_options of_file{.names = names,
                                       .pieces = [&names](const std::string& at) { return names.pieces(at); },
                                       .which = weights_of::base};
    const auto read = std::make_shared<value_reader>(parameters);
    const std::string head = c.tie_word_embeddings ? "token_embd.weight" : "output.weight";
    std::vector<gguf_source> sources;
    if (c.rope_scaling.factor != 1) sources.push_back(llama_gguf_factors_of(c));
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        for (const stored_piece& piece : stored_pieces(parameters, parameters.entries()[i], of_file)) {
            const std::string name = llama_gguf_name(piece.name);
            const ggml_type type = llama_gguf_type(name, piece.shape, name == head, options);
            const std::size_t half = turned_half_of(name, architecture, c);
            sources.push_back(
                {name, type, piece.shape, llama_gguf_values(parameters, read, i, piece, name, type, half)});
        }
    }
    return sources;
}

/// save_gguf of a model's store.
inline void save_llama_gguf(const store& parameters, const nn::llama_config& c, bool normalises_heads,
                            const std::filesystem::path& path, const save_gguf_options& options) {
    check_without_adapters(parameters, "save_gguf", "file");
    const std::string architecture = llama_gguf_architecture(c, normalises_heads);
    const std::vector<gguf_source> sources = llama_gguf_sources(parameters, c, architecture, options);
    gguf_keys keys;
    on_ranks_of(parameters, "save_gguf.read", [&] {
        gguf_likeness like = likeness_of(c, architecture, options);
        keys = llama_gguf_keys(c, like.there, architecture);
        keys.merge(like.keys);
    });
    keys["general.file_type"] = gguf_value_of(gguf_file_type(options.type));
    if (!options.name.empty()) keys["general.name"] = gguf_value_of(options.name);
    on_ranks_of(parameters, "save_gguf.write", [&] {
        if (is_writer(parameters)) return write_gguf(path, keys, sources);
        visit_gguf_pieces(sources, 1, [](const std::byte*, std::size_t) {});
    });
}

}  // namespace detail

/// Writes a model as a GGUF file, which llama.cpp and ht::load_pretrained load, and which replaces an earlier one when it is complete.
/// A megabyte at a time is in host memory. Of a model that ht::shard divides all ranks call it, a parameter at a time is gathered, and
/// the first one writes. Throws io_error; argument_error for a type that is not written, numbers that it does not hold, and models that llama.cpp has none for;
/// state_error for adapters that are not merged; and, of options.like, safetensors_error or gguf_error if it is of another
/// model, and data_error for a tokenizer that a GGUF file cannot have. An earlier file then stays. On a GPU it waits for the device.
template <class P, nn::qk_norm Norm>
void save_gguf(const nn::llama<P, Norm>& model, const std::filesystem::path& path,
               const save_gguf_options& options = {}) {
    detail::save_llama_gguf(model.parameters(), model.config(), Norm == nn::qk_norm::rms, path, options);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
