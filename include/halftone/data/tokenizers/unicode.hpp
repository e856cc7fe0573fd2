// SPDX-License-Identifier: MIT
/// \file
/// Code points of texts in UTF-8, and the classes that the patterns of tokenizers tell apart.
///
///     for (const char* at = begin; at != end;) { const auto c = unicode::decode(at); ...; at += c.bytes; }
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <halftone/data/tokenizers/category_tables.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail::unicode {

/// Unicode's general categories, with the numbers of category_runs.
enum category : std::uint8_t {
    Cn,
    Cc,
    Cf,
    Co,
    Cs,
    Ll,
    Lm,
    Lo,
    Lt,
    Lu,
    Mc,
    Me,
    Mn,
    Nd,
    Nl,
    No,
    Pc,
    Pd,
    Pe,
    Pf,
    Pi,
    Po,
    Ps,
    Sc,
    Sk,
    Sm,
    So,
    Zl,
    Zp,
    Zs
};
inline constexpr const char* category_names[] = {"Cn", "Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu",
                                                 "Mc", "Me", "Mn", "Nd", "Nl", "No", "Pc", "Pd", "Pe", "Pf",
                                                 "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"};
inline constexpr char32_t end_of_code_points = 0x110000;
inline constexpr char32_t replacement = 0xFFFD;  ///< stands for bytes that are not UTF-8

struct code_point {
    char32_t value;
    int bytes;
};
inline bool continues(char byte) { return (byte & 0xC0) == 0x80; }
/// The code point that begins at `at`, in valid UTF-8.
inline code_point decode(const char* at) {
    const auto byte = [at](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
    const char32_t first = byte(0);
    if (first < 0x80) return {first, 1};
    if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
    if (first < 0xF0) return {(first & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
    return {(first & 7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}
/// The code point that ends before `at`.
inline code_point decode_before(const char* at) {
    const char* first = at - 1;
    while (continues(*first)) --first;
    return {decode(first).value, static_cast<int>(at - first)};
}
inline void append(std::string& text, char32_t c) {
    const auto put = [&text](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
    if (c < 0x80) return put(c);
    if (c < 0x800) {
        put(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            put(0xE0 | c >> 12);
        } else {
            put(0xF0 | c >> 18);
            put(0x80 | (c >> 12 & 0x3F));
        }
        put(0x80 | (c >> 6 & 0x3F));
    }
    put(0x80 | (c & 0x3F));
}

/// How much of a text from `at` on is one code point, or what stands for none.
struct valid_part {
    int bytes;  ///< of a code point; of invalid bytes that one U+FFFD replaces, as Unicode recommends; or of all that is left
    bool valid;
    bool complete;  ///< false if the text ends within a code point that could still become valid
};
inline valid_part validate(const char* at, const char* end) {
    const auto byte = [at](int i) { return static_cast<unsigned char>(at[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) return {1, true, true};
    if (first < 0xC2 || first > 0xF4) return {1, false, true};
    const int bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    // The second byte's range leaves out numbers with a shorter form, surrogates, and those from 0x110000 on.
    const unsigned char least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned char most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    for (int i = 1; i < bytes; ++i) {
        if (at + i == end) return {i, false, false};
        if (byte(i) < (i == 1 ? least : 0x80) || byte(i) > (i == 1 ? most : 0xBF)) return {i, false, true};
    }
    return {bytes, true, true};
}
/// The first byte that is not of valid UTF-8, or the end.
inline const char* first_invalid(const char* at, const char* end) {
    while (at != end) {
        if (static_cast<unsigned char>(*at) < 0x80) {
            ++at;
            continue;
        }
        const valid_part part = validate(at, end);
        if (!part.valid) break;
        at += part.bytes;
    }
    return at;
}
/// Appends valid UTF-8: U+FFFD for each run of bytes that can be no part of a code point. Returns the number of bytes read: all of
/// the text, or, where it goes on, all but a code point that is not complete.
inline std::size_t append_valid(std::string& to, std::string_view text, bool goes_on = false) {
    const char *at = text.data(), *const end = at + text.size();
    while (at != end) {
        const char* const valid = first_invalid(at, end);
        to.append(at, valid);
        at = valid;
        if (at == end) break;
        const valid_part part = validate(at, end);
        if (goes_on && !part.complete) break;
        append(to, replacement);
        at += part.bytes;
    }
    return static_cast<std::size_t>(at - text.data());
}

/// Whether a code point is in one of a table's runs.
template <std::size_t N>
bool is_in_runs(const std::uint32_t (&runs)[N], char32_t c) {
    std::size_t low = 0, high = N / 2;
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (runs[2 * middle + 1] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < N / 2 && runs[2 * low] <= c;
}

/// Unicode's White_Space, which is what \s matches.
inline bool is_space(char32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/// Where the characters before `at` begin that are all of a kind; `least` at the smallest.
template <class Belongs>
std::size_t begin_of_run(std::string_view text, std::size_t at, std::size_t least, const Belongs& belongs) {
    while (at > least) {
        const code_point c = decode_before(text.data() + at);
        if (!belongs(c.value)) break;
        at -= static_cast<std::size_t>(c.bytes);
    }
    return at;
}
/// Where the characters from `at` on end that are all of a kind.
template <class Belongs>
std::size_t end_of_run(std::string_view text, std::size_t at, const Belongs& belongs) {
    while (at != text.size()) {
        const code_point c = decode(text.data() + at);
        if (!belongs(c.value)) break;
        at += static_cast<std::size_t>(c.bytes);
    }
    return at;
}

/// The category of each code point: 1.1 MB.
class categories {
  public:
    categories() : of_(end_of_code_points) {
        for (std::size_t i = 0; i < std::size(category_runs); ++i) {
            const std::size_t next = i + 1 == std::size(category_runs) ? end_of_code_points : category_runs[i + 1] / 32;
            std::fill(of_.begin() + category_runs[i] / 32, of_.begin() + static_cast<std::ptrdiff_t>(next),
                      static_cast<std::uint8_t>(category_runs[i] % 32));
        }
    }
    category operator[](char32_t c) const { return static_cast<category>(of_[c]); }

    /// Whether a character is part of a word for an added token that must be a single word: letters, marks, digits, letters in
    /// circles, connecting punctuation, and the two joiners.
    bool is_of_word(char32_t c) const {
        const category of = (*this)[c];
        return (of >= Ll && of <= Nl) || of == Pc || c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
               (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    }
    /// Whether a character is a number for a step that parts digits, which knows those of Unicode 17.
    bool is_numeral(char32_t c) const {
        const category of = (*this)[c];
        return (of >= Nd && of <= No) || (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
    }

  private:
    std::vector<std::uint8_t> of_;
};

}  // namespace detail::unicode
}  // namespace HALFTONE_ABI
}  // namespace halftone
