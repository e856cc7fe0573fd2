// SPDX-License-Identifier: MIT
/// \file
/// A model and a task, both made up: a small Llama that says words in capitals, and conversations that want another form of answer.
#pragma once

#include <filesystem>

#include "task.hpp"

/// The files of an example: a folder of transformers, and conversations to tune it on.
struct example {
    std::filesystem::path model, data;
};
/// Writes the conversations and the tokenizer to a folder, and trains the model there from its beginning. What is there already stays.
example make_example(int threads, const std::filesystem::path& folder);
