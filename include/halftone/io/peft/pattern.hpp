// SPDX-License-Identifier: MIT
/// \file
/// Regular expressions of Python's `re` over the names of modules, as far as PEFT's configurations have them: whether one matches a
/// whole name (re.fullmatch).
///
///     const detail::module_pattern some("adapter_config.json: target_modules", R"(.*\.layers\.[01]\.self_attn\.(q|v)_proj)");
///     some.matches("model.layers.1.self_attn.q_proj")
///
/// Understood are characters, '.', sets, groups, '|', repetition, '^', '$', \A, \Z, \b, \B, \d, \s, \w and lookahead. A whole match does
/// not depend on whether repetition is lazy. All else is refused: backreferences, lookbehind, flags, possessive repetition, characters
/// outside of ASCII.
///
/// The positions at which a part of the expression can end are computed for all at which it can begin, as the bits of a word. So the
/// time is bounded for the expressions of hostile files, where std::regex tries one way after the other.
#pragma once

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halftone/io/io_error.hpp>
#include <halftone/io/strict_json.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

using name_characters = std::bitset<128>;

/// A part of a regular expression over names of modules.
struct pattern_node {
    enum class kinds { characters, sequence, choice, repeat, begin, end, word_edge, no_word_edge, ahead, not_ahead };
    kinds kind = kinds::sequence;
    name_characters set{};  // of characters
    std::vector<std::size_t> parts{};
    std::size_t least = 0, most = 0;  // of repeat
    int height = 0;                   // of repetitions within each other
    bool looks_ahead = false;
};

/// Reads an expression into nodes. Throws safetensors_error, which begins with `what`.
class pattern_parser {
  public:
    pattern_parser(const std::string& what, std::string_view text) : what_(what), text_(text) {
        if (text.size() > most_bytes) refuse("has more than 4096 bytes");
        for (const char c : text) {
            if (static_cast<unsigned char>(c) >= 128) refuse("has characters outside of ASCII");
        }
    }
    /// The nodes; the last is the root.
    std::vector<pattern_node> parse() {
        choice(0);
        if (at_ < text_.size()) refuse("has a ) without (");
        return std::move(nodes_);
    }
    static constexpr std::size_t unlimited = static_cast<std::size_t>(-1);

  private:
    using kinds = pattern_node::kinds;
    static constexpr std::size_t most_bytes = 4096;

    [[noreturn]] void refuse(const char* why) const {
        fail<safetensors_error>(what_, " is the regular expression ", shown(text_), ", which ", why,
                                "; halftone does not read it: list the names of the layers instead");
    }
    bool is_at(char c) const { return at_ < text_.size() && text_[at_] == c; }
    bool take(char c) { return is_at(c) && ++at_ != 0; }
    char next() {
        if (at_ == text_.size()) refuse("ends too soon");
        return text_[at_++];
    }
    std::size_t add(pattern_node n) {
        for (const std::size_t part : n.parts) {
            n.height = std::max(n.height, nodes_[part].height);
            n.looks_ahead = n.looks_ahead || nodes_[part].looks_ahead;
        }
        const bool looks = n.kind == kinds::ahead || n.kind == kinds::not_ahead;
        if (looks && n.looks_ahead) refuse("looks ahead while it looks ahead");
        n.looks_ahead = n.looks_ahead || looks;
        // Each level may double the time of matching.
        if (n.kind == kinds::repeat && ++n.height > 6) refuse("repeats what is repeated more than 6 deep");
        nodes_.push_back(std::move(n));
        return nodes_.size() - 1;
    }

