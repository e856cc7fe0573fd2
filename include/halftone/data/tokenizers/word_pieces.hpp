// SPDX-License-Identifier: MIT
/// \file
/// WordPiece as BERT has it: a word becomes the longest token that it begins with, then the longest that continues it, and so on; a
/// word that this leaves unfinished becomes the unknown token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <halftone/data/tokenizers/token_table.hpp>
#include <halftone/data/tokenizers/unicode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What a model of word pieces is made of.
struct word_piece_model {
    token_table first{0};       ///< tokens as they stand in the vocabulary
    token_table continuing{0};  ///< those with the prefix of continuing pieces ("##"), without it
    std::int32_t unknown = 0;
    std::size_t most_characters = 100;  ///< a word of more becomes the unknown token
};

/// Parts words. Several threads may do so at once.
class word_pieces {
  public:
    explicit word_pieces(word_piece_model model) : model_(std::move(model)) {}

    /// Appends the ids of a word.
    void encode(std::string_view word, std::vector<std::int32_t>& to) const {
        const auto characters = std::count_if(word.begin(), word.end(), [](char c) { return !unicode::continues(c); });
        const std::size_t before = to.size();
        bool known = static_cast<std::size_t>(characters) <= model_.most_characters;
        for (std::size_t at = 0; known && at < word.size();) {
            const token_table& table = at == 0 ? model_.first : model_.continuing;
            std::size_t size = std::min(word.size() - at, table.longest());
            std::int32_t id = token_table::none;
            for (; size != 0; --size) {
                if (at + size < word.size() && unicode::continues(word[at + size])) continue;  // within a character
                id = table.find(word.substr(at, size));
                if (id >= 0) break;
            }
            known = id >= 0;
            if (known) to.push_back(id);
            at += size;
        }
        if (known) return;
        to.resize(before);
        to.push_back(model_.unknown);
    }

  private:
    word_piece_model model_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
