// SPDX-License-Identifier: MIT
/// \file
/// What a GGUF file says of the tokenizer of a folder of transformers: tokenizer.json, with the ids of special tokens that
/// tokenizer_config.json, generation_config.json and config.json name, and the template of conversations.
///
///     const ht::gguf_tokenizer t = detail::gguf_tokenizer_of_folder("Llama-3.2-1B-Instruct", 128256);
///     t.eos;                       // 128009, <|eot_id|>
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/data/read_chat_template.hpp>
#include <halftone/data/tokenizers/gguf_keys.hpp>
#include <halftone/io/pretrained/folder.hpp>
#include <halftone/io/pretrained/generation_options.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The ids of special tokens that a folder's files name, for a tokenizer and a table of so many rows. An id that is no row's is none.
class special_token_ids {
  public:
    special_token_ids(const std::filesystem::path& folder, const tokenizer_parts& parts, extent rows)
        : parts_(parts), rows_(rows), config_(folder), generation_(generation_file_of(folder)) {
        if (const auto file = folder / "tokenizer_config.json"; is_there(file)) named_.emplace(file);
    }
    /// The id for a key such as "bos": bos_token of tokenizer_config.json, else bos_token_id of generation_config.json or config.json.
    std::optional<std::int64_t> operator()(const std::string& key) const {
        if (const auto id = named(key + "_token")) return id;
        for (const config_reader* const each : {&generation_, &config_}) {
            if (!each->has((key + "_token_id").c_str())) continue;
            const nlohmann::json id = (*each)[(key + "_token_id").c_str()];
            if (id.is_number_integer() && is_row(id.get<std::int64_t>())) return id.get<std::int64_t>();
        }
        return std::nullopt;
    }
    /// The tokens that end a text: eos_token of tokenizer_config.json, then those that end model.generate().
    std::vector<std::int64_t> ends() const {
        std::vector<std::int64_t> all;
        const auto add = [&all](std::int64_t id) {
            if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
        };
        if (const auto id = named("eos_token")) add(*id);
        for (const std::int32_t id : read_ends(generation_.has("eos_token_id") ? generation_ : config_)) {
            if (is_row(id)) add(id);
        }
        return all;
    }

  private:
    bool is_row(std::int64_t id) const { return id >= 0 && id < rows_; }
    std::optional<std::int64_t> named(const std::string& key) const {
        if (!named_ || !named_->has(key.c_str())) return std::nullopt;
        nlohmann::json token = (*named_)[key.c_str()];
        if (token.is_object() && token.contains("content")) token = nlohmann::json(token["content"]);
        const auto found = token.is_string() ? parts_.ids.find(token.get<std::string>()) : parts_.ids.end();
        return found == parts_.ids.end() ? std::nullopt : std::optional<std::int64_t>(found->second);
    }

    const tokenizer_parts& parts_;
    extent rows_;
    config_reader config_, generation_;
    std::optional<config_reader> named_{};
};

/// Whether a tokenizer puts a special token before, or behind, a text, which is then `id`. Throws data_error if it is another token
/// than the one known, or several, as llama.cpp puts bos and eos there.
inline bool is_put(const std::string& where, const char* name, const std::vector<std::int32_t>& there,
                   std::optional<std::int64_t>& id) {
    if (there.empty()) return false;
    if (!id) id = there[0];
    if (there.size() > 1 || there[0] != *id)
        fail<data_error>(where, ": post_processor puts other tokens around a text than ", name,
                         " alone, as llama.cpp does it");
    return true;
}

/// The tokenizer of a folder with a config.json for a model whose table of tokens has `rows` rows; `pre` is as in gguf_tokenizer_of. Of
/// the tokens that end a text three are kept: eos, eot and eom. Throws data_error, also if no token ends a text; io_error; and
/// safetensors_error for a damaged file of keys.
inline gguf_tokenizer gguf_tokenizer_of_folder(const std::filesystem::path& folder, extent rows,
                                               const std::string& pre = "") {
    constexpr std::uint64_t most = std::uint64_t{1} << 28;
    const auto file = folder / "tokenizer.json";
    const std::string where = file.string();
    if (!is_there(file)) fail<data_error>("tokenizer: there is no ", where);
    gguf_tokenizer_file made =
        gguf_tokenizer_of(where, parse_json<data_error>(where, read_small_file(file, most)), rows, pre);
    gguf_tokenizer& keys = made.keys;
    const tokenizer_parts& parts = *made.parts;
    const special_token_ids ids(folder, parts, rows);
    keys.bos = ids("bos"), keys.padding = ids("pad"), keys.unknown = ids("unk");
    keys.add_bos = is_put(where, "bos_token", parts.before, keys.bos);
    std::vector<std::int64_t> ends = ids.ends();
    if (ends.empty())
        fail<data_error>(folder.string(),
                         ": names no token that ends a text, for which llama.cpp takes token 11; expected eos_token in "
                         "tokenizer_config.json, or eos_token_id in generation_config.json");
    if (!parts.behind.empty()) {
        // What stands behind each text is eos of llama.cpp, whichever of the ends it is.
        const auto found = std::find(ends.begin(), ends.end(), parts.behind[0]);
        if (found != ends.end()) std::rotate(ends.begin(), found, found + 1);
    }
    keys.eos = ends[0];
    keys.add_eos = is_put(where, "eos_token", parts.behind, keys.eos);
    if (ends.size() > 2 && keys.tokens[static_cast<std::size_t>(ends[1])].find("eom") != std::string::npos)
        std::swap(ends[1], ends[2]);
    if (ends.size() > 1) keys.eot = ends[1];
    if (ends.size() > 2) keys.eom = ends[2];
    keys.chat_template = chat_program_of_folder(folder);
    return std::move(made.keys);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
