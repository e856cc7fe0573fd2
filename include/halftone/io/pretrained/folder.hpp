// SPDX-License-Identifier: MIT
/// \file
/// What the folders of all of Hugging Face's transformers models have in common: a config.json, read key by key, weights beside it,
/// and what is kept of a folder when a model is saved like it.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/io/gguf.hpp>
#include <halftone/io/weights.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How a model is saved as one of transformers.
struct save_pretrained_options {
    /// The type of all weights in the files; by default each parameter's own, and F32 where parameters have a number
    /// type of a user's own.
    std::optional<dtype> type = std::nullopt;
    /// A folder of transformers, or its config.json: what halftone does not have, ids of special tokens, dropouts and whatever
    /// else, is taken from there, and generation_config.json is copied. By default such ids are null.
    std::filesystem::path like{};
    std::uint64_t max_shard_bytes = save_weights_options{}.max_shard_bytes;  ///< the most bytes in a file of the folder
};

namespace detail {

/// The config.json of a folder, or the file itself. Throws gguf_error for a GGUF file, whose keys are no config.json.
inline std::filesystem::path config_file_of(const std::filesystem::path& path) {
    if (is_gguf(path))
        fail<gguf_error>(path.string(), ": is a GGUF file; expected a folder of transformers, or its config.json");
    if (path.extension() == ".safetensors" && !is_folder(path))
        fail<safetensors_error>(path.string(),
                                ": is a file of weights; expected a folder of transformers, or its config.json");
    return is_folder(path) ? path / "config.json" : path;
}

/// A config.json, or its folder's, of which keys are asked for one by one. All functions throw safetensors_error, with the file and
/// the key, for a value that is not of the kind asked for; the constructor throws io_error, too. A key whose value is null is not there.
class config_reader {
  public:
    explicit config_reader(const std::filesystem::path& path)
        : config_reader(config_file_of(path).string(), read_small_file(config_file_of(path), most_header_bytes)) {}
    /// From a file's text; `where` begins the messages.
    config_reader(const std::string& where, std::string_view text)
        : where_(where), keys_(parse_json<safetensors_error>(where, text)) {
        if (!keys_.is_object()) fail<safetensors_error>(where_, ": is no object");
    }

    const std::string& where() const { return where_; }
    bool has(const char* key) const { return keys_.contains(key) && !keys_[key].is_null(); }
    /// Whether a key is there, also with null, which transformers tells from a key that is not there: that has its class's default.
    bool is_named(const char* key) const { return keys_.contains(key); }
    const nlohmann::json& operator[](const char* key) const { return keys_[key]; }
    const nlohmann::json& keys() const { return keys_; }

    /// An integer from 1 to `most`.
    extent size(const char* key, extent most) const {
        if (!has(key) || !keys_[key].is_number_integer())
            fail<safetensors_error>(where_, ": ", key, " is missing, or no integer");
        const auto value = keys_[key].get<extent>();
        if (value < 1 || value > most)
            fail<safetensors_error>(where_, ": ", key, " is ", shown(keys_[key].dump()), "; expected 1 to ", most);
        return value;
    }
    extent size(const char* key, extent most, extent otherwise) const { return has(key) ? size(key, most) : otherwise; }
    /// A finite number above 0.
    double positive(const char* key, double otherwise) const { return positive(keys_, key, otherwise); }
    double positive(const nlohmann::json& object, const char* key, std::optional<double> otherwise) const {
        if (!object.contains(key) || object[key].is_null()) {
            if (!otherwise) fail<safetensors_error>(where_, ": ", key, " is missing");
            return *otherwise;
        }
        const double value = object[key].is_number() ? object[key].get<double>() : 0;
        if (!(value > 0) || value > number_traits<float>::max)
            fail<safetensors_error>(where_, ": ", key, " is ", shown(object[key].dump()),
                                    "; expected a number above 0");
        return value;
    }
    bool flag(const char* key, bool otherwise) const {
        if (!has(key)) return otherwise;
        if (!keys_[key].is_boolean())
            fail<safetensors_error>(where_, ": ", key, " is ", shown(keys_[key].dump()), "; expected true or false");
        return keys_[key].get<bool>();
    }
    /// Refuses a key that is there, whatever its value.
    void refuse(const char* key) const {
        if (has(key)) fail<safetensors_error>(where_, ": ", key, " is there; halftone does not compute such a model");
    }
    /// Refuses a key that is there with another value than `expected` and those of `also`: what halftone does not compute.
    void expect(const char* key, const nlohmann::json& expected,
                std::initializer_list<nlohmann::json> also = {}) const {
        if (!keys_.contains(key) || keys_[key] == expected) return;
        if (std::find(also.begin(), also.end(), keys_[key]) != also.end()) return;
        fail<safetensors_error>(where_, ": ", key, " is ", shown(keys_[key].dump()), "; expected ", expected.dump());
    }

  private:
    std::string where_;
    nlohmann::json keys_;
};

/// Finds out which sizes of a configuration are others than a model's.
class config_comparison {
  public:
    void operator()(const char* key, double there, double here) {
        if (there != here) others_ += sentence(others_.empty() ? "" : "; ", key, " is ", there, ", not ", here);
    }
    /// Throws Error if there are any.
    template <class Error = safetensors_error>
    void check(const std::string& where) const {
        if (!others_.empty()) fail<Error>(where, " is of another model: ", others_);
    }

