// SPDX-License-Identifier: MIT
/// \file
/// Two simple vocabularies for classifiers of texts: bytes, and the most frequent words.
///
///     const ht::byte_vocabulary bytes;                                     // 258 ids: 256 bytes, padding, start
///     const ht::word_vocabulary words{texts, 10000};                       // of the training texts
///     std::vector<std::int32_t> ids = words.encode("An excellent film");   // start, then an id for each word
///
/// A text begins with the id `start`, whose vector an encoder's pooler reads (nn/encoder.hpp). A word is a run of ASCII
/// letters, digits, apostrophes and bytes from 128 on (the letters of UTF-8 beyond ASCII); ASCII letters become small.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A byte's id is its value.
class byte_vocabulary {
  public:
    static constexpr std::int32_t padding = 256, start = 257;

    extent size() const { return 258; }
    /// The first `most` ids of a text, with `start`.
    std::vector<std::int32_t> encode(std::string_view text,
                                     extent most = std::numeric_limits<extent>::max()) const {
        std::vector<std::int32_t> ids;
        if (most < 1) return ids;
        const auto count = std::min(text.size(), static_cast<std::size_t>(most - 1));
        ids.reserve(count + 1);
        ids.push_back(start);
        for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<unsigned char>(text[i]));
        return ids;
    }
};

/// The most frequent words of some texts.
class word_vocabulary {
  public:
    static constexpr std::int32_t padding = 0, unknown = 1, start = 2, first_word = 3;

    /// The most frequent words of texts[i].text for i from 0 to texts.size() - 1, so that there are at most `size` ids;
    /// equally frequent ones by spelling. Throws argument_error for a size that leaves no word.
    template <class Texts>
    explicit word_vocabulary(const Texts& texts, extent size) {
        if (size <= first_word || size > std::numeric_limits<std::int32_t>::max())
            fail<argument_error>("word_vocabulary: ", size, " ids; expected ", first_word + 1, " or more");
        std::unordered_map<std::string, std::int64_t> counts;
        for (extent i = 0; i < static_cast<extent>(texts.size()); ++i) {
            each_word(texts[i].text, [&counts](const std::string& word) {
                ++counts[word];
                return true;
            });
        }
        std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
        std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
            return a.second != b.second ? a.second > b.second : a.first < b.first;
        });
        if (sorted.size() > static_cast<std::size_t>(size - first_word))
            sorted.resize(static_cast<std::size_t>(size - first_word));
        for (auto& [word, count] : sorted) words_.push_back(std::move(word));
        number();
    }
    /// A vocabulary of these words, in the order of their ids: those of another vocabulary's words(), kept in a file,
    /// say. Throws argument_error for a word that comes twice.
    explicit word_vocabulary(std::vector<std::string> words) : words_(std::move(words)) { number(); }

    /// The number of ids.
    extent size() const { return static_cast<extent>(words_.size()) + first_word; }
    /// The words; the first has the id first_word.
    const std::vector<std::string>& words() const { return words_; }
    /// The id of a word, in small letters.
    std::int32_t id(const std::string& word) const {
        const auto found = ids_.find(word);
        return found == ids_.end() ? unknown : found->second;
    }
    /// The first `most` ids of a text, with `start`.
    std::vector<std::int32_t> encode(std::string_view text,
                                     extent most = std::numeric_limits<extent>::max()) const {
        std::vector<std::int32_t> ids;
        if (most < 1) return ids;
        ids.push_back(start);
        if (most == 1) return ids;
        each_word(text, [&](const std::string& word) {
            ids.push_back(id(word));
            return static_cast<extent>(ids.size()) < most;
        });
        return ids;
    }

  private:
    static bool is_of_word(unsigned char c) {
        return c >= 128 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\'';
    }
    /// Calls f(word) until it returns false.
    template <class Function>
    static void each_word(std::string_view text, const Function& f) {
        std::string word;
        for (const char letter : text) {
            const auto c = static_cast<unsigned char>(letter);
            if (is_of_word(c)) {
                word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : letter;
            } else if (!word.empty()) {
                if (!f(word)) return;
                word.clear();
            }
        }
        if (!word.empty()) f(word);
    }
    void number() {
        for (std::size_t i = 0; i < words_.size(); ++i) {
            if (!ids_.emplace(words_[i], static_cast<std::int32_t>(i) + first_word).second)
                fail<argument_error>("word_vocabulary: the word ", words_[i], " comes twice");
        }
    }

    std::vector<std::string> words_;
    std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
