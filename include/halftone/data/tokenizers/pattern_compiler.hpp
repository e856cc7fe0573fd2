// SPDX-License-Identifier: MIT
/// \file
/// Compiles the text of a pattern (pattern.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <halftone/data/data_error.hpp>
#include <halftone/data/tokenizers/pattern_program.hpp>
#include <halftone/data/tokenizers/unicode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Reads a pattern from left to right, and writes its steps. A part of a pattern is a vector of steps whose targets count from
/// the part's beginning.
class pattern_compiler {
  public:
    pattern_compiler(const std::string& where, std::string_view text, const unicode::categories& categories)
        : where_(where), text_(text), categories_(categories) {}

    pattern_program compile() {
        const char *const begin = text_.data(), *const end = begin + text_.size();
        if (text_.empty() || unicode::first_invalid(begin, end) != end) refuse("is empty or not UTF-8");
        for (;;) {
            part next = sequence();
            if (next.least == 0) refuse("has an alternative that matches an empty text");
            if (program_.alternatives.size() == 64) refuse("has more than 64 alternatives");
            program_.alternatives.push_back(static_cast<std::uint32_t>(program_.steps.size()));
            next.steps.push_back({pattern_step::kind::accept});
            append(program_.steps, next.steps);
            if (at_ == text_.size()) break;
            if (text_[at_] == ')') refuse("has a ) without its (");
            ++at_;  // the |
        }
        return std::move(program_);
    }

  private:
    using steps = std::vector<pattern_step>;
    struct part {
        pattern_compiler::steps steps;
        std::uint32_t least;   ///< characters that it takes
        char32_t literal = 0;  ///< the ASCII letter that it is, in a group that ignores case
    };
    static constexpr std::uint32_t unlimited = std::numeric_limits<std::uint32_t>::max();
    static constexpr std::size_t most_steps = 4096;
    static constexpr std::size_t most_ranges = 4096;  ///< of one set
    static constexpr int most_depth = 32;

    [[noreturn]] void refuse(const std::string& why) const {
        fail<data_error>(where_, ": the pattern ", shown_text(), ' ', why);
    }
    std::string shown_text() const {
        std::string shown(text_.substr(0, 60));
        for (char& c : shown) {
            if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
        }
        return shown + (text_.size() > 60 ? "..." : "");
    }
    bool next_is(std::string_view what) const { return text_.substr(at_, what.size()) == what; }
    bool take(std::string_view what) {
        if (!next_is(what)) return false;
        at_ += what.size();
        return true;
    }
    char32_t take_code_point() {
        if (at_ == text_.size()) refuse("ends too early");
        const unicode::code_point c = unicode::decode(text_.data() + at_);
        at_ += static_cast<std::size_t>(c.bytes);
        return c.value;
    }

    static void append(steps& to, const steps& from) {
        const auto offset = static_cast<std::uint32_t>(to.size());
        for (pattern_step s : from) {
            s.other += offset;
            to.push_back(s);
        }
    }
    std::uint32_t add(character_set set) {
        if (program_.sets.size() == most_steps || set.ranges() > most_ranges) refuse("is too large");
        set.finish(categories_);
        program_.sets.push_back(std::move(set));
        return static_cast<std::uint32_t>(program_.sets.size() - 1);
    }

