// SPDX-License-Identifier: MIT
/// \file
/// Adapters in the folders of Hugging Face's PEFT, adapter_config.json and adapter_model.safetensors, both ways, for ht::nn::llama (Llama,
/// Mistral, Qwen2, Qwen3) and ht::nn::gpt (GPT-2).
///
///     const auto config = ht::read_llama_config("Qwen2.5-0.5B");
///     const ht::add_adapters added{device, ht::read_peft_config("adapter", config)};
///     ht::nn::llama<ht::lora<ht::amp_bf16, ht::pure_bf16>> model{device, config};
///     ht::load_pretrained(model, "Qwen2.5-0.5B");
///     ht::load_peft(model, "adapter");
///     ht::save_peft(model, "tuned", {.base = "Qwen/Qwen2.5-0.5B"});     // PeftModel.from_pretrained(base, "tuned")
///
/// PEFT's names and halftone's paths:
///
///     base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight     h.0.attn.qkv.lora_A      a block of its rows
///     base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight     h.0.attn.qkv.q.lora_B
///     base_model.model.model.layers.0.mlp.down_proj.lora_B.weight        h.0.mlp.down.lora_B
///     base_model.model.transformer.h.0.attn.c_attn.lora_B.weight         h.0.attn.qkv.lora_B      of GPT-2
///     base_model.model.model.norm.weight                                 norm.gain                in modules_to_save
///
/// What PEFT overlooks is refused by its name: a target that no layer has, a tensor too much or too few, an adapter of another scale.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include <halftone/io/adapters.hpp>
#include <halftone/io/peft/config.hpp>
#include <halftone/io/peft/layout.hpp>
#include <halftone/io/peft/write.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Which layers of a Llama, a Mistral, a Qwen2 or, with norms of heads, of a Qwen3 have adapters, and what else ht::add_adapters has to
/// know, by a folder's adapter_config.json: r, lora_alpha, use_rslora, lora_dropout, target_modules, exclude_modules, layers_to_transform,
/// rank_pattern, alpha_pattern, modules_to_save. Targets and patterns are paths of single adapters. Throws io_error; safetensors_error,
/// with the name of the key, for what halftone does not compute, such as use_dora, for adapters of tables of tokens and heads, and for
/// names that no layer has.
inline adapter_options read_peft_config(const std::filesystem::path& folder, const nn::llama_config& model,
                                        nn::qk_norm norm = nn::qk_norm::none) {
    return detail::peft_options_in(folder, detail::peft_layout_of(model, norm == nn::qk_norm::rms));
}
/// The adapters of a GPT-2 in a folder of PEFT.
inline adapter_options read_peft_config(const std::filesystem::path& folder, const nn::gpt_config& model) {
    return detail::peft_options_in(folder, detail::peft_layout_of(model));
}

