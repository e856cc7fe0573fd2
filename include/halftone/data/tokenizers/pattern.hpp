// SPDX-License-Identifier: MIT
/// \file
/// The patterns by which tokenizers part texts: what they use of Oniguruma's regular expressions, with the classes of Unicode 16.
///
///     const unicode::categories categories;
///     const pattern split("tokenizer.json", R"(\p{N}{1,3}| ?\p{L}+|\s+(?!\S))", categories);
///     const char* const end_of_match = split.match(at, end);               // nullptr: there is none that begins at `at`
///
/// Understood are alternatives, groups, (?i:...) of ASCII letters, (?=...), (?!...), classes with ranges, \p{..} of general
/// categories, \s, \d, their opposites, escapes of characters, and ?, *, +, {n}, {n,m} and their possessive forms; * and + after one
/// character or class. Everything else is refused by a sentence. The first alternative that matches wins, as in Oniguruma.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <halftone/data/data_error.hpp>
#include <halftone/data/tokenizers/pattern_compiler.hpp>
#include <halftone/data/tokenizers/pattern_program.hpp>
#include <halftone/data/tokenizers/unicode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A compiled pattern.
class pattern {
  public:
    /// `where` begins the messages. Throws data_error for what halftone does not match. `categories` outlives the pattern.
    pattern(const std::string& where, std::string_view text, const unicode::categories& categories)
        : where_(where), categories_(&categories), program_(pattern_compiler(where, text, categories).compile()) {
        for (std::size_t i = 0; i < program_.alternatives.size(); ++i) {
            for (unsigned first = 0; first <= 128; ++first) {
                std::vector<bool> seen(program_.steps.size());
                if (can_begin(program_, program_.alternatives[i], first, seen))
                    candidates_[first] |= std::uint64_t{1} << i;
            }
        }
    }

    /// How many steps the patterns of a tokenizer may take on one text of this many bytes, and characters try. Those of the known
    /// tokenizers take some ten for each character; a text of 900 characters may be tried whole at each of them.
    static std::uint64_t most_attempts(std::size_t bytes) { return 200 * (static_cast<std::uint64_t>(bytes) + 2000); }

    /// The end of the match that begins at `at`, or nullptr. Takes what it tries from `attempts`, and throws data_error where none are left.
    const char* match(const char* at, const char* end, std::uint64_t& attempts) const {
        const auto first = static_cast<unsigned char>(*at);
        search s{end, attempts};
        for (std::uint64_t left = candidates_[first < 128 ? first : 128]; left != 0; left &= left - 1) {
            const auto i = static_cast<std::size_t>(std::countr_zero(left));
            if (const char* const found = run(program_.alternatives[i], at, s)) return found;
        }
        return nullptr;
    }

  private:
    struct search {
        const char* end;
        std::uint64_t& left;  ///< how many more attempts there may be
    };
    void spend(std::uint64_t attempts, search& s) const {
        if (attempts > s.left) fail<data_error>(where_, ": its pattern takes too many attempts on this text");
        s.left -= attempts;
    }

    bool has(std::uint32_t set, const char*& at) const {
        const character_set& s = program_.sets[set];
        const auto first = static_cast<unsigned char>(*at);
        if (first < 128) {
            at += s.has_ascii(first);
            return s.has_ascii(first);
        }
        const unicode::code_point c = unicode::decode(at);
        if (!s.has(c.value, *categories_)) return false;
        at += c.bytes;
        return true;
    }
    const char* run(std::size_t step, const char* at, search& s) const {
        for (;; ++step) {
            spend(1, s);
            const pattern_step& now = program_.steps[step];
            switch (now.what) {
                case pattern_step::kind::accept:
                    return at;
                case pattern_step::kind::one:
                    if (at == s.end || !has(now.set, at)) return nullptr;
                    break;
                case pattern_step::kind::some: {
                    std::uint32_t count = 0;
                    while (count < now.most && at != s.end && has(now.set, at)) ++count;
                    spend(count, s);
                    if (count < now.least) return nullptr;
                    if (now.possessive || program_.steps[step + 1].what == pattern_step::kind::accept) break;
                    for (; count > now.least; --count) {
                        if (const char* const found = run(step + 1, at, s)) return found;
                        do --at;
                        while (unicode::continues(*at));
                    }
                    break;
                }
                case pattern_step::kind::either:
                    if (const char* const found = run(step + 1, at, s)) return found;
                    step = now.other - 1;
                    break;
                case pattern_step::kind::jump:
                    step = now.other - 1;
                    break;
                case pattern_step::kind::look:
                    if ((run(step + 1, at, s) != nullptr) == now.negated) return nullptr;
                    step = now.other - 1;
                    break;
            }
        }
    }

    std::string where_;
    const unicode::categories* categories_;
    pattern_program program_;
    std::array<std::uint64_t, 129>
        candidates_{};  ///< by the first byte, 128 for all beyond ASCII: a bit for each alternative
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
