// SPDX-License-Identifier: MIT
/// \file
/// Which of the templates of chat.hpp a model was trained with, from what its folder or its GGUF file has of it: a Jinja program.
///
///     const std::optional<ht::chat_template> of = ht::read_chat_template("Qwen2.5-0.5B-Instruct");
///     if (!of) ...                                        // a model that continues text, and knows no turns
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <halftone/data/chat.hpp>
#include <halftone/io/file.hpp>
#include <halftone/io/strict_json.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The template that a Jinja program renders, by the texts that stand in it; nothing for one that is none of them. A program that
/// somebody has changed elsewhere is taken for the original.
inline std::optional<chat_template> recognize_chat_template(std::string_view jinja) {
    const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
    if (has("<|start_header_id|>")) {
        if (has("strftime_now")) return chat_template::llama3_2;
        if (has("26 Jul 2024")) return chat_template::llama3_1;
        if (has("Knowledge Date")) return std::nullopt;
        return chat_template::llama3;
    }
    if (has("<|im_start|>")) {
        if (has("enable_thinking")) return chat_template::qwen3;
        if (has("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")) return chat_template::qwen2_5;
        if (has("You are ")) return std::nullopt;  // another system message of its own, such as that of Qwen2
        return chat_template::chatml;
    }
    // Earlier Mistrals have blanks around the question.
    if (has("[INST]") && has("[/INST]") && !has("[INST] ") && !has(" [/INST]")) return chat_template::mistral;
    return std::nullopt;
}

namespace detail {

/// The Jinja program of a folder: chat_template.jinja, or chat_template of tokenizer_config.json, of several the one named
/// "default". Empty if there is none.
inline std::string chat_program_of_folder(const std::filesystem::path& folder) {
    constexpr std::uint64_t most = std::uint64_t{1} << 26;
    if (const auto file = folder / "chat_template.jinja"; std::filesystem::exists(file)) return read_small_file(file, most);
    const auto file = folder / "tokenizer_config.json";
    if (!std::filesystem::exists(file)) return "";
    const nlohmann::json keys = parse_json<data_error>(file.string(), read_small_file(file, most));
    if (!keys.is_object() || !keys.contains("chat_template")) return "";
    const nlohmann::json& there = keys["chat_template"];
    if (there.is_string()) return there;
    for (const nlohmann::json& each : there) {
        if (each.is_object() && each.value("name", nlohmann::json()) == "default" && each.contains("template") &&
            each["template"].is_string())
            return each["template"];
    }
    return "";
}

}  // namespace detail

/// The template of a folder of transformers or of a GGUF file; nothing if it has none. Throws data_error for one that is not known,
/// io_error, and gguf_error.
inline std::optional<chat_template> read_chat_template(const std::filesystem::path& path) {
    const std::string jinja = detail::is_gguf(path) ? read_gguf_tokenizer(gguf_file(path).metadata()).chat_template
                                                    : detail::chat_program_of_folder(path);
    if (jinja.empty()) return std::nullopt;
    const auto found = recognize_chat_template(jinja);
    if (!found)
        fail<data_error>("chat: ", path.string(), " has a template that is none of those halftone renders; name ",
                         detail::names_of_chat_templates(), " if it is the same text");
    return found;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
