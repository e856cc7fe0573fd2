// SPDX-License-Identifier: MIT
/// \file
/// What a pattern is compiled to (pattern.hpp): sets of characters, and steps that a match takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <halftone/data/tokenizers/unicode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A set of code points.
class character_set {
  public:
    void add(char32_t first, char32_t last) { ranges_.push_back({first, last}); }
    void add_categories(std::uint32_t mask) { categories_ |= mask; }
    void negate() { negated_ = !negated_; }
    std::size_t ranges() const { return ranges_.size(); }
    /// Fills in the table for ASCII, after which the set does not change any more.
    void finish(const unicode::categories& categories) {
        for (char32_t c = 0; c < 128; ++c) ascii_[c] = finds(c, categories);
    }

    bool has_ascii(unsigned char c) const { return ascii_[c]; }
    bool has(char32_t c, const unicode::categories& categories) const {
        return c < 128 ? ascii_[c] : finds(c, categories);
    }

  private:
    bool finds(char32_t c, const unicode::categories& categories) const {
        bool found = (categories_ >> categories[c] & 1) != 0;
        for (std::size_t i = 0; i < ranges_.size() && !found; ++i)
            found = c >= ranges_[i].first && c <= ranges_[i].second;
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
        one,   ///< one character of `set`
        some,  ///< `least` to `most` characters of `set`: as many as what follows allows, or, `possessive`, as there are
        either,  ///< what follows, or the step `other`
        jump,    ///< on to the step `other`
        look,  ///< what follows, up to an `accept`, matches (or, `negated`, does not) and takes nothing; on to `other`
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

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
