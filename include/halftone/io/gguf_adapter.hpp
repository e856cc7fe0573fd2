// SPDX-License-Identifier: MIT
/// \file
/// Low-rank adapters in GGUF files, both ways: llama.cpp's --lora, for Llama, Mistral, Qwen2 and Qwen3.
///
///     ht::save_gguf_adapter(model, "adapter.gguf");                       // llama-cli -m base.gguf --lora adapter.gguf
///
///     const ht::add_adapters added{device, ht::read_gguf_adapter("adapter.gguf", config)};
///     ht::nn::llama<ht::lora<ht::amp_bf16, ht::pure_bf16>> model{device, config};
///     ht::load_gguf_adapter(model, "adapter.gguf");
///
/// A layer's A and B are NAME.lora_a (rank, in) and NAME.lora_b (out, rank), NAME that of its weight: blk.0.attn_q.weight. llama.cpp
/// multiplies B A by adapter.lora.alpha divided by the tensor's own rank, or by 1 where alpha is 0 or not there (llama.cpp b9190).
/// Of the architecture llama rows of attn_q's and attn_k's B are in the order of these weights' rows (pretrained/llama_gguf.hpp).
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <halftone/io/peft.hpp>
#include <halftone/io/pretrained/save_gguf.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A linear layer of a Llama, as GGUF's adapters have it.
struct gguf_adapted {
    std::string path;   ///< of its adapter: "h.0.attn.qkv.q"
    std::string there;  ///< "blk.0.attn_q.weight"
    std::string peft;   ///< "model.layers.0.self_attn.q_proj"
    std::size_t half;   ///< half the rows of a head where the file has them in another order; else 0
};
inline std::vector<gguf_adapted> gguf_adapted_layers(const nn::llama_config& c, bool normalises_heads) {
    const std::string architecture = llama_gguf_architecture(c, normalises_heads);
    std::vector<gguf_adapted> all;
    for (const peft_module& m : peft_layout_of(c, normalises_heads).modules) {
        if (m.adapter.empty()) continue;
        const std::string name = llama_gguf_name(m.there + ".weight");
        all.push_back({m.adapter, name, m.there, turned_half_of(name, architecture, c)});
    }
    return all;
}

/// The A or B of adapters in a file, in halftone's order of rows and by PEFT's names, as tensor_files has those of safetensors.
class gguf_adapter_tensors {
  public:
    using error = gguf_error;

    /// Throws io_error, and gguf_error for a file that is no adapter of such a model, with the name of the key or the tensor.
    gguf_adapter_tensors(const std::filesystem::path& path, const nn::llama_config& c, bool normalises_heads)
        : file_(path), where_(path.string()) {
        expect("general.type", "adapter");
        expect("general.architecture", llama_gguf_architecture(c, normalises_heads));
        expect("adapter.type", "lora");
        alpha_ = file_.metadata().number("adapter.lora.alpha", 0);
        adapted_ = gguf_adapted_layers(c, normalises_heads);
        std::map<std::string, const gguf_adapted*> layers;
        for (const gguf_adapted& each : adapted_) layers[each.there] = &each;
        for (const gguf_tensor& t : file_.tensors()) {
            const std::size_t end = t.name.rfind('.');
            const std::string part = end == t.name.npos ? "" : t.name.substr(end);
            const auto found = layers.find(t.name.substr(0, end));
            if ((part != ".lora_a" && part != ".lora_b") || found == layers.end())
                fail<gguf_error>(where_, ": '", shown(t.name),
                                 "' is no adapter of a linear layer of this model; halftone computes no others");
            if (t.shape.size() != 2 || !is_converted(t.type))
                fail<gguf_error>(where_, ": '", shown(t.name), "' is ", halftone::name(t.type), ' ',
                                 shape_text(t.shape), "; expected a matrix of a type that halftone reads");
            add(t, *found->second, part == ".lora_a");
        }
        for (const gguf_adapted& each : adapted_) {
            const bool has_a = file_.find(each.there + ".lora_a") != nullptr,
                       has_b = file_.find(each.there + ".lora_b") != nullptr;
            if (has_a != has_b)
                fail<gguf_error>(where_, ": there is no '", each.there, has_a ? ".lora_b'" : ".lora_a'");
        }
    }

    /// The options of ht::add_adapters with which a model has these adapters.
    adapter_options options() const {
        adapter_options o;
        o.targets.clear();
        for (const gguf_adapted& each : adapted_) {
            const gguf_tensor* const a = file_.find(each.there + ".lora_a");
            if (a == nullptr) continue;
            const extent rank = a->shape[0];
            const double alpha = alpha_ == 0 ? static_cast<double>(rank) : alpha_;
            o.targets.push_back(each.path);
            if (o.targets.size() == 1) o.rank = rank, o.alpha = alpha;
            if (rank != o.rank || alpha != o.alpha) o.patterns.push_back({each.path, rank, alpha});
        }
        if (o.targets.empty()) fail<gguf_error>(where_, ": has no adapters");
        return o;
    }