    /// Alternatives, up to a ) or the end.
    part alternatives() {
        std::vector<part> all;
        do all.push_back(sequence());
        while (take("|"));
        part result = std::move(all.back());
        result.literal = 0;
        for (std::size_t i = all.size() - 1; i-- > 0;) {
            // either first, jump over the rest, or the rest
            steps joined;
            pattern_step either{pattern_step::kind::either}, jump{pattern_step::kind::jump};
            either.other = static_cast<std::uint32_t>(all[i].steps.size() + 2);
            jump.other = static_cast<std::uint32_t>(either.other + result.steps.size());
            joined.push_back(either);
            append(joined, all[i].steps);
            joined.push_back(jump);
            append(joined, result.steps);
            result.steps = std::move(joined);
            result.least = std::min(result.least, all[i].least);
            if (result.steps.size() > most_steps) refuse("is too large");
        }
        return result;
    }
    part sequence() {
        part result{{}, 0};
        char32_t before = 0;
        while (at_ != text_.size() && text_[at_] != '|' && text_[at_] != ')') {
            const part next = repeated(item());
            if (before != 0 && next.literal != 0) check_pair(before, next.literal);
            before = next.literal;
            append(result.steps, next.steps);
            result.least = std::min(unlimited / 2, result.least + next.least);
            if (result.steps.size() > most_steps) refuse("is too large");
        }
        return result;
    }
    /// Two letters that some character beyond ASCII equals where case is ignored: Oniguruma matches that, too.
    void check_pair(char32_t a, char32_t b) const {
        for (const char* const pair : {"ss", "st", "ff", "fi", "fl"}) {
            if (a == static_cast<char32_t>(pair[0]) && b == static_cast<char32_t>(pair[1]))
                refuse(std::string("ignores the case of ") + pair + ", which a single character equals, too");
        }
    }

    part item() {
        if (take("(")) return group();
        if (take("[")) return one(bracket());
        if (take("\\")) return one(escape());
        for (const char* const unknown : {"^", "$", "*", "+", "?", "{", "]", "}"}) {
            if (next_is(unknown)) refuse(std::string("has a ") + unknown + " that halftone does not match");
        }
        character_set set;
        if (take(".")) {
            set.add('\n', '\n');
            set.negate();
            return one(std::move(set));
        }
        const char32_t c = take_code_point();
        add_character(set, c);
        part result = one(std::move(set));
        if (ignore_case_) result.literal = c >= 'A' && c <= 'Z' ? c + 32 : c;
        return result;
    }
    part one(character_set set) {
        pattern_step s{pattern_step::kind::one};
        s.set = add(std::move(set));
        return {{s}, 1};
    }
    part group() {
        if (++depth_ > most_depth) refuse("has too many groups in one another");
        const bool outer = ignore_case_;
        part result{{}, 0};
        if (take("?=") || take("?!")) {
            const bool negated = text_[at_ - 1] == '!';
            part inner = alternatives();
            pattern_step look{pattern_step::kind::look};
            look.negated = negated;
            look.other = static_cast<std::uint32_t>(inner.steps.size() + 2);
            inner.steps.push_back({pattern_step::kind::accept});
            result.steps.push_back(look);
            append(result.steps, inner.steps);
        } else {
            if (take("?i:"))
                ignore_case_ = true;
            else if (!take("?:") && next_is("?"))
                refuse("has a group (? of a kind that halftone does not match");
            result = alternatives();
        }
        if (!take(")")) refuse("has a ( without its )");
        ignore_case_ = outer;
        --depth_;
        return result;
    }

