// SPDX-License-Identifier: MIT
/// \file
/// What a GGUF file says of the tokenizer of a tokenizer.json: tokens, their types, merges, and the name of the way to part texts.
///
///     const detail::gguf_tokenizer_file t = detail::gguf_tokenizer_of("tokenizer.json", json, 128256);
///     t.keys.pre;                  // "llama-bpe"
///     t.parts->before;             // the ids that stand before each text
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/data/tokenizers/file.hpp>
#include <halftone/data/tokenizers/gguf.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Appends the steps of a pre_tokenizer, those of a Sequence one by one, with what they compute and nothing else.
inline void append_steps(nlohmann::json& to, const nlohmann::json& part) {
    if (!part.is_object()) return;
    const auto type = part.value("type", "");
    if (type == "Sequence") {
        for (const nlohmann::json& inner : part.at("pretokenizers")) append_steps(to, inner);
    } else if (type == "ByteLevel") {
        to.push_back({type, part.value("add_prefix_space", true), part.value("use_regex", true)});
    } else if (type == "Split") {
        to.push_back({type, part.at("pattern"), part.at("behavior"), part.value("invert", false)});
    } else if (type == "Digits") {
        to.push_back({type, part.value("individual_digits", false)});
    } else {
        to.push_back(part);
    }
}
/// The normalizers of a file, those of a Sequence one by one.
inline void append_normalizers(nlohmann::json& to, const nlohmann::json& part) {
    if (!part.is_object()) return;
    if (part.value("type", "") != "Sequence") return to.push_back(part.at("type"));
    for (const nlohmann::json& inner : part.at("normalizers")) append_normalizers(to, inner);
}

/// The value of tokenizer.ggml.pre of a tokenizer.json that has been read without an error. llama.cpp composes no texts: of a model
/// that is known for NFC the file may have it or not.
inline std::string gguf_pre_of(const std::string& where, const nlohmann::json& file) {
    using json = nlohmann::json;
    const auto part_of = [&file](const char* key) { return file.contains(key) ? file[key] : json(); };
    json steps = json::array(), normalizers = json::array();
    append_steps(steps, part_of("pre_tokenizer"));
    append_normalizers(normalizers, part_of("normalizer"));
    const json whole_words = file["model"].contains("ignore_merges") ? file["model"]["ignore_merges"] : json(false);
    for (const gguf_pre_tokenizer& known : gguf_pre_tokenizers) {
        json of_known = json::array();
        append_steps(of_known, pre_tokenizer_of(known));
        const bool is_composed = known.composed && normalizers == json::array({"NFC"});
        if (steps == of_known && (normalizers.empty() || is_composed) && whole_words == known.whole_words)
            return known.name;
    }
    fail<data_error>(
        where,
        ": parts texts in a way that halftone has no tokenizer.ggml.pre for; expected that of GPT-2, Llama "
        "3, Qwen2 or SmolLM, or .pre of ht::save_gguf");
}

/// A tokenizer.json as keys of a GGUF file, without ids of special tokens, and as what halftone made of it.
struct gguf_tokenizer_file {
    gguf_tokenizer keys;
    std::shared_ptr<const tokenizer_parts> parts;
};

/// Merges as texts, "t h". Of a merge that is there twice the last rank counts in tokenizers and the first one in llama.cpp, so the
/// last alone is kept.
inline std::vector<std::string> gguf_merges_of(const std::string& where, const nlohmann::json& merges) {
    std::vector<std::string> all;
    std::unordered_set<std::string> seen;
    for (std::size_t i = merges.size(); i-- > 0;) {
        const nlohmann::json& merge = merges[i];
        std::string text;
        if (merge.is_string()) {
            text = merge.get<std::string>();
            if (text.starts_with("#version")) continue;
        } else {
            const auto &left = merge[0].get_ref<const std::string&>(), &right = merge[1].get_ref<const std::string&>();
            if (left.find(' ') != left.npos || right.find(' ') != right.npos)
                fail<data_error>(where, ": model.merges[", i, "] has a token with a blank, which no GGUF file has");
            text = left + ' ' + right;
        }
        if (seen.insert(text).second) all.push_back(std::move(text));
    }
    std::reverse(all.begin(), all.end());
    return all;
}

/// The tokens of a model's table of `rows` rows and their types. Ids that no token has are unused tokens, named as llama.cpp's
/// converter does it, and as no other token is.
inline void add_gguf_tokens(const std::string& where, const tokenizer_parts& parts, extent rows, gguf_tokenizer& to) {
    constexpr std::int64_t normal = 1, control = 3, user_defined = 4, unused = 5;
    if (static_cast<extent>(parts.tokens.size()) > rows)
        fail<data_error>(where, ": the largest id is ", parts.tokens.size() - 1, "; the model's table has ", rows,
                         " rows");
    to.tokens = parts.tokens;
    to.tokens.resize(static_cast<std::size_t>(rows));
    to.token_type.assign(to.tokens.size(), normal);
    for (std::size_t id = 0; id < to.tokens.size(); ++id) {
        if (!to.tokens[id].empty()) continue;
        to.token_type[id] = unused;
        to.tokens[id] = "[PAD" + std::to_string(id) + "]";
        while (parts.ids.count(to.tokens[id]) != 0) to.tokens[id] += '_';
    }
    for (const added_token& token : parts.added) {
        if (token.takes_left || token.takes_right || token.single_word || token.text != token.content)
            fail<data_error>(
                where, ": added_tokens: ", shown(token.content),
                " is looked for with lstrip, rstrip or single_word, or normalized, of which a GGUF file says nothing");
        to.token_type[static_cast<std::size_t>(token.id)] = token.special ? control : user_defined;
    }
}

/// A tokenizer.json for a model whose table of tokens has `rows` rows; `pre`, if it is not empty, is tokenizer.ggml.pre. Throws
/// data_error for what is no byte-level BPE, is not computed, or cannot be said in a GGUF file.
inline gguf_tokenizer_file gguf_tokenizer_of(const std::string& where, const nlohmann::json& file, extent rows,
                                             const std::string& pre = "") {
    gguf_tokenizer_file made;
    made.parts = tokenizer_file(where, file).read();
    if (!std::holds_alternative<byte_pairs>(made.parts->model))
        fail<data_error>(where, ": model.type is \"WordPiece\"; expected \"BPE\", of bytes");
    made.keys.model = "gpt2";
    made.keys.pre = pre.empty() ? gguf_pre_of(where, file) : pre;
    made.keys.merges = gguf_merges_of(where, file["model"]["merges"]);
    add_gguf_tokens(where, *made.parts, rows, made.keys);
    return made;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
