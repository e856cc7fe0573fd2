// SPDX-License-Identifier: MIT
/// \file
/// The files of tests/golden: lines of words, the first of which says what the rest is; '#' begins a comment.
///
///     for (const support::golden_line& line : support::read_golden("adamw.txt")) {
///         if (line.kind == "case") ...
///     }
#pragma once

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace support {

struct golden_line {
    std::string kind;
    std::vector<std::string> words;

    /// Word i as a number: decimal, or a hexadecimal float.
    double number(std::size_t i) const {
        REQUIRE(i < words.size());
        char* end = nullptr;
        const double value = std::strtod(words[i].c_str(), &end);
        REQUIRE(*end == '\0');
        return value;
    }
};

inline std::vector<golden_line> read_golden(const char* name) {
    std::ifstream file(std::string(HALFTONE_TEST_DATA "/") + name);
    REQUIRE_MESSAGE(file.good(), name);
    std::vector<golden_line> lines;
    for (std::string text; std::getline(file, text);) {
        if (text.empty() || text[0] == '#') continue;
        std::istringstream words(text);
        golden_line line;
        words >> line.kind;
        for (std::string word; words >> word;) line.words.push_back(word);
        lines.push_back(std::move(line));
    }
    REQUIRE(!lines.empty());
    return lines;
}

}  // namespace support
