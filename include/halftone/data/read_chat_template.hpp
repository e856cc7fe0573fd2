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

/// The Jinja program of chat_template in tokenizer_config.json: a text, or the one named "default" of several; nothing if there is
/// no text.
inline std::optional<std::string> chat_program_of_key(const nlohmann::json& there) {
    if (there.is_string()) return there.get<std::string>();
    if (there.is_object() && there.contains("default")) return chat_program_of_key(there["default"]);
    if (!there.is_array()) return std::nullopt;
    for (const nlohmann::json& each : there) {
        if (each.is_object() && each.contains("name") && each["name"] == "default" && each.contains("template"))
            return chat_program_of_key(each["template"]);
    }
    return std::nullopt;
}

/// The Jinja program of a folder, or of that of a file: chat_template.jinja, or chat_template of tokenizer_config.json. Empty if
/// there is none.
inline std::string chat_program_of_folder(const std::filesystem::path& path) {
    constexpr std::uint64_t most = std::uint64_t{1} << 26;
    if (!is_there(path)) fail_io("find", path, ENOENT);
    const auto folder = is_folder(path) ? path : path.parent_path();
    if (const auto file = folder / "chat_template.jinja"; is_there(file)) return read_small_file(file, most);
    const auto file = folder / "tokenizer_config.json";
    if (!is_there(file)) return "";
    const nlohmann::json keys = parse_json<data_error>(file.string(), read_small_file(file, most));
    if (!keys.is_object()) fail<data_error>("chat: ", file.string(), " is no object");
    if (!keys.contains("chat_template") || keys["chat_template"].is_null()) return "";
    const auto program = chat_program_of_key(keys["chat_template"]);
    if (!program)
        fail<data_error>("chat: chat_template of ", file.string(), " is ", shown(keys["chat_template"].dump()),
                         "; expected a text, or a list with one named default");
    return *program;
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
