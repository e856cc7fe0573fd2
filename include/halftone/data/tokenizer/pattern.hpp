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
#include <utility>
#include <vector>

#include <halftone/data/data_error.hpp>
#include <halftone/data/tokenizer/unicode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A set of code points.
class character_set {
  public:
    void add(char32_t first, char32_t last) { ranges_.push_back({first, last}); }
    void add_categories(std::uint32_t mask) { categories_ |= mask; }
    void negate() { negated_ = !negated_; }
    /// Fills in the table for ASCII, after which the set does not change any more.
    void finish(const unicode::categories& categories) {
        for (char32_t c = 0; c < 128; ++c) ascii_[c] = finds(c, categories);
    }

    bool has_ascii(unsigned char c) const { return ascii_[c]; }
    bool has(char32_t c, const unicode::categories& categories) const { return c < 128 ? ascii_[c] : finds(c, categories); }

  private:
    bool finds(char32_t c, const unicode::categories& categories) const {
        bool found = (categories_ >> categories[c] & 1) != 0;
        for (std::size_t i = 0; i < ranges_.size() && !found; ++i) found = c >= ranges_[i].first && c <= ranges_[i].second;
        return found != negated_;
    }

    std::array<bool, 128> ascii_{};
    std::uint32_t categories_ = 0;  ///< a bit each
    std::vector<std::pair<char32_t, char32_t>> ranges_;
    bool negated_ = false;
};

/// An instruction of a compiled pattern.
struct pattern_step {
    enum class kind : std::uint8_t {
        one,      ///< one character of `set`
        some,     ///< `least` to `most` characters of `set`: as many as what follows allows, or, `possessive`, as there are
        either,   ///< what follows, or the step `other`
        jump,     ///< on to the step `other`
        look,     ///< what follows, up to an `accept`, matches (or, `negated`, does not) and takes nothing; on to `other`
        accept,
    };
    kind what;
    bool possessive = false, negated = false;
    std::uint32_t set = 0, other = 0;
    std::uint32_t least = 1, most = 1;
};

/// The sets and steps of a pattern.
struct pattern_program {
    std::vector<character_set> sets;
    std::vector<pattern_step> steps;
    std::vector<std::uint32_t> alternatives;  ///< the first step of each
};

class pattern {
  public:
    /// `where` begins the messages. Throws data_error for what halftone does not match. `categories` outlives the pattern.
    pattern(const std::string& where, std::string_view text, const unicode::categories& categories);

    /// The end of the match that begins at `at`, or nullptr. Throws data_error if it takes too many steps.
    const char* match(const char* at, const char* end) const {
        const auto first = static_cast<unsigned char>(*at);
        search s{end, most_steps(at, end)};
        for (std::uint64_t left = candidates_[first < 128 ? first : 128]; left != 0; left &= left - 1) {
            const auto i = static_cast<std::size_t>(std::countr_zero(left));
            if (const char* const found = run(program_.alternatives[i], at, s)) return found;
        }
        return nullptr;
    }

  private:
    struct search {
        const char* end;
        std::uint64_t left;  ///< how many more attempts there may be
    };
    /// A pattern of the known tokenizers makes at most three attempts for each character that is left.
    static std::uint64_t most_steps(const char* at, const char* end) { return 100 * static_cast<std::uint64_t>(end - at + 100); }

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
        if (s.left-- == 0) fail<data_error>(where_, ": its pattern takes too many attempts on this text");
        for (;; ++step) {
            const pattern_step& now = program_.steps[step];
            switch (now.what) {
                case pattern_step::kind::accept: return at;
                case pattern_step::kind::one:
                    if (at == s.end || !has(now.set, at)) return nullptr;
                    break;
                case pattern_step::kind::some: {
                    std::uint32_t count = 0;
                    while (count < now.most && at != s.end && has(now.set, at)) ++count;
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
                case pattern_step::kind::jump: step = now.other - 1; break;
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
    std::array<std::uint64_t, 129> candidates_{};  ///< by the first byte, 128 for all beyond ASCII: a bit for each alternative
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#include <halftone/data/tokenizer/pattern_compiler.hpp>
