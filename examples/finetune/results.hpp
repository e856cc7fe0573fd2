// SPDX-License-Identifier: MIT
/// \file
/// What all methods do with their results: answers compared, the tokenizer's files, a GGUF file where there can be one.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "data.hpp"

/// Whether an answer is that of the data, but for the token that ends it.
bool is_exact(const ids& said, const ids& expected, const ids& ends);
/// Copies what a folder of transformers has of a tokenizer.
void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);
/// Writes a GGUF file by calling write(). Where llama.cpp has no place for the model or its tokenizer, that is told in a line.
void try_gguf(const std::filesystem::path& file, const std::function<void()>& write);
/// Tells a line on stderr.
void told(const std::string& line);
