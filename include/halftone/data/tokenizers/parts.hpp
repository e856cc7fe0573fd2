// SPDX-License-Identifier: MIT
/// \file
/// What a tokenizer is made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include <halftone/data/tokenizers/added_tokens.hpp>
#include <halftone/data/tokenizers/byte_pairs.hpp>
#include <halftone/data/tokenizers/normalizer.hpp>
#include <halftone/data/tokenizers/pattern.hpp>
#include <halftone/data/tokenizers/splitter.hpp>
#include <halftone/data/tokenizers/unicode.hpp>
#include <halftone/data/tokenizers/word_pieces.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// How tokens become text again.
struct token_decoder {
    enum class kind {
        bytes,        ///< characters that stand for bytes
        word_pieces,  ///< with blanks between tokens that do not begin with `prefix`
        blanks,       ///< with blanks between all tokens
    };
    kind by = kind::blanks;
    std::string prefix = "##";
    bool cleanup = true;  ///< of blanks before punctuation
};

struct tokenizer_parts {
    unicode::categories categories{};
    text_normalizer normalizer{};
    text_splitter splitter{};
    std::variant<byte_pairs, word_pieces> model;
    std::vector<std::string> tokens{};  ///< by id; empty where there is none
    std::unordered_map<std::string, std::int32_t> ids{};
    std::vector<added_token> added{};
    std::unordered_map<std::int32_t, const added_token*> added_by_id{};
    added_token_finder as_written{}, normalized{};  ///< the added tokens to look for in a text, and in normalized text
    std::vector<std::int32_t> before{}, behind{};   ///< what the post-processor puts around a text
    token_decoder decoder{};

    /// Appends a text's ids.
    void encode(std::string_view text, bool special, std::vector<std::int32_t>& to) const {
        std::string memory;
        std::uint64_t attempts = pattern::most_attempts(text.size());
        const auto found = [&](const added_token& token) { to.push_back(token.id); };
        const auto word = [&](std::string_view piece) {
            std::visit([&](const auto& m) { m.encode(piece, to); }, model);
        };
        const auto of_normalized = [&](std::string_view piece) { splitter(piece, categories, attempts, word); };
        const auto of_written = [&](std::string_view piece) {
            normalized.each(normalizer(piece, memory), special, categories, of_normalized, found);
        };
        as_written.each(text, special, categories, of_written, found);
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