    const std::vector<tensor_info>& tensors() const { return tensors_; }
    const tensor_info* find(const std::string& name) const {
        const auto found =
            std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
        return found == tensors_.end() ? nullptr : &*found;
    }
    void read(const tensor_info& t, void* to) const { read(t, 0, static_cast<std::size_t>(t.bytes), to); }
    void read(const tensor_info& t, std::uint64_t first, std::size_t bytes, void* to) const {
        const auto& from = values_[static_cast<std::size_t>(&t - tensors_.data())];
        std::memcpy(to, reinterpret_cast<const std::byte*>(from.data()) + first, bytes);
    }
    /// No keys that loads look for.
    const std::map<std::string, std::string>& metadata() const { return none_; }

  private:
    void expect(const char* key, const std::string& value) const {
        const std::string there = file_.metadata().text(key, "");
        if (there != value) fail<gguf_error>(where_, ": ", key, " is \"", shown(there), "\"; expected \"", value, '"');
    }
    void add(const gguf_tensor& t, const gguf_adapted& layer, bool is_a) {
        const std::vector<float> stored = file_.read<float>(t.name);
        std::vector<float> values(stored.size());
        const auto width = static_cast<std::size_t>(t.shape[1]);
        for (std::size_t row = 0; row < static_cast<std::size_t>(t.shape[0]); ++row) {
            const std::size_t here = is_a ? row : turned_row(row, layer.half);
            if (here * width + width <= values.size())
                std::copy_n(stored.data() + row * width, width, values.data() + here * width);
        }
        values_.push_back(std::move(values));
        tensors_.push_back(
            {std::string(peft_file_names::prefix) + layer.peft + (is_a ? ".lora_A" : ".lora_B") + ".weight", dtype::f32,
             t.shape, 0, stored.size() * sizeof(float)});
    }

    gguf_file file_;
    std::string where_;
    double alpha_ = 0;
    std::vector<gguf_adapted> adapted_;
    std::vector<tensor_info> tensors_;
    std::vector<std::vector<float>> values_;
    std::map<std::string, std::string> none_;
};

inline void load_gguf_adapter(store& parameters, const nn::llama_config& c, bool normalises_heads,
                              const std::filesystem::path& path) {
    expect_adapters("load_gguf_adapter", parameters);
    const gguf_adapter_tensors files(path, c, normalises_heads);
    const peft_layout layout = peft_layout_of(c, normalises_heads);
    compare_adapters<gguf_error>(path.string(), "ht::read_gguf_adapter", parameters, layout, files.options());
    const peft_file_names names(parameters, layout, nullptr);
    load_weights_of(parameters, files, path.string(), names.options<load_weights_options>());
}

/// Rows of a matrix of an adapter, of a model that may be divided among ranks, all of which call it.
inline std::vector<float> adapter_rows(value_reader& read, const store& parameters, std::size_t index, extent first,
                                       extent rows) {
    const store_entry& e = parameters.entries()[index];
    const value_traits& own = saved_type(parameters.groups()[e.group], e);
    std::vector<float> values(static_cast<std::size_t>(rows * e.width));
    std::vector<std::byte> bytes(values.size() * own.bytes);
    read(index, static_cast<std::size_t>(first * e.width), values.size(), bytes.data());
    own.widen(bytes.data(), values.size(), values.data());
    return values;
}

/// The tensors of a file. Scales that are not alpha / rank are multiplied into B.
inline std::vector<gguf_source> gguf_adapter_sources(const store& parameters, const std::vector<gguf_adapted>& layers,
                                                     ggml_type type, double alpha) {
    std::map<std::string, const gguf_adapted*> by_path;
    for (const gguf_adapted& each : layers) by_path[each.path] = &each;
    value_reader read(parameters);
    std::vector<gguf_source> sources;
    const auto add = [&](const std::string& name, std::vector<extent> shape, std::vector<float> values) {
        const auto kept = std::make_shared<const std::vector<float>>(std::move(values));
        gguf_source source = gguf_source::of(name, type, std::move(shape), *kept);
        source.read = [kept, inner = std::move(source.read)](std::byte* to, std::size_t first, std::size_t count) {
            inner(to, first, count);
        };
        sources.push_back(std::move(source));
    };
    for (const store_adapter& a : parameters.adapters().all()) {
        const gguf_adapted& layer = *by_path.at(a.path);
        const extent in = parameters.entries()[a.a].width;
        add(layer.there + ".lora_a", {a.rank, in}, adapter_rows(read, parameters, a.a, a.first_rank, a.rank));
        const std::vector<float> b = adapter_rows(read, parameters, a.b, 0, a.rows);
        std::vector<float> stored(b.size());
        const auto width = static_cast<std::size_t>(a.rank);
        const double factor = a.scale * static_cast<double>(a.rank) / alpha;
        for (std::size_t row = 0; row < static_cast<std::size_t>(a.rows); ++row) {
            for (std::size_t i = 0; i < width; ++i)
                stored[row * width + i] =
                    static_cast<float>(factor * static_cast<double>(b[turned_row(row, layer.half) * width + i]));
        }
        add(layer.there + ".lora_b", {a.rows, a.rank}, std::move(stored));
    }
    return sources;
}

