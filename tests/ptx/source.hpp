// SPDX-License-Identifier: MIT
/// \file
/// Parses words, lists, numbers and declarations in PTX.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace halftone::ptx {

/// Whether a name may contain this character.
bool is_word(char c);
/// The text without surrounding blanks.
std::string_view trim(std::string_view s);
/// Splits at commas outside of brackets.
std::vector<std::string_view> split(std::string_view s);
/// Splits at blanks.
std::vector<std::string_view> words(std::string_view s);
std::uint64_t whole(std::string_view s);
/// The bits of a number in PTX.
std::optional<std::uint64_t> number(std::string_view s);
inline std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

/// A declaration: ".align 4 .b8 name[12] = {...}", without the text before ".align".
struct declaration {
    std::uint64_t alignment = 1, bytes = 0;
    bool is_open = false;  // name[]
    std::string_view name, values{};
};
declaration read_declaration(std::string_view text);

}  // namespace halftone::ptx
