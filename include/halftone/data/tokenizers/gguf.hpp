// SPDX-License-Identifier: MIT
/// \file
/// The tokenizer.json that a GGUF file's keys stand for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/data/data_error.hpp>
#include <halftone/data/tokenizers/file.hpp>
#include <halftone/data/tokenizers/unicode.hpp>
#include <halftone/io/gguf/tokenizer_keys.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// How the models of one value of tokenizer.ggml.pre part texts.
struct gguf_pre_tokenizer {
    const char* name;
    const char* pattern;  ///< of a Split before ByteLevel; nullptr: ByteLevel's own
    bool single_digits;   ///< Digits before it
    bool composed;        ///< NFC, which a GGUF file does not tell of, and the model's own tokenizer has
    bool whole_words;     ///< ignore_merges
    bool begins;          ///< with the token bos, unless the file says otherwise
};
inline constexpr const char* llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr gguf_pre_tokenizer gguf_pre_tokenizers[] = {
    {"gpt-2", nullptr, false, false, false, false},
    {"llama-bpe", llama3_pattern, false, false, true, true},
    {"qwen2", qwen2_pattern, false, true, false, false},
    {"smollm", nullptr, true, false, false, false},
};

inline nlohmann::json pre_tokenizer_of(const gguf_pre_tokenizer& pre) {
    using json = nlohmann::json;
    json steps = json::array();
    if (pre.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    if (pre.pattern != nullptr)
        steps.push_back(
            {{"type", "Split"}, {"pattern", {{"Regex", pre.pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", pre.pattern == nullptr}});
    return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

/// Throws data_error for a tokenizer that is no byte-level BPE, and for a way to part texts that halftone does not know.
inline nlohmann::json tokenizer_json_of(const std::string& where, const gguf_tokenizer& t) {
    using json = nlohmann::json;
    if (t.model != "gpt2")
        fail<data_error>(where, ": tokenizer.ggml.model is ", shown(t.model), R"(; expected "gpt2", byte-level BPE)");
    const gguf_pre_tokenizer* pre = nullptr;
    for (const gguf_pre_tokenizer& known : gguf_pre_tokenizers) {
        if (t.pre == known.name) pre = &known;
    }
    if (pre == nullptr)
        fail<data_error>(where, ": tokenizer.ggml.pre is ", shown(t.pre),
                         "; expected \"gpt-2\", \"llama-bpe\", \"qwen2\" or \"smollm\"");
    constexpr std::int64_t control = 3, user_defined = 4, unused = 5;
    json vocabulary = json::object(), added = json::array(), merges = json::array();
    for (std::size_t id = 0; id < t.tokens.size(); ++id) {
        const char *const begin = t.tokens[id].data(), *const end = begin + t.tokens[id].size();
        if (unicode::first_invalid(begin, end) != end)
            fail<data_error>(where, ": tokenizer.ggml.tokens[", id, "] is not UTF-8");
        const std::int64_t type = id < t.token_type.size() ? t.token_type[id] : 1;
        if (type == unused) continue;  // a name for a row of the table that no token has, and no text
        if (!vocabulary.emplace(t.tokens[id], id).second)
            fail<data_error>(where, ": tokenizer.ggml.tokens has ", shown(t.tokens[id]), " twice");
        if (type != control && type != user_defined) continue;
        added.push_back({{"content", t.tokens[id]}, {"special", type == control}, {"normalized", false}});
    }
    for (const std::string& merge : t.merges) merges.push_back(merge);
    json file{{"added_tokens", std::move(added)},
              {"decoder", {{"type", "ByteLevel"}}},
              {"pre_tokenizer", pre_tokenizer_of(*pre)},
              {"model",
               {{"type", "BPE"},
                {"vocab", std::move(vocabulary)},
                {"merges", std::move(merges)},
                {"ignore_merges", pre->whole_words}}}};
    if (pre->composed) file["normalizer"] = {{"type", "NFC"}};

    json single = json::array(), special = json::object();
    const auto add = [&](std::int64_t id) {
        const std::string& token = t.tokens[static_cast<std::size_t>(id)];
        single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
        special[token] = {{"ids", json::array({id})}};
    };
    if (t.bos && t.add_bos.value_or(pre->begins)) add(*t.bos);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (t.eos && t.add_eos.value_or(false)) add(*t.eos);
    if (single.size() > 1)
        file["post_processor"] = {
            {"type", "TemplateProcessing"}, {"single", std::move(single)}, {"special_tokens", std::move(special)}};
    return file;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
