// SPDX-License-Identifier: MIT
/// \file
/// How the programs here refuse a command line: one line on stderr, and exit code 2.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <halftone/error.hpp>

/// Ends the program with one line on stderr and this exit code.
struct exit_with : std::runtime_error {
    exit_with(int exit_code, const std::string& line) : std::runtime_error(line), code(exit_code) {}
    int code;
};

/// Ends the program: the parts are the line.
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
    throw exit_with(2, halftone::detail::sentence(parts...));
}

inline void check_range(const char* option, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most) refuse(option, " is ", value, "; expected ", least, " to ", most);
}
