// SPDX-License-Identifier: MIT
/// \file
/// Byte-pair encoding over bytes (Sennrich et al. 2016, Radford et al. 2019): a piece of text begins as bytes, and of all neighbours
/// that have a merge the pair whose merge stands first in the list is joined, the leftmost of equals, until none has one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halftone/data/tokenizers/token_table.hpp>
#include <halftone/data/tokenizers/unicode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The characters that stand for bytes in the files of byte-level tokenizers: printable ones for themselves, the others from U+0100 on.
class byte_alphabet {
  public:
    byte_alphabet() {
        bytes_.fill(-1);
        char32_t next = 0x100;
        for (unsigned byte = 0; byte < 256; ++byte) {
            const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
            characters_[byte] = printable ? byte : next++;
            bytes_[characters_[byte]] = static_cast<std::int16_t>(byte);
        }
    }
    char32_t operator[](unsigned char byte) const { return characters_[byte]; }
    /// The bytes that a token's characters stand for; nothing if one of them stands for none.
    std::optional<std::string> bytes(std::string_view token) const {
        std::string result;
        for (const char *at = token.data(), *const end = at + token.size(); at != end;) {
            const unicode::code_point c = unicode::decode(at);
            const std::int16_t byte = c.value < bytes_.size() ? bytes_[c.value] : std::int16_t{-1};
            if (byte < 0) return std::nullopt;
            result += static_cast<char>(static_cast<unsigned char>(byte));
            at += c.bytes;
        }
        return result;
    }

  private:
    std::array<char32_t, 256> characters_{};
    std::array<std::int16_t, 0x144> bytes_{};  ///< by character, -1 for one that stands for none
};

/// What merging a pair of tokens gives, and how early.
struct token_merge {
    std::uint32_t rank =
        std::numeric_limits<std::uint32_t>::max();  ///< its place in the list; the largest number if there is none
    std::int32_t id = -1;
    bool exists() const { return id >= 0; }
};

/// The merges, by pairs of ids.
class merge_table {
  public:
    explicit merge_table(std::size_t count) : slots_(std::bit_ceil(2 * count + 2)) {}
    /// Adds a merge; a pair that is there already gets the later rank.
    void add(std::int32_t left, std::int32_t right, token_merge merge) {
        slot& s = slots_[place(left, right)];
        s.pair = pair_of(left, right);
        s.merge = merge;
    }
    token_merge find(std::int32_t left, std::int32_t right) const { return slots_[place(left, right)].merge; }

  private:
    struct slot {
        std::uint64_t pair = 0;
        token_merge merge;
    };
    static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
        return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    }
    std::size_t place(std::int32_t left, std::int32_t right) const {
        const std::uint64_t pair = pair_of(left, right);
        std::size_t at = mixed(pair, pair >> 7) & (slots_.size() - 1);
        while (slots_[at].merge.exists() && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
        return at;
    }
    std::vector<slot> slots_;
};

/// What a model of byte pairs is made of.
struct byte_pair_model {
    std::array<std::int32_t, 256> byte_ids{};  ///< -1 for a byte that the vocabulary does not have
    merge_table merges{0};
    token_table words{0};  ///< pieces that are one token
    std::optional<std::int32_t>
        unknown{};              ///< stands for bytes that the vocabulary does not have; without it they are left out
    bool fuse_unknown = false;  ///< one for neighbours together
};

/// Joins the bytes of pieces of text to tokens. Several threads may do so at once.
class byte_pairs {
  public:
    /// `words`: tokens as bytes, and their ids. Those that the merges of their bytes give are found at once from then on; with
    /// `all_words` every one is, whatever its merges give (ignore_merges of tokenizers).
    byte_pairs(byte_pair_model model, const std::vector<std::pair<std::string, std::int32_t>>& words, bool all_words)
        : model_(std::move(model)) {
        token_table table(words.size());
        std::vector<std::int32_t> ids;
        for (const auto& [bytes, id] : words) {
            ids.clear();
            if (!all_words) merge(bytes, ids);
            if (all_words || (ids.size() == 1 && ids[0] == id)) table.add(bytes, id);
        }
        model_.words = std::move(table);
    }

