// SPDX-License-Identifier: MIT
/// \file
/// Parts a text into the pieces that a tokenizer's model gets one by one: the pre-tokenizers of tokenizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halftone/data/tokenizers/bert_tables.hpp>
#include <halftone/data/tokenizers/pattern.hpp>
#include <halftone/data/tokenizers/unicode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A step of parting. Each piece of an earlier one is a text of its own.
struct split_step {
    enum class kind {
        pattern,           ///< by matches of `matches`
        digits,            ///< by numerals, characters of the categories Nd, Nl and No
        spaces,            ///< by white space
        bert_punctuation,  ///< by what BERT calls punctuation
        prefix_space,      ///< does not part, but puts a blank before a piece that begins with another character
    };
    /// Which pieces there are.
    enum class keep {
        all,         ///< each match, and each part between matches
        between,     ///< parts between matches
        matches,     ///< matches
        contiguous,  ///< matches, those beside one another as one, and parts between them
    };
    kind by;
    keep pieces = keep::all;
    std::shared_ptr<const pattern> matches{};
};

class text_splitter {
  public:
    void add(split_step step) { steps_.push_back(std::move(step)); }

    /// Calls piece(text) for each piece, none of them empty. `attempts`: how many more patterns may make (pattern::most_attempts).
    template <class Piece>
    void operator()(std::string_view text, const unicode::categories& categories, std::uint64_t& attempts,
                    const Piece& piece) const {
        if (!text.empty()) run(0, text, categories, attempts, piece);
    }

  private:
    template <class Piece>
    void run(std::size_t number, std::string_view text, const unicode::categories& categories, std::uint64_t& attempts,
             const Piece& piece) const {
        if (number == steps_.size()) return piece(text);
        const split_step& step = steps_[number];
        const auto next = [&](std::string_view part) { run(number + 1, part, categories, attempts, piece); };
        const auto by = [&](const auto& is_match) {
            parts(text, step.pieces, next, [&](const char* at, const char*) -> const char* {
                const unicode::code_point c = unicode::decode(at);
                return is_match(c.value) ? at + c.bytes : nullptr;
            });
        };
        switch (step.by) {
            case split_step::kind::prefix_space:
                return text[0] == ' ' ? next(text) : next(' ' + std::string(text));
            case split_step::kind::spaces:
                return by(unicode::is_space);
            case split_step::kind::bert_punctuation:
                return by([](char32_t c) { return unicode::is_in_runs(unicode::bert_punctuation_runs, c); });
            case split_step::kind::digits:
                return by([&](char32_t c) { return categories.is_numeral(c); });
            case split_step::kind::pattern:
                return parts(text, step.pieces, next,
                             [&](const char* at, const char* end) { return step.matches->match(at, end, attempts); });
        }
    }
    /// Calls next(part) for the parts to keep. match(at, end) is the end of a match that begins at `at`, or nullptr.
    template <class Next, class Match>
    static void parts(std::string_view text, split_step::keep keep, const Next& next, const Match& match) {
        const bool with_matches = keep != split_step::keep::between, with_others = keep != split_step::keep::matches;
        const bool joined = keep == split_step::keep::contiguous;
        const char *at = text.data(), *const end = at + text.size();
        const char *before = at, *run = at;  // where what lies before `at` without a match begins, and a run of matches
        const auto give = [&](bool wanted, const char* first, const char* last) {
            if (wanted && first != last) next(std::string_view(first, static_cast<std::size_t>(last - first)));
        };
        while (at != end) {
            const char* const last = match(at, end);
            if (last == nullptr) {
                at += unicode::decode(at).bytes;
                continue;
            }
            if (before != at) {
                if (joined) give(true, run, before);
                give(with_others, before, at);
                run = at;
            }
            if (!joined) give(with_matches, at, last);
            before = at = last;
        }
        if (joined) give(true, run, before);
        give(with_others, before, end);
    }

    std::vector<split_step> steps_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
