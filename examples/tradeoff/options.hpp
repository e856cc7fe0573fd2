// SPDX-License-Identifier: MIT
/// \file
/// The command line of tradeoff.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "../command_line.hpp"
#include "../seeing_options.hpp"

struct options : seeing_options {
    std::filesystem::path text;           ///< folder with pos/ and neg/; empty: invented reviews
    std::filesystem::path out = "tradeoff_out";
    std::int64_t texts = 1000;            ///< invented reviews of each class
    std::int64_t layers = 12, heads = 4, width = 128, length = 64;
    std::int64_t vocabulary = 2000;       ///< the most frequent words
    std::int64_t batch = 16, steps = 300;
    std::int64_t checkpointing = 1;       ///< in the rows with checkpoints every n-th block is computed again
    double held_out = 0.2;
    double learning_rate = 5e-4;
    std::uint64_t seed = 1;
    int threads = 0;                      ///< 0: all cores
    bool plan = false;                    ///< tell the memory of each row, and do not train
};

/// Parses the command line; empty if --help or --version has been answered. Throws exit_with(2) for invalid arguments.
std::optional<options> parse_options(int argc, char** argv);
