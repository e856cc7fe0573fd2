// SPDX-License-Identifier: MIT
/// \file
/// Models of Hugging Face's transformers: BERT, GPT-2, and Llama, Mistral, Qwen2 and Qwen3, from their folders and back; all but BERT and
/// GPT-2 from GGUF files, too.
///
///     if (ht::read_model_type(folder) == "gpt2") ...          // else "bert", "llama", "mistral", "qwen2", "qwen3"
///     ht::load_pretrained(model, folder);
///     ht::save_pretrained(model, "tuned", {.like = folder});
#pragma once

#include <string>

#include <halftone/io/pretrained/bert.hpp>
#include <halftone/io/pretrained/folder.hpp>
#include <halftone/io/pretrained/gpt2.hpp>
#include <halftone/io/pretrained/llama.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The architecture of a folder of transformers, or of its config.json: model_type; of a GGUF file "llama", "qwen2" or "qwen3". Throws
/// io_error, and safetensors_error or gguf_error if there is none, or one that halftone has no model for.
inline std::string read_model_type(const std::filesystem::path& path) {
    if (detail::is_gguf(path)) return detail::read_llama_gguf(gguf_file(path)).model_type;
    const detail::config_reader config(path);
    const nlohmann::json type = config.has("model_type") ? config["model_type"] : nlohmann::json();
    for (const char* const known : {"bert", "gpt2", "llama", "mistral", "qwen2", "qwen3"}) {
        if (type == known) return known;
    }
    fail<safetensors_error>(config.where(), ": model_type is ", detail::shown(type.dump()),
                            R"(; expected "bert", "gpt2", "llama", "mistral", "qwen2" or "qwen3")");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