    /// Adds a character, and where case is ignored those that equal it.
    void add_character(character_set& set, char32_t c) const {
        set.add(c, c);
        if (!ignore_case_) return;
        if (c >= 128) refuse("ignores the case of characters beyond ASCII");
        const char32_t small = c | 32;
        if (small < 'a' || small > 'z') return;
        set.add(small, small);
        set.add(small - 32, small - 32);
        if (small == 's') set.add(0x17F, 0x17F);
        if (small == 'k') set.add(0x212A, 0x212A);
    }
    /// What follows a backslash outside brackets.
    character_set escape() {
        character_set set;
        const char32_t c = take_code_point();
        if (is_class(c))
            add_class(set, c);
        else
            add_character(set, character_after_backslash(c));
        return set;
    }
    static bool is_class(char32_t c) { return c == 'p' || c == 'P' || c == 's' || c == 'S' || c == 'd' || c == 'D'; }
    /// Adds what \p, \s or \d stands for, or an opposite of them.
    void add_class(character_set& set, char32_t c) {
        constexpr std::uint32_t digits = 1u << unicode::Nd;
        if (c == 'p' || c == 'P') {
            if (ignore_case_) refuse("ignores the case of a category");
            set.add_categories(category_mask(c == 'P'));
        } else if (c == 's' || c == 'S') {
            add_spaces(set, c == 'S');
        } else {
            set.add_categories(c == 'd' ? digits : ~digits);
        }
    }
    char32_t character_after_backslash(char32_t c) {
        switch (c) {
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'f':
                return '\f';
            case 'v':
                return '\v';
            case 'u':
                return hexadecimal(4);
            case 'x':
                if (take("{")) {
                    const char32_t value = hexadecimal(0);
                    if (!take("}")) refuse("has an \\x{ without its }");
                    return value;
                }
                return hexadecimal(2);
            default:
                break;
        }
        const bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        if (c >= 128 || letter || (c >= '0' && c <= '9')) {
            std::string what = "has a \\";
            unicode::append(what, c);
            refuse(what + " that halftone does not match");
        }
        return c;
    }
    /// A number of `digits` digits, or of 1 to 6.
    char32_t hexadecimal(int digits) {
        char32_t value = 0;
        int count = 0;
        for (; count < (digits == 0 ? 6 : digits) && at_ != text_.size(); ++count, ++at_) {
            const char c = text_[at_];
            const char small = static_cast<char>(c | 32);
            if (c >= '0' && c <= '9')
                value = value * 16 + static_cast<char32_t>(c - '0');
            else if (small >= 'a' && small <= 'f')
                value = value * 16 + static_cast<char32_t>(small - 'a' + 10);
            else
                break;
        }
        if (count == 0 || (digits != 0 && count != digits) || value >= unicode::end_of_code_points ||
            (value >= 0xD800 && value < 0xE000))
            refuse("has an escape of no character");
        if (value >= 0x80 && digits == 2) refuse("has an escape of a byte beyond ASCII");
        return value;
    }
    /// \s: Zs, Zl, Zp and some controls.
    static void add_spaces(character_set& set, bool opposite) {
        const std::uint32_t separators = 1u << unicode::Zs | 1u << unicode::Zl | 1u << unicode::Zp;
        if (!opposite) {
            set.add_categories(separators);
            set.add(9, 13);
            set.add(0x85, 0x85);
        } else {
            set.add_categories(~(separators | 1u << unicode::Cc));
            set.add(0, 8);
            set.add(14, 31);
            set.add(0x7F, 0x84);
            set.add(0x86, 0x9F);
        }
    }
    /// The name in \p{L}, \p{Lu} or \p{^L}.
    std::uint32_t category_mask(bool opposite) {
        if (!take("{")) refuse("has a \\p without a category in braces");
        if (take("^")) opposite = !opposite;
        const std::size_t close = text_.find('}', at_);
        if (close == text_.npos) refuse("has a \\p{ without its }");
        const std::string_view name = text_.substr(at_, close - at_);
        at_ = close + 1;
        std::uint32_t mask = 0;
        for (std::size_t i = 0; i < std::size(unicode::category_names); ++i) {
            const std::string_view of = unicode::category_names[i];
            if (name == of || (name.size() == 1 && name[0] == of[0])) mask |= 1u << i;
        }
        if (mask == 0) refuse("has a \\p{..} that is no general category");
        return opposite ? ~mask : mask;
    }

    character_set bracket() {
        character_set set;
        const bool negated = take("^");
        if (next_is("]")) refuse("has an empty class");
        while (!take("]")) {
            if (next_is("[") || next_is("&&")) refuse("has a class in a class");
            if (next_is("\\") && at_ + 1 < text_.size() && is_class(static_cast<unsigned char>(text_[at_ + 1]))) {
                take("\\");
                add_class(set, take_code_point());
                if (next_is("-") && !next_is("-]")) refuse("has a range from a class");
                continue;
            }
            const char32_t first = class_character();
            if (next_is("-") && !next_is("-]")) {
                take("-");
                const char32_t last = class_character();
                if (last < first) refuse("has a range whose end is before its beginning");
                if (ignore_case_) refuse("ignores the case of a range");
                set.add(first, last);
            } else {
                add_character(set, first);
            }
        }
        if (negated) set.negate();
        return set;
    }
    char32_t class_character() {
        const char32_t c = take_code_point();
        return c == '\\' ? character_after_backslash(take_code_point()) : c;
    }