  private:
    std::string others_;
};

inline std::vector<std::byte> bytes_of_tensor(const tensor_files& files, const tensor_info& t) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(t.bytes));
    files.read(t, bytes.data());
    return bytes;
}
/// Whether two tensors of one shape have the same numbers, whatever their types.
inline bool have_equal_values(const tensor_files& of_a, const tensor_info& a, const tensor_files& of_b,
                              const tensor_info& b) {
    constexpr std::size_t most = 1 << 16;
    std::vector<std::byte> x(most * size_of(a.type)), y(most * size_of(b.type));
    std::vector<double> of_x(most), of_y(most);
    for (std::size_t first = 0; first < a.count(); first += most) {
        const std::size_t count = std::min(most, a.count() - first);
        of_a.read(a, first * size_of(a.type), count * size_of(a.type), x.data());
        of_b.read(b, first * size_of(b.type), count * size_of(b.type), y.data());
        if (a.type == b.type) {
            if (std::memcmp(x.data(), y.data(), count * size_of(a.type)) != 0) return false;
            continue;
        }
        convert(a.type, x.data(), dtype::f64, reinterpret_cast<std::byte*>(of_x.data()), count);
        convert(b.type, y.data(), dtype::f64, reinterpret_cast<std::byte*>(of_y.data()), count);
        if (std::memcmp(of_x.data(), of_y.data(), count * sizeof(double)) != 0) return false;
    }
    return true;
}
/// Throws safetensors_error if a head is stored that has other values than the table of tokens, with which the model ties it.
inline void check_tied_head(const std::string& where, const tensor_files& files, const tensor_info& head,
                            const tensor_info& table, const char* remedy) {
    if (head.shape != table.shape || !is_float(head.type) || !is_float(table.type)) {
        fail<safetensors_error>(where, ": ", head.name, " is ", name(head.type), ' ', shape_text(head.shape), ", ",
                                table.name, ' ', name(table.type), ' ', shape_text(table.shape));
    }
    if (!have_equal_values(files, head, files, table)) {
        fail<safetensors_error>(where, ": ", head.name, " has other values than ", table.name,
                                ", so this head was trained apart; ", remedy);
    }
}

/// The config.json beside weights: in a folder, or in that of a file.
inline std::filesystem::path config_beside(const std::filesystem::path& weights) {
    return (is_folder(weights) ? weights : weights.parent_path()) / "config.json";
}
/// F32 where parameters have a number type of a user's own, which transformers does not know.
inline std::optional<dtype> type_for_others(const store& parameters) {
    for (const store_entry& e : parameters.entries()) {
        if (saved_type(parameters.groups()[e.group], e).is_own) return dtype::f32;
    }
    return std::nullopt;
}
inline void write_text(const std::filesystem::path& path, const std::string& text) {
    durable_file file(path);
    file.write(text.data(), text.size());
    file.commit();
}

/// The double whose text is the shortest that is read as this float: 1e-6 rather than 9.99999997e-7.
inline double shortest(float x) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, x).ptr;
    double value = 0;
    std::from_chars(text, end, value);
    return value;
}

/// The configuration of the folder that a model is saved like, without what describes that folder's weights.
inline nlohmann::json config_like(const std::filesystem::path& like) {
    nlohmann::json config = config_reader(like).keys();
    for (const char* const of_weights : {"dtype", "torch_dtype", "quantization_config"}) config.erase(of_weights);
    return config;
}
/// Throws state_error for a model with adapters that are not merged; `what` is the call, and makes a folder or a file.
inline void check_without_adapters(const store& parameters, const char* what, const char* made) {
    if (parameters.adapters().are_in_use())
        fail<state_error>(what, ": the model has adapters, which are no part of its ", made,
                          ": ht::merge_adapters adds them to the weights, ht::save_adapters writes them alone");
}
/// Writes a folder that transformers loads: the weights, generation_config.json of the folder `like`, and at last `config`. Of a
/// model that is divided among ranks, all of them call it.
inline void save_folder(const store& parameters, const std::filesystem::path& folder, const nlohmann::json& config,
                        const save_pretrained_options& options, save_weights_options weights) {
    check_without_adapters(parameters, "save_pretrained", "folder");
    std::optional<std::string> generation;
    if (!options.like.empty()) {
        const auto beside = config_file_of(options.like).parent_path() / "generation_config.json";
        if (is_there(beside)) generation = read_small_file(beside, most_header_bytes);
    }
    weights.type = options.type ? options.type : type_for_others(parameters);
    weights.max_shard_bytes = options.max_shard_bytes;
    weights.which = weights_of::base;
    save_weights(parameters, folder, weights);
    on_ranks_of(parameters, "save_pretrained.config", [&] {
        if (!is_writer(parameters)) return;
        if (generation) write_text(folder / "generation_config.json", *generation);
        write_text(folder / "config.json", config.dump(2) + '\n');
    });
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
