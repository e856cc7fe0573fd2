// SPDX-License-Identifier: MIT
/// \file
/// Which of the templates of chat.hpp a model was trained with, from what its folder or its GGUF file has of it: a Jinja program.
///
///     const std::optional<ht::chat_template> of = ht::read_chat_template("Qwen2.5-0.5B-Instruct");
///     if (!of) ...                                        // a model that continues text, and knows no turns
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <halftone/data/chat.hpp>
#include <halftone/io/file.hpp>
#include <halftone/io/strict_json.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The texts that a template's program has, and those by which programs that render something else are told from it: a line's end is
/// spelt in a program, a backslash and an n.
struct known_chat_program {
    chat_template of;
    std::string_view has[3], lacks[6];  // fewer than so many: the rest is empty
};

/// In the order in which they are tried. What others have: images, thoughts that an answer begins with, a first token.
inline constexpr known_chat_program known_chat_programs[] = {
    {chat_template::llama3_2, {"<|start_header_id|>", "trim", "strftime_now"}, {"image", "think"}},
    {chat_template::llama3_1, {"<|start_header_id|>", "trim", "26 Jul 2024"}, {"image", "think"}},
    {chat_template::llama3,
     {"<|start_header_id|>", "trim"},
     {"Knowledge Date", "system<|end_header_id|>", "You are a", "image", "think"}},
    {chat_template::qwen3,
     {"<|im_start|>", "enable_thinking", "<think>\\n\\n</think>\\n\\n"},
     {"You are a", "trim", "bos_token", "'<think>\\n'", "'<think>\\n\\n'", "assistant\\n<think>\\n'"}},
    {chat_template::qwen2_5,
     {"<|im_start|>", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
     {"trim", "bos_token", "think"}},
    {chat_template::chatml, {"<|im_start|>"}, {"You are a", "trim", "bos_token", "think", "capitalize"}},
    // Earlier Mistrals have blanks around the question, later ones a turn of the system's.
    {chat_template::mistral, {"[INST]", "[/INST]"}, {"[INST] ", " [/INST]", "[SYSTEM_PROMPT]", "[THINK]"}},
};

/// Without what Jinja takes for comments.
inline std::string without_jinja_comments(std::string_view jinja) {
    std::string rest;
    while (true) {
        const std::size_t begin = jinja.find("{#");
        rest += jinja.substr(0, begin);
        const std::size_t end = begin == jinja.npos ? begin : jinja.find("#}", begin);
        if (end == jinja.npos) return rest;
        jinja.remove_prefix(end + 2);
    }
}

/// Whether a program writes a system message of its own: more than the turn's beginning stands in its text.
inline bool has_system_message(std::string_view jinja) {
    constexpr std::string_view begin = "<|im_start|>system";
    for (std::size_t at = jinja.find(begin); at != jinja.npos; at = jinja.find(begin, at + 1)) {
        std::string_view rest = jinja.substr(at + begin.size());
        for (const std::string_view line_end : {"\n", "\\n"}) {
            if (rest.starts_with(line_end)) rest.remove_prefix(line_end.size());
        }
        if (!rest.empty() && rest[0] != '\'' && rest[0] != '"') return true;
    }
    return false;
}

}  // namespace detail

/// The template that a Jinja program renders, by the texts that stand in it; nothing for one that is none of them. A program that
/// somebody has changed elsewhere is taken for the original.
inline std::optional<chat_template> recognize_chat_template(std::string_view jinja) {
    const std::string program = detail::without_jinja_comments(jinja);
    const auto has = [&](std::string_view text) { return program.find(text) != program.npos; };
    const auto has_other = [&](std::string_view text) { return !text.empty() && has(text); };
    for (const detail::known_chat_program& known : detail::known_chat_programs) {
        if (!std::all_of(std::begin(known.has), std::end(known.has), has)) continue;
        if (std::any_of(std::begin(known.lacks), std::end(known.lacks), has_other)) continue;
        if (known.of != chat_template::qwen2_5 && detail::has_system_message(program)) return std::nullopt;
        return known.of;
    }
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
    if (!is_there(path)) fail<io_error>("io: there is no ", path.string());
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
