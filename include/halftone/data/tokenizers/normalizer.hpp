// SPDX-License-Identifier: MIT
/// \file
/// The normalizers of tokenizers: NFC and NFD of Unicode 9, lower case, and BERT's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <halftone/data/tokenizers/bert_tables.hpp>
#include <halftone/data/tokenizers/normalization_tables.hpp>
#include <halftone/data/tokenizers/unicode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail::unicode {

/// Canonical composition and decomposition (Unicode's annex 15).
class canonical_form {
  public:
    canonical_form() : may_change_(end_of_code_points / 64) {
        for (std::size_t i = 0; i < std::size(combining_runs); i += 3) {
            for (std::uint32_t c = combining_runs[i]; c <= combining_runs[i + 1]; ++c) {
                combining_.emplace(c, static_cast<std::uint8_t>(combining_runs[i + 2]));
                note(c);
            }
        }
        for (std::size_t i = 0; i < std::size(decompositions); i += 4) {
            const char32_t c = decompositions[i], first = decompositions[i + 1], second = decompositions[i + 2];
            parts_.emplace(c, std::pair{first, second});
            if (decompositions[i + 3] != 0) {
                note(c);
            } else {
                composed_.emplace(pair_of(first, second), c);
                note(second);
            }
        }
        for (char32_t c = first_vowel; c < first_vowel + vowels; ++c) note(c);
        for (char32_t c = no_tail + 1; c < no_tail + tails; ++c) note(c);
    }

    /// Replaces a text by its composed form. Returns false, with `to` left as it is, if the text is that already.
    bool compose(std::string_view text, std::string& to) const {
        const char *const begin = text.data(), *const end = begin + text.size();
        const char* copied = begin;
        for (const char* at = begin; at != end;) {
            if (static_cast<unsigned char>(*at) < 0xCC) {  // below U+0300
                ++at;
                continue;
            }
            const code_point c = decode(at);
            if (!changes(c.value)) {
                at += c.bytes;
                continue;
            }
            // What this character can change with: from the one before it to the next that nothing changes.
            const char* const first = at == copied ? at : at - decode_before(at).bytes;
            while (at != end) {
                const code_point next = decode(at);
                if (!changes(next.value)) break;
                at += next.bytes;
            }
            if (copied == begin) to.clear();
            to.append(copied, first);
            std::u32string points;
            decompose({first, static_cast<std::size_t>(at - first)}, points);
            compose(points);
            for (const char32_t point : points) append(to, point);
            copied = at;
        }
        if (copied == begin) return false;
        to.append(copied, end);
        return true;
    }
    /// A text's code points, decomposed, and marks in their order.
    void decompose(std::string_view text, std::u32string& to) const {
        to.clear();
        for (const char *at = text.data(), *const end = at + text.size(); at != end;) {
            const code_point c = decode(at);
            at += c.bytes;
            if (c.value < 0xC0)
                to += c.value;
            else
                decompose(c.value, to);
        }
        for (std::size_t first = 0; first < to.size();) {
            std::size_t last = first;
            while (last < to.size() && class_of(to[last]) != 0) ++last;
            std::stable_sort(to.begin() + static_cast<std::ptrdiff_t>(first),
                             to.begin() + static_cast<std::ptrdiff_t>(last),
                             [this](char32_t a, char32_t b) { return class_of(a) < class_of(b); });
            first = last + 1;
        }
    }

  private:
    // Hangul: a syllable's number is (lead * vowels + vowel) * tails + tail.
    static constexpr char32_t first_syllable = 0xAC00, first_lead = 0x1100, first_vowel = 0x1161, no_tail = 0x11A7;
    static constexpr char32_t leads = 19, vowels = 21, tails = 28, syllables = leads * vowels * tails;

