// SPDX-License-Identifier: MIT
/// \file
/// Tokens that are found in a text before it is parted into pieces, such as <|endoftext|>.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <halftone/data/tokenizers/unicode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// An entry of a tokenizer's added_tokens.
struct added_token {
    std::string content;
    std::int32_t id = 0;
    bool single_word = false;  ///< the token counts only where no part of a word stands on either side
    bool takes_left = false;   ///< the token takes the white space on its left with it: lstrip
    bool takes_right = false;  ///< the token takes the white space on its right with it: rstrip
    bool normalized = true;    ///< the token is found, normalized itself, in normalized text
    bool special = false;
    std::string text{};  ///< what is looked for: the content, normalized if `normalized`
};

/// Finds added tokens: of those that begin leftmost the longest, and on behind it.
class added_token_finder {
  public:
    /// Adds a token to look for. Returns false if its text is there already, or empty.
    bool add(const added_token& token) {
        if (token.text.empty()) return false;
        std::uint32_t node = 0;
        for (const char byte : token.text) {
            const auto [next, added] = next_.try_emplace(key(node, byte), static_cast<std::uint32_t>(tokens_.size()));
            if (added) tokens_.push_back(nullptr);
            node = next->second;
        }
        if (tokens_[node] != nullptr) return false;
        tokens_[node] = &token;
        const std::size_t first = static_cast<unsigned char>(token.text[0]);
        if (token.text.size() > 1)
            begins_.set(256 * first + static_cast<unsigned char>(token.text[1]));
        else
            for (std::size_t second = 0; second < 256; ++second) begins_.set(256 * first + second);
        ends_with_.set(first, token.text.size() == 1 || ends_with_[first]);
        empty_ = false;
        return true;
    }

    /// Calls piece(text) for what is no token, and found(token) for tokens, from left to right. With `special` false special ones
    /// are text, which nothing shorter is looked for in.
    template <class Piece, class Found>
    void each(std::string_view text, bool special, const unicode::categories& categories, const Piece& piece,
              const Found& found) const {
        std::size_t done = 0, spaces_end = 0;
        for (std::size_t at = 0; !empty_ && at < text.size();) {
            const added_token* const token = find(text, at);
            if (token == nullptr) break;
            std::size_t first = at, last = at + token->text.size();
            at = last;
            if (token->special && !special) continue;
            if (token->single_word && touches_word(text, first, last, categories)) continue;
            if (token->takes_left) first = std::max(done, unicode::begin_of_run(text, first, done, unicode::is_space));
            if (token->takes_right)
                last = spaces_end = last < spaces_end ? spaces_end : unicode::end_of_run(text, last, unicode::is_space);
            if (first >= last) continue;  // white space, which the token before has taken with it
            if (done < first) piece(text.substr(done, first - done));
            found(*token);
            done = last;
        }
        if (done < text.size()) piece(text.substr(done));
    }

  private:
    static std::uint64_t key(std::uint32_t node, char byte) {
        return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
    }
    /// Whether a token begins with the two bytes at `at`, or, at the end, is the last byte.
    bool may_begin(std::string_view text, std::size_t at) const {
        const std::size_t first = static_cast<unsigned char>(text[at]);
        return at + 1 == text.size() ? ends_with_[first]
                                     : begins_[256 * first + static_cast<unsigned char>(text[at + 1])];
    }
    /// The longest token that begins at `at`, or at the first place behind it where one begins.
    const added_token* find(std::string_view text, std::size_t& at) const {
        for (; at < text.size(); ++at) {
            if (!may_begin(text, at)) continue;
            const added_token* longest = nullptr;
            std::uint32_t node = 0;
            for (std::size_t i = at; i < text.size(); ++i) {
                const auto next = next_.find(key(node, text[i]));
                if (next == next_.end()) break;
                node = next->second;
                if (tokens_[node] != nullptr) longest = tokens_[node];
            }
            if (longest != nullptr) return longest;
        }
        return nullptr;
    }
    static bool touches_word(std::string_view text, std::size_t first, std::size_t last,
                             const unicode::categories& categories) {
        return (first != 0 && categories.is_of_word(unicode::decode_before(text.data() + first).value)) ||
               (last != text.size() && categories.is_of_word(unicode::decode(text.data() + last).value));
    }
    bool empty_ = true;
    std::bitset<65536> begins_{};                            ///< by the first two bytes
    std::bitset<256> ends_with_{};                           ///< tokens of one byte
    std::unordered_map<std::uint64_t, std::uint32_t> next_;  ///< a trie: from a node and a byte to the next node
    std::vector<const added_token*> tokens_{nullptr};        ///< that end at a node
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