inline void save_gguf_adapter(const store& parameters, const nn::llama_config& c, bool normalises_heads,
                              const std::filesystem::path& path, ggml_type type, const std::string& name) {
    expect_adapters("save_gguf_adapter", parameters);
    if (type != ggml_type::f32 && type != ggml_type::f16 && type != ggml_type::bf16)
        fail<argument_error>("save_gguf_adapter: a type of ", halftone::name(type), "; expected F32, F16 or BF16");
    for (const store_entry& e : parameters.entries()) {
        if (!e.frozen && !e.is_adapter)
            fail<argument_error>(
                "save_gguf_adapter: ", e.path,
                " is trained besides the adapters, and llama.cpp adds those alone; merge them, or save "
                "for PEFT");
    }
    const store_adapter& first = parameters.adapters().all().front();
    const double wanted = first.scale * static_cast<double>(first.rank);
    const float alpha = wanted == 0 ? 1.0f : static_cast<float>(wanted);
    gguf_keys keys{{"general.type", gguf_value_of("adapter")},
                   {"general.architecture", gguf_value_of(llama_gguf_architecture(c, normalises_heads))},
                   {"general.file_type", gguf_value_of(gguf_file_type(type))},
                   {"general.quantization_version", gguf_value_of(std::uint32_t{2})},
                   {"adapter.type", gguf_value_of("lora")},
                   {"adapter.lora.alpha", gguf_value_of(alpha)}};
    if (!name.empty()) keys["general.name"] = gguf_value_of(name);
    on_ranks_of(parameters, "save_gguf_adapter", [&] {
        const auto sources = gguf_adapter_sources(parameters, gguf_adapted_layers(c, normalises_heads), type,
                                                  static_cast<double>(alpha));
        if (is_writer(parameters)) write_gguf(path, keys, sources);
    });
}

}  // namespace detail

/// The adapters in a GGUF file, as options for ht::add_adapters: targets are paths of single adapters. Throws io_error, and gguf_error,
/// with the name of the key or the tensor, for a file that is no adapter of linear layers of such a model.
inline adapter_options read_gguf_adapter(const std::filesystem::path& path, const nn::llama_config& model,
                                         nn::qk_norm norm = nn::qk_norm::none) {
    return detail::gguf_adapter_tensors(path, model, norm == nn::qk_norm::rms).options();
}

/// Reads the adapters of a GGUF file into a model that has the same ones. All or nothing, as load_weights: throws io_error, and
/// gguf_error for adapters at other layers, of another rank or another scale than the model's, and for tensors of another shape.
template <class P, nn::qk_norm Norm>
void load_gguf_adapter(nn::llama<P, Norm>& model, const std::filesystem::path& path) {
    detail::load_gguf_adapter(model.parameters(), model.config(), Norm == nn::qk_norm::rms, path);
}

/// How adapters are saved as a GGUF file.
struct save_gguf_adapter_options {
    ggml_type type = ggml_type::f32;  ///< of all matrices: F32, F16 or BF16
    std::string name{};               ///< general.name; by default there is none
};

/// Writes a model's adapters as a GGUF file, which llama.cpp adds to the model's, and which replaces an earlier one when it is complete. A
/// scale that is not the file's alpha divided by the adapter's rank is multiplied into B, and rounded once. Of a model that ht::shard
/// divides all ranks call it. Throws io_error; state_error for a model without adapters, and after ht::merge_adapters; argument_error
/// for another type, for parameters that are trained besides, for numbers that the type does not hold, and for models that llama.cpp has none for.
template <class P, nn::qk_norm Norm>
void save_gguf_adapter(const nn::llama<P, Norm>& model, const std::filesystem::path& path,
                       const save_gguf_adapter_options& o = {}) {
    detail::save_gguf_adapter(model.parameters(), model.config(), Norm == nn::qk_norm::rms, path, o.type, o.name);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