    std::size_t choice(int depth) {
        if (depth > 40) refuse("has groups nested more than 40 deep");
        pattern_node all{.kind = kinds::choice};
        do all.parts.push_back(sequence(depth));
        while (take('|'));
        return add(std::move(all));
    }
    std::size_t sequence(int depth) {
        pattern_node all{.kind = kinds::sequence};
        while (at_ < text_.size() && !is_at('|') && !is_at(')')) all.parts.push_back(repeated(atom(depth)));
        return add(std::move(all));
    }
    std::size_t repeated(std::size_t part) {
        std::size_t least = 0, most = unlimited;
        if (take('+')) {
            least = 1;
        } else if (take('?')) {
            most = 1;
        } else if (take('{')) {
            counts(least, most);
        } else if (!take('*')) {
            return part;
        }
        const kinds of = nodes_[part].kind;
        if (of == kinds::begin || of == kinds::end || of == kinds::word_edge || of == kinds::no_word_edge)
            refuse("repeats what has no characters");
        take('?');  // lazy
        if (is_at('+') || is_at('*') || is_at('?') || is_at('{')) refuse("has a repetition behind another");
        return add({.kind = kinds::repeat, .parts = {part}, .least = least, .most = most});
    }
    void counts(std::size_t& least, std::size_t& most) {
        const auto number = [this](std::size_t otherwise) {
            if (at_ == text_.size() || !is_digit(text_[at_])) return otherwise;
            std::size_t n = 0;
            while (at_ < text_.size() && is_digit(text_[at_]))
                n = std::min<std::size_t>(10 * n + static_cast<std::size_t>(text_[at_++] - '0'), 100000);
            return n;
        };
        if (is_at('}')) refuse("has { without numbers");
        const std::size_t first = number(unlimited);
        least = first == unlimited ? 0 : first;
        most = take(',') ? number(unlimited) : first;
        if (!take('}') || most < least) refuse("has { without two numbers in order");
    }
    static bool is_digit(char c) { return c >= '0' && c <= '9'; }

