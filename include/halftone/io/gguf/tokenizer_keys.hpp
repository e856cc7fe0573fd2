// SPDX-License-Identifier: MIT
/// \file
/// What a GGUF file says of its model's tokenizer, as plain data.
///
///     const ht::gguf_tokenizer t = ht::read_gguf_tokenizer(file.metadata());
///     t.model;          // "gpt2": byte-level pairs, merged by t.merges; "llama": pieces with t.scores; "bert": WordPiece
///     t.tokens[65];     // as in the file: of byte-level pairs with GPT-2's letters for bytes
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <halftone/io/gguf/metadata.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The keys "tokenizer.*" of a GGUF file. What the file does not have is empty: llama.cpp takes token 11 for ids that are missing.
struct gguf_tokenizer {
    std::string model;  ///< tokenizer.ggml.model
    std::string pre;    ///< tokenizer.ggml.pre: how text is split before pairs are merged, "llama-bpe" say
    std::vector<std::string> tokens;       ///< a token's text, by its id
    std::vector<std::int64_t> token_type;  ///< 1: normal, 2: unknown, 3: control, 4: user-defined, 5: unused, 6: a byte
    std::vector<double> scores;
    std::vector<std::string> merges;                                                    ///< "t h", by rank
    std::optional<std::int64_t> bos, eos, eot, eom, unknown, separator, padding, mask;  ///< ids of special tokens
    std::optional<bool> add_bos, add_eos, add_space_prefix;
    std::string chat_template;
};

/// What a file's keys say of its tokenizer. Throws gguf_error if there is none, if tokens, their types and scores are not as many, or if
/// the id of a special token is that of no token.
inline gguf_tokenizer read_gguf_tokenizer(const gguf_metadata& keys) {
    const std::string begin = "tokenizer.ggml.";
    gguf_tokenizer t;
    t.model = keys.text(begin + "model");
    t.pre = keys.text(begin + "pre", "");
    t.tokens = keys.texts(begin + "tokens");
    t.token_type = keys.integers(begin + "token_type");
    t.scores = keys.numbers(begin + "scores");
    t.merges = keys.texts(begin + "merges");
    t.chat_template = keys.text("tokenizer.chat_template", "");
    const auto count = static_cast<std::int64_t>(t.tokens.size());
    const auto check_count = [&](const char* key, std::size_t there) {
        if (there != 0 && there != t.tokens.size())
            fail<gguf_error>(keys.where(), ": ", begin, key, " has ", there, " elements, ", begin, "tokens ", count);
    };
    check_count("token_type", t.token_type.size());
    check_count("scores", t.scores.size());
    const struct {
        const char* key;
        std::optional<std::int64_t>& id;
    } ids[]{{"bos_token_id", t.bos},         {"eos_token_id", t.eos},         {"eot_token_id", t.eot},
            {"eom_token_id", t.eom},         {"unknown_token_id", t.unknown}, {"seperator_token_id", t.separator},
            {"padding_token_id", t.padding}, {"mask_token_id", t.mask}};
    for (const auto& each : ids) {
        if (!keys.has(begin + each.key)) continue;
        each.id = keys.integer(begin + each.key);
        if (*each.id < 0 || *each.id >= count)
            fail<gguf_error>(keys.where(), ": ", begin, each.key, " is ", *each.id, "; there are ", count, " tokens");
    }
    const struct {
        const char* key;
        std::optional<bool>& flag;
    } flags[]{{"add_bos_token", t.add_bos}, {"add_eos_token", t.add_eos}, {"add_space_prefix", t.add_space_prefix}};
    for (const auto& each : flags) {
        if (keys.has(begin + each.key)) each.flag = keys.flag(begin + each.key);
    }
    return t;
}

namespace detail {

/// The keys that say this of a tokenizer: what is empty has none, but merges, without which llama.cpp loads no byte-level pairs.
inline gguf_keys gguf_keys_of(const gguf_tokenizer& t) {
    const std::string begin = "tokenizer.ggml.";
    gguf_keys keys{{begin + "model", gguf_value_of(t.model)}, {begin + "tokens", gguf_value_of(t.tokens)}};
    if (!t.pre.empty()) keys[begin + "pre"] = gguf_value_of(t.pre);
    if (!t.token_type.empty())
        keys[begin + "token_type"] = gguf_value_of(std::vector<std::int32_t>(t.token_type.begin(), t.token_type.end()));
    if (!t.scores.empty()) keys[begin + "scores"] = gguf_value_of(std::vector<float>(t.scores.begin(), t.scores.end()));
    if (t.model == "gpt2" || !t.merges.empty()) keys[begin + "merges"] = gguf_value_of(t.merges);
    const std::pair<const char*, std::optional<std::int64_t>> ids[]{
        {"bos_token_id", t.bos},         {"eos_token_id", t.eos},         {"eot_token_id", t.eot},
        {"eom_token_id", t.eom},         {"unknown_token_id", t.unknown}, {"seperator_token_id", t.separator},
        {"padding_token_id", t.padding}, {"mask_token_id", t.mask}};
    for (const auto& [key, id] : ids) {
        if (id) keys[begin + key] = gguf_value_of(static_cast<std::uint32_t>(*id));
    }
    const std::pair<const char*, std::optional<bool>> flags[]{
        {"add_bos_token", t.add_bos}, {"add_eos_token", t.add_eos}, {"add_space_prefix", t.add_space_prefix}};
    for (const auto& [key, flag] : flags) {
        if (flag) keys[begin + key] = gguf_value_of(*flag);
    }
    if (!t.chat_template.empty()) keys["tokenizer.chat_template"] = gguf_value_of(t.chat_template);
    return keys;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
