// SPDX-License-Identifier: MIT
/// \file
/// What tests of folders of transformers' models share: the text of a file, and what a call throws.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <halftone/error.hpp>

namespace pretrained_checks {

inline std::string text_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}
/// What an Error that f throws says; "no error" if it throws nothing.
template <class Error = halftone::error, class F>
std::string message_of(const F& f) {
    try {
        f();
    } catch (const Error& e) {
        return e.what();
    }
    return "no error";
}

}  // namespace pretrained_checks