    /// Appends the ids of a piece.
    void encode(std::string_view piece, std::vector<std::int32_t>& to) const {
        if (const std::int32_t id = model_.words.find(piece); id >= 0) return to.push_back(id);
        merge(piece, to);
    }
    /// The ids of a piece by its merges, whether or not it is a word.
    void merge(std::string_view piece, std::vector<std::int32_t>& to) const {
        constexpr std::size_t most_scanned = 32;
        if (piece.size() <= most_scanned) {
            std::array<std::int32_t, most_scanned> ids;
            std::size_t count = 0;
            begin(piece, [&](std::int32_t id) { ids[count++] = id; });
            count = merge_few(ids.data(), count);
            to.insert(to.end(), ids.data(), ids.data() + count);
        } else {
            std::vector<std::int32_t> ids;
            ids.reserve(piece.size());
            begin(piece, [&](std::int32_t id) { ids.push_back(id); });
            merge_many(ids, to);
        }
    }

  private:
    /// The ids of the bytes.
    template <class Add>
    void begin(std::string_view piece, const Add& add) const {
        bool was_unknown = false;
        for (const char byte : piece) {
            const std::int32_t id = model_.byte_ids[static_cast<unsigned char>(byte)];
            if (id >= 0)
                add(id);
            else if (model_.unknown && !(was_unknown && model_.fuse_unknown))
                add(*model_.unknown);
            was_unknown = id < 0;
        }
    }
    /// Looks for the first merge anew after each, which is fastest for few tokens. Returns how many are left.
    std::size_t merge_few(std::int32_t* ids, std::size_t count) const {
        std::array<token_merge, 32> merges;
        for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = model_.merges.find(ids[i], ids[i + 1]);
        while (count > 1) {
            std::size_t first = 0;
            for (std::size_t i = 1; i + 1 < count; ++i) {
                if (merges[i].rank < merges[first].rank) first = i;
            }
            if (!merges[first].exists()) break;
            ids[first] = merges[first].id;
            --count;
            for (std::size_t i = first + 1; i < count; ++i) ids[i] = ids[i + 1];
            for (std::size_t i = first + 1; i + 1 < count; ++i) merges[i] = merges[i + 1];
            if (first > 0) merges[first - 1] = model_.merges.find(ids[first - 1], ids[first]);
            if (first + 1 < count) merges[first] = model_.merges.find(ids[first], ids[first + 1]);
        }
        return count;
    }
    /// Keeps the merges in a queue: n log n for pieces of any length.
    void merge_many(const std::vector<std::int32_t>& ids, std::vector<std::int32_t>& to) const {
        struct token {
            std::int32_t id;
            std::size_t before, next;
        };
        struct candidate {
            std::uint32_t rank;
            std::size_t at;
            std::int32_t id;                                ///< what the pair becomes
            bool operator<(const candidate& other) const {  // the queue gives the largest first
                return rank != other.rank ? rank > other.rank : at > other.at;
            }
        };
        const std::size_t none = ids.size();
        std::vector<token> tokens(ids.size());
        std::priority_queue<candidate> queue;
        const auto offer = [&](std::size_t at) {
            if (at == none || tokens[at].next == none) return;
            const token_merge m = model_.merges.find(tokens[at].id, tokens[tokens[at].next].id);
            if (m.exists()) queue.push({m.rank, at, m.id});
        };
        for (std::size_t i = 0; i < ids.size(); ++i) tokens[i] = {ids[i], i == 0 ? none : i - 1, i + 1};
        for (std::size_t i = 0; i < ids.size(); ++i) offer(i);
        while (!queue.empty()) {
            const auto [rank, at, id] = queue.top();
            queue.pop();
            token& left = tokens[at];
            if (left.id < 0 || left.next == none) continue;  // it was joined with one before it
            const token_merge m = model_.merges.find(left.id, tokens[left.next].id);
            if (m.rank != rank || m.id != id) continue;  // one of the two was joined with another
            token& right = tokens[left.next];
            left.id = id;
            right.id = -1;
            left.next = right.next;
            if (right.next != none) tokens[right.next].before = at;
            offer(left.before);
            offer(at);
        }
        for (std::size_t i = 0; i < tokens.size(); i = tokens[i].next) to.push_back(tokens[i].id);
    }

    byte_pair_model model_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
