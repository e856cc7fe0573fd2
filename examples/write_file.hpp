// SPDX-License-Identifier: MIT
/// \file
/// How the programs here write a file that is complete from the first.
#pragma once

#include <filesystem>
#include <string>

#include <halftone/observe/metrics/output_file.hpp>

/// Writes a file that is whole or not there. Throws halftone::output_error.
inline void write_file(const std::filesystem::path& path, const std::string& text) {
    halftone::output_file file(path);
    file.write(text);
    file.commit();
}