namespace detail {

/// Throws Error, in which `where` is the file, unless the model's adapters, and what it trains besides, are those of the
/// options.
template <class Error>
void compare_adapters(const std::string& where, const char* reader, const store& parameters, const peft_layout& model,
                      const adapter_options& there) {
    const peft_file_names names(parameters, model, nullptr);
    std::map<std::string, const store_adapter*> here;
    for (const store_adapter& a : parameters.adapters().all()) here[a.path] = &a;
    const std::string remedy = sentence("; give ", reader, "'s options to ht::add_adapters before the model is made");
    for (const peft_module& m : model.modules) {
        const bool is_trained = std::find(there.trained.begin(), there.trained.end(), m.layer) != there.trained.end();
        const bool trains = names.saved().count(m.there) != 0;
        if (is_trained && !trains)
            fail<Error>(where, ": ", m.there, " is in modules_to_save, and the model does not train it", remedy);
        if (trains && !is_trained)
            fail<Error>(where, ": ", m.there, " is not in modules_to_save, and the model trains it", remedy);
        if (m.adapter.empty()) continue;
        const auto want = chosen_adapter(there, m.adapter);
        const auto found = here.find(m.adapter);
        if (want && found == here.end())
            fail<Error>(where, ": ", m.there, " has an adapter, and the model has none at ", m.adapter, remedy);
        if (!want && found != here.end())
            fail<Error>(where, ": ", m.there, " has no adapter, and the model has one at ", m.adapter, remedy);
        if (!want) continue;
        const store_adapter& have = *found->second;
        if (want->rank != have.rank)
            fail<Error>(where, ": the adapter of ", m.there, " has rank ", want->rank, ", that of the model ",
                        have.rank, remedy);
        if (want->scale != have.scale)
            fail<Error>(where, ": the adapter of ", m.there, " is multiplied by ", want->scale,
                        ", that of the model by ", have.scale, remedy);
    }
}

inline void load_peft(store& parameters, const peft_layout& model, const std::filesystem::path& folder) {
    expect_adapters("load_peft", parameters);
    compare_adapters<safetensors_error>((folder / peft_config_name).string(), "ht::read_peft_config", parameters, model,
                                        peft_options_in(folder, model));
    const std::filesystem::path file = folder / peft_weights_name;
    if (!is_there(file) && is_there(folder / "adapter_model.bin"))
        fail<io_error>("io: ", folder.string(),
                       " has adapter_model.bin, a pickle of Python, which may run any code; save the adapter with "
                       "safe_serialization=True as ",
                       peft_weights_name);
    const tensor_files files(file);
    const peft_file_names names(parameters, model, &files);
    load_weights_of(parameters, files, file.string(), names.options<load_weights_options>());
}

inline void save_peft(const store& parameters, const peft_layout& model, const std::filesystem::path& folder,
                      const std::string& base, dtype type) {
    expect_adapters("save_peft", parameters);
    const peft_file_names names(parameters, model, nullptr);
    auto options = names.options<save_weights_options>();
    options.type = type;
    const std::string config = peft_config_of(parameters, model, names.saved(), base).dump(2) + '\n';
    const auto sources = weight_sources(parameters, options);
    on_ranks_of(parameters, "save_peft.write", [&] {
        if (!is_writer(parameters)) return follow_writer(sources, peft_weights_name, options.max_shard_bytes);
        std::error_code failed;
        std::filesystem::create_directories(folder, failed);
        if (failed) fail<io_error>("io: cannot make the folder ", folder.string(), ": ", failed.message());
        // Both are complete before one of them replaces an earlier file.
        durable_file weights(folder / peft_weights_name), description(folder / peft_config_name);
        description.write(config.data(), config.size());
        write_safetensors_to(weights, sources, options.metadata);
        weights.commit();
        description.commit();
    });
}

}  // namespace detail

/// Reads the adapters of a folder of PEFT, and the layers of modules_to_save, into a model whose adapters are those of its
/// adapter_config.json. All or nothing, as load_weights: throws io_error, and safetensors_error for adapters at other layers, of another
/// rank or another scale than the model's, and for tensors that are missing, unexpected or of another shape, all by name. Names may have
/// PEFT's "default" in them.
template <class P, nn::qk_norm Norm>
void load_peft(nn::llama<P, Norm>& model, const std::filesystem::path& folder) {
    detail::load_peft(model.parameters(), detail::peft_layout_of(model), folder);
}
/// Reads a folder of PEFT into a GPT-2 with its adapters.
template <class P>
void load_peft(nn::gpt<P>& model, const std::filesystem::path& folder) {
    detail::load_peft(model.parameters(), detail::peft_layout_of(model), folder);
}

/// How adapters are saved for PEFT.
struct save_peft_options {
    std::string base{};       ///< base_model_name_or_path: a folder of transformers, or a name on the Hugging Face Hub
    dtype type = dtype::f32;  ///< of all tensors in the file
};

/// Writes a model's adapters, and the layers of its base that are trained besides, into a folder that PEFT loads. An earlier adapter in it is
/// replaced when all is written. Of a model that is divided among ranks, all of them call it. Throws io_error; state_error for a model without
/// adapters, and after ht::merge_adapters; argument_error for a layer that is trained and has an adapter, too, and for a trained table of
/// tokens that is the head.
template <class P, nn::qk_norm Norm>
void save_peft(const nn::llama<P, Norm>& model, const std::filesystem::path& folder, const save_peft_options& o = {}) {
    detail::save_peft(model.parameters(), detail::peft_layout_of(model), folder, o.base, o.type);
}
/// Writes the adapters of a GPT-2 into a folder that PEFT loads.
template <class P>
void save_peft(const nn::gpt<P>& model, const std::filesystem::path& folder, const save_peft_options& o = {}) {
    detail::save_peft(model.parameters(), detail::peft_layout_of(model), folder, o.base, o.type);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