    static std::uint64_t pair_of(char32_t a, char32_t b) { return std::uint64_t{a} << 32 | b; }
    void note(char32_t c) { may_change_[c / 64] |= std::uint64_t{1} << c % 64; }
    /// Whether composition may replace this character, or join it with one before it.
    bool changes(char32_t c) const { return (may_change_[c / 64] >> c % 64 & 1) != 0; }
    int class_of(char32_t c) const {
        if (c < 0x300) return 0;
        const auto found = combining_.find(c);
        return found == combining_.end() ? 0 : found->second;
    }
    void decompose(char32_t c, std::u32string& to) const {
        if (c - first_syllable < syllables) {
            const char32_t number = c - first_syllable, tail = number % tails;
            to += first_lead + number / (vowels * tails);
            to += first_vowel + number / tails % vowels;
            if (tail != 0) to += no_tail + tail;
            return;
        }
        const auto found = parts_.find(c);
        if (found == parts_.end()) {
            to += c;
            return;
        }
        decompose(found->second.first, to);
        if (found->second.second != 0) to += found->second.second;
    }
    /// The character that two become, or 0.
    char32_t joined(char32_t a, char32_t b) const {
        if (a - first_lead < leads && b - first_vowel < vowels)
            return first_syllable + ((a - first_lead) * vowels + (b - first_vowel)) * tails;
        if (a - first_syllable < syllables && (a - first_syllable) % tails == 0 && b - no_tail - 1 < tails - 1)
            return a + (b - no_tail);
        const auto found = composed_.find(pair_of(a, b));
        return found == composed_.end() ? 0 : found->second;
    }
    void compose(std::u32string& points) const {
        std::size_t kept = 0, starter = std::u32string::npos;
        int last = 0;  // the class of the last mark kept behind the starter
        for (std::size_t i = 0; i < points.size(); ++i) {
            const int of = class_of(points[i]);
            const bool blocked = kept != starter + 1 && last >= of;
            const char32_t both = starter == std::u32string::npos || blocked ? 0 : joined(points[starter], points[i]);
            if (both != 0) {
                points[starter] = both;
                continue;
            }
            if (of == 0) starter = kept;
            last = of;
            points[kept++] = points[i];
        }
        points.resize(kept);
    }

    std::vector<std::uint64_t> may_change_;
    std::unordered_map<char32_t, std::uint8_t> combining_;
    std::unordered_map<char32_t, std::pair<char32_t, char32_t>> parts_;
    std::unordered_map<std::uint64_t, char32_t> composed_;
};

/// Small letters, character by character.
class lower_case {
  public:
    void operator()(char32_t c, std::string& to) const {
        if (c < 0x80) {
            to += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
        } else if (c == 0x130) {
            to += "i\u0307";
        } else {
            append(to, lower(c));
        }
    }

  private:
    static char32_t lower(char32_t c) {
        const auto value = static_cast<std::int32_t>(c);
        std::size_t low = 0, high = std::size(lower_runs) / 4;
        while (low < high) {
            const std::size_t middle = (low + high) / 2;
            if (lower_runs[4 * middle + 1] < value)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == std::size(lower_runs) / 4) return c;
        const std::int32_t* const run = lower_runs + 4 * low;
        return value >= run[0] && (value - run[0]) % run[2] == 0 ? static_cast<char32_t>(value + run[3]) : c;
    }
};

}  // namespace detail::unicode

namespace detail {

/// A step of a tokenizer's normalizer.
enum class normalization { nfc, nfd, lower_case, bert_clean_text, bert_spaces, bert_strip_accents };

/// A tokenizer's normalizer: steps, one after another.
class text_normalizer {
  public:
    void add(normalization step) {
        const bool needs_forms =
            step == normalization::nfc || step == normalization::nfd || step == normalization::bert_strip_accents;
        if (needs_forms && forms_ == nullptr) forms_ = std::make_shared<const unicode::canonical_form>();
        steps_.push_back(step);
    }
    bool empty() const { return steps_.empty(); }

    /// The normalized text: `text` itself, or `memory`, where anything changed.
    std::string_view operator()(std::string_view text, std::string& memory) const {
        std::string to;
        for (const normalization step : steps_) {
            if (!apply(step, text, to)) continue;
            std::swap(memory, to);
            text = memory;
        }
        return text;
    }

  private:
    bool apply(normalization step, std::string_view text, std::string& to) const {
        if (step == normalization::nfc) return forms_->compose(text, to);
        to.clear();
        if (step == normalization::nfd || step == normalization::bert_strip_accents) {
            std::u32string points;
            forms_->decompose(text, points);
            for (const char32_t c : points) {
                const bool left_out = step == normalization::bert_strip_accents && c >= 0x300 &&
                                      unicode::is_in_runs(unicode::bert_mark_runs, c);
                if (!left_out) unicode::append(to, c);
            }
            return true;
        }
        for (const char *at = text.data(), *const end = at + text.size(); at != end;) {
            const unicode::code_point c = unicode::decode(at);
            apply(step, c.value, {at, static_cast<std::size_t>(c.bytes)}, to);
            at += c.bytes;
        }
        return true;
    }
    void apply(normalization step, char32_t c, std::string_view bytes, std::string& to) const {
        if (step == normalization::lower_case) {
            lower_(c, to);
        } else if (step == normalization::bert_clean_text) {
            if (unicode::is_in_runs(unicode::bert_removed_runs, c)) return;
            if (unicode::is_space(c))
                to += ' ';
            else
                to += bytes;
        } else if (c >= 0x3400 && unicode::is_in_runs(unicode::bert_spaced_runs, c)) {
            to += ' ';
            to += bytes;
            to += ' ';
        } else {
            to += bytes;
        }
    }

    std::vector<normalization> steps_;
    std::shared_ptr<const unicode::canonical_form> forms_{};  ///< where a step needs them: 0.5 MB
    unicode::lower_case lower_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