    /// An item with the quantifier behind it.
    part repeated(part item) {
        std::uint32_t least = 0, most = unlimited;
        bool braces = false;
        if (take("?")) {
            most = 1;
        } else if (take("+")) {
            least = 1;
        } else if (take("{")) {
            std::tie(least, most) = counts();
            braces = true;
        } else if (!take("*")) {
            return item;
        }
        const bool possessive = !braces && take("+");
        for (const char* const unknown : {"?", "*", "+", "{"}) {
            if (next_is(unknown)) refuse("has a second quantifier, or a reluctant one, which halftone does not match");
        }
        const std::uint64_t taken = std::uint64_t{item.least} * least;
        part result{{}, static_cast<std::uint32_t>(std::min<std::uint64_t>(taken, unlimited / 2))};
        if (item.steps.size() == 1 && item.steps[0].what == pattern_step::kind::one) {
            pattern_step s = item.steps[0];
            s.what = pattern_step::kind::some;
            s.possessive = possessive;
            s.least = least;
            s.most = most;
            result.steps.push_back(s);
            return result;
        }
        if (possessive || most == unlimited) refuse("repeats a group without a limit, which halftone does not match");
        if (item.least == 0) refuse("repeats a group that matches an empty text");
        if (most * item.steps.size() > most_steps) refuse("is too large");
        // `least` times the group, then (group (group (...)?)?)?: after the last optional one all skip to the end
        for (std::uint32_t i = 0; i < least; ++i) append(result.steps, item.steps);
        const std::size_t end = least * item.steps.size() + (most - least) * (item.steps.size() + 1);
        for (std::uint32_t i = least; i < most; ++i) {
            pattern_step either{pattern_step::kind::either};
            either.other = static_cast<std::uint32_t>(end);
            result.steps.push_back(either);
            append(result.steps, item.steps);
        }
        return result;
    }
    /// What stands in {n}, {n,} or {n,m}.
    std::pair<std::uint32_t, std::uint32_t> counts() {
        const auto number = [this] {
            const std::size_t first = at_;
            std::uint32_t value = 0;
            for (; at_ != text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && at_ - first < 4; ++at_)
                value = value * 10 + static_cast<std::uint32_t>(text_[at_] - '0');
            if (at_ == first) refuse("has braces without a number");
            return value;
        };
        const std::uint32_t least = number();
        std::uint32_t most = least;
        if (take(",")) most = next_is("}") ? unlimited : number();
        if (!take("}") || most < least || most == 0) refuse("has braces that are no quantifier");
        return {least, most};
    }

    const std::string& where_;
    std::string_view text_;
    const unicode::categories& categories_;
    std::size_t at_ = 0;
    int depth_ = 0;
    bool ignore_case_ = false;
    pattern_program program_;
};

/// Whether a match of the steps from `step` on can begin with the byte `first`, or, for 128, with a character beyond ASCII. Looking
/// ahead is taken to allow everything. `seen`: steps from which none can.
inline bool can_begin(const pattern_program& program, std::size_t step, unsigned first, std::vector<bool>& seen) {
    for (;; ++step) {
        if (seen[step]) return false;
        seen[step] = true;
        const pattern_step& now = program.steps[step];
        switch (now.what) {
            case pattern_step::kind::accept:
                return true;
            case pattern_step::kind::one:
            case pattern_step::kind::some: {
                if (first == 128 || program.sets[now.set].has_ascii(static_cast<unsigned char>(first))) return true;
                if (now.what == pattern_step::kind::one || now.least != 0) return false;
                break;
            }
            case pattern_step::kind::either:
                if (can_begin(program, step + 1, first, seen)) return true;
                step = now.other - 1;
                break;
            case pattern_step::kind::jump:
            case pattern_step::kind::look:
                step = now.other - 1;
                break;
        }
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
