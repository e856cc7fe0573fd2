// SPDX-License-Identifier: MIT
/// \file
/// The memory of each method: what --plan prints, and which method a run takes within its budget.
#pragma once

#include <iosfwd>
#include <string>

#include "example.hpp"
#include "options.hpp"
#include "task.hpp"

/// How a run stays within its memory.
struct chosen_method {
    const method* of = nullptr;
    std::size_t budget = 0;  ///< the trainer's; 0: the run fits as it is
    memory_answer memory{};
    std::string text{};  ///< for the user: a line
};

/// The sizes of a model by its config.json, or its folder, and how it is tuned. Throws exit_with for what is no Llama, Mistral, Qwen2 or
/// Qwen3.
task task_of(const options& o, const std::filesystem::path& config);
/// Gives options the example's files, and the sizes that suit it.
void take_example(options& o, const example& e);
/// The method that the options ask for, for conversations that take so many places at most. Throws exit_with if it does not fit, with what would.
chosen_method choose(ht::cpu& device, const options& o, const task& t, ht::extent longest);
/// Prints a table of all methods; returns the program's exit code.
int print_plans(std::ostream& out, const options& o);
/// "1.25 GiB", "96.0 MiB".
std::string bytes_text(std::size_t bytes);