    std::size_t atom(int depth) {
        const char c = next();
        switch (c) {
            case '(':
                return group(depth);
            case '[':
                return add({.kind = kinds::characters, .set = set()});
            case '.':
                return add({.kind = kinds::characters, .set = ~name_characters().set('\n')});
            case '^':
                return add({.kind = kinds::begin});
            case '$':
                return add({.kind = kinds::end});
            case '\\':
                return escape();
            case '*':
            case '+':
            case '?':
            case '{':
                refuse("repeats nothing");
            default:
                return add({.kind = kinds::characters, .set = one(c)});
        }
    }
    std::size_t group(int depth) {
        kinds kind = kinds::sequence;
        if (take('?')) {
            const char how = next();
            if (how == '=' || how == '!') {
                kind = how == '=' ? kinds::ahead : kinds::not_ahead;
            } else if (how == 'P' && take('<')) {
                while (next() != '>') continue;
            } else if (how != ':') {
                refuse("has a group that begins with (? and is neither (?:, (?=, (?! nor (?P<");
            }
        }
        const std::size_t inner = choice(depth + 1);
        if (!take(')')) refuse("has a ( without )");
        return add({.kind = kind, .parts = {inner}});
    }
    std::size_t escape() {
        const char c = next();
        switch (c) {
            case 'A':
                return add({.kind = kinds::begin});
            case 'Z':
                return add({.kind = kinds::end});
            case 'b':
                return add({.kind = kinds::word_edge});
            case 'B':
                return add({.kind = kinds::no_word_edge});
            default:
                return add({.kind = kinds::characters, .set = escaped(c)});
        }
    }
    static name_characters one(char c) { return name_characters().set(static_cast<unsigned char>(c)); }
    /// What a character behind a backslash stands for, in a set and outside.
    name_characters escaped(char c) const {
        name_characters digits, words, spaces;
        for (unsigned char x = 0; x < 128; ++x) {
            const bool is_letter = (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z');
            digits[x] = is_digit(static_cast<char>(x));
            words[x] = digits[x] || is_letter || x == '_';
            spaces[x] = x == ' ' || (x >= 9 && x <= 13) || (x >= 28 && x <= 31);
        }
        switch (c) {
            case 'd':
                return digits;
            case 'D':
                return ~digits;
            case 'w':
                return words;
            case 'W':
                return ~words;
            case 's':
                return spaces;
            case 'S':
                return ~spaces;
            default:
                break;
        }
        if (words[static_cast<unsigned char>(c)] && c != '_')
            refuse("has a letter or a digit behind a backslash that is none of AZbBdDsSwW");
        return one(c);
    }
    name_characters set() {
        name_characters all;
        const bool is_inverse = take('^');
        for (bool is_first = true; is_first || !is_at(']'); is_first = false) {
            const name_characters first = member();
            const bool is_range = is_at('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
            if (!is_range) {
                all |= first;
                continue;
            }
            ++at_;
            const name_characters last = member();
            if (first.count() != 1 || last.count() != 1)
                refuse("has a range in a set that does not go from one character to another");
            const std::size_t from = place_of(first), to = place_of(last);
            if (from > to) refuse("has a range in a set that ends before it begins");
            for (std::size_t x = from; x <= to; ++x) all.set(x);
        }
        ++at_;
        return is_inverse ? ~all : all;
    }
    name_characters member() {
        const char c = next();
        return c == '\\' ? escaped(next()) : one(c);
    }
    static std::size_t place_of(const name_characters& s) {
        std::size_t x = 0;
        while (!s[x]) ++x;
        return x;
    }

    std::string what_;
    std::string_view text_;
    std::size_t at_ = 0;
    std::vector<pattern_node> nodes_{};
};

/// A regular expression over names of at most 63 characters.
class module_pattern {
  public:
    /// Throws safetensors_error, which begins with `what`.
    module_pattern(const std::string& what, std::string_view text) : nodes_(pattern_parser(what, text).parse()) {}
    /// Whether it matches the whole of a name.
    bool matches(std::string_view name) const { return matches_from(1, name); }
    /// Whether it matches the whole of a name, or what stands behind one of its dots.
    bool matches_suffix(std::string_view name) const {
        positions from = 1;
        for (std::size_t i = 0; i < std::min<std::size_t>(name.size(), 63); ++i) {
            if (name[i] == '.') from |= positions{2} << i;
        }
        return matches_from(from, name);
    }

  private:
    using positions = std::uint64_t;  // bit i: before character i

    bool matches_from(positions from, std::string_view name) const {
        return name.size() < 64 && (ends(nodes_.size() - 1, from, name) >> name.size() & 1) != 0;
    }

    /// Where node i can end if it begins at one of these positions.
    positions ends(std::size_t i, positions from, std::string_view name) const {
        using kinds = pattern_node::kinds;
        const pattern_node& n = nodes_[i];
        if (from == 0) return 0;
        switch (n.kind) {
            case kinds::characters:
                return where(from, name.size(),
                             [&](std::size_t at) { return n.set[static_cast<unsigned char>(name[at])]; })
                       << 1;
            case kinds::begin:
                return from & 1;
            case kinds::end:
                return from & positions{1} << name.size();
            case kinds::word_edge:
            case kinds::no_word_edge: {
                const auto is_word = [&](std::size_t at) {
                    return at < name.size() && name[at] != '.';
                };  // at -1: behind the end
                return where(from, name.size() + 1, [&](std::size_t at) {
                    return (is_word(at) != is_word(at - 1)) == (n.kind == kinds::word_edge);
                });
            }
            case kinds::ahead:
            case kinds::not_ahead:
                return where(from, name.size() + 1, [&](std::size_t at) {
                    return (ends(n.parts[0], positions{1} << at, name) != 0) == (n.kind == kinds::ahead);
                });
            case kinds::repeat:
                return ends_of_repeated(n, from, name);
            case kinds::choice: {
                positions all = 0;
                for (const std::size_t part : n.parts) all |= ends(part, from, name);
                return all;
            }
            default:
                break;
        }
        for (const std::size_t part : n.parts) from = ends(part, from, name);
        return from;
    }
    positions ends_of_repeated(const pattern_node& n, positions from, std::string_view name) const {
        positions all = n.least == 0 ? from : 0;
        for (std::size_t times = 1; times <= n.most && from != 0; ++times) {
            const positions next = ends(n.parts[0], from, name);
            if (times >= n.least || next == from) all |= next;
            if (next == from) break;  // so are all that follow: after 64 times, as parts do not end before they begin
            from = next;
        }
        return all;
    }
    /// Positions at which f is true, of those of `from` below `count`.
    template <class F>
    static positions where(positions from, std::size_t count, const F& f) {
        positions all = 0;
        for (; from != 0; from &= from - 1) {
            const auto at = static_cast<std::size_t>(std::countr_zero(from));
            if (at < count && f(at)) all |= positions{1} << at;
        }
        return all;
    }

    std::vector<pattern_node> nodes_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
