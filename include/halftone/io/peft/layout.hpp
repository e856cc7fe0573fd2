// SPDX-License-Identifier: MIT
/// \file
/// The modules of a model as PEFT names them ("model.layers.0.self_attn.q_proj"), and the layers of halftone's that they are
/// ("h.0.attn.qkv.q"): what adapter_config.json chooses from.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halftone/io/pretrained/gpt2.hpp>
#include <halftone/io/pretrained/llama.hpp>
#include <halftone/io/weights.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A module with parameters.
struct peft_module {
    std::string there;      ///< PEFT's name, without "base_model.model."
    std::string layer;      ///< path of the layer with its parameters: "h.0.attn.qkv"; empty: halftone has none
    std::string adapter{};  ///< path of the adapter that it can have: "h.0.attn.qkv.q"; empty: none
    extent block = -1;      ///< index of its block
};

/// The modules of a model, and how files store their parameters.
struct peft_layout {
    std::vector<peft_module> modules{};
    std::vector<std::string> usual_targets{};  ///< PEFT's for models of this kind
    std::string blocks{};                      ///< what stands before a block's index in names: "layers"
    extent layers = 0;
    std::set<std::string> tied{};  ///< modules whose weight is the table of tokens and the head
    bool has_transposes = false;   ///< PEFT's fan_in_fan_out
    weight_names names{};          ///< of parameters of the base, without "base_model.model."
    weight_transposes transposed{};
    weight_pieces pieces{};

    /// The modules that a parameter's tensors belong to.
    std::vector<std::string> modules_of(const std::string& path) const {
        std::vector<std::string> all;
        for (const weight_piece& piece : pieces ? pieces(path) : std::vector<weight_piece>{})
            all.push_back(without_last(piece.name));
        if (all.empty()) all.push_back(without_last(names(path)));
        return all;
    }
    static std::string without_last(const std::string& name) { return name.substr(0, name.rfind('.')); }

    /// Adds the modules of a parameter, whose rows have adapters of these names; of "": it has one as a whole.
    void add(const std::string& path, extent block, std::initializer_list<const char*> adapters) {
        const std::string layer = path.ends_with(".weight") || path.ends_with(".gain") ? without_last(path) : path;
        const std::vector<std::string> all = modules_of(path);
        const char* const* each = adapters.begin();
        for (const std::string& there : all) {
            modules.push_back({there, layer, {}, block});
            if (adapters.size() == 0) continue;
            modules.back().adapter = layer + (**each == 0 ? "" : ".") + *each;
            ++each;
        }
    }
    /// Names of modules that contain others: "model.layers.0.mlp".
    std::set<std::string> containers() const {
        std::set<std::string> all;
        for (const peft_module& m : modules) {
            for (auto dot = m.there.rfind('.'); dot != std::string::npos && dot != 0; dot = m.there.rfind('.', dot - 1))
                all.insert(m.there.substr(0, dot));
        }
        return all;
    }
};

inline peft_layout peft_layout_of(const nn::llama_config& c, bool normalises_heads) {
    peft_layout all{.usual_targets = {"q_proj", "v_proj"}, .blocks = "layers", .layers = c.num_hidden_layers};
    const llama_file_names names(c);
    all.names = names;
    all.pieces = [names](const std::string& path) { return names.pieces(path); };
    all.add("embed.tokens", -1, {});
    for (extent i = 0; i < all.layers; ++i) {
        const std::string block = "h." + std::to_string(i) + '.';
        all.add(block + "attn.norm.gain", i, {});
        all.add(block + "attn.qkv.weight", i, {"q", "k", "v"});
        for (const char* const norm : {"attn.q_norm.gain", "attn.k_norm.gain"}) {
            if (normalises_heads) all.add(block + norm, i, {});
        }
        all.add(block + "attn.proj.weight", i, {""});
        all.add(block + "mlp.norm.gain", i, {});
        all.add(block + "mlp.gate_up.weight", i, {"gate", "up"});
        all.add(block + "mlp.down.weight", i, {""});
    }
    all.add("norm.gain", -1, {});
    if (c.tie_word_embeddings) {
        all.modules.push_back({"lm_head", ""});
        all.tied = {"model.embed_tokens", "lm_head"};
    } else {
        all.add("head.weight", -1, {});
    }
    return all;
}
inline peft_layout peft_layout_of(const nn::gpt_config& c) {
    peft_layout all{.usual_targets = {"c_attn"}, .blocks = "h", .layers = c.layers, .has_transposes = true};
    all.names = [](const std::string& path) { return "transformer." + gpt2_name(path); };
    all.transposed = &is_transposed_in_gpt2;
    all.add("embed.tokens", -1, {}), all.add("embed.positions", -1, {});
    for (extent i = 0; i < all.layers; ++i) {
        const std::string block = "h." + std::to_string(i) + '.';
        all.add(block + "attn.norm.gain", i, {});
        for (const char* const layer : {"attn.qkv.weight", "attn.proj.weight"}) all.add(block + layer, i, {""});
        all.add(block + "mlp.norm.gain", i, {});
        for (const char* const layer : {"mlp.up.weight", "mlp.down.weight"}) all.add(block + layer, i, {""});
    }
    all.add("norm.gain", -1, {});
    all.modules.push_back({"lm_head", ""});
    all.tied = {"transformer.wte", "lm_head"};
    return all;
}
template <class P, nn::qk_norm Norm>
peft_layout peft_layout_of(const nn::llama<P, Norm>& model) {
    return peft_layout_of(model.config(), Norm == nn::qk_norm::rms);
}
template <class P>
peft_layout peft_layout_of(const nn::gpt<P>& model) {
    return peft_layout_of(model.config());
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
