// SPDX-License-Identifier: MIT
/// \file
/// What the command line of train_gpt says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

/// Ends the program with one line on stderr and this code.
struct exit_with : std::runtime_error {
    exit_with(int exit_code, const std::string& line) : std::runtime_error(line), code(exit_code) {}
    int code;
};

struct options {
    std::vector<std::string> policies{"full_fp32", "amp_fp16", "amp_bf16"};
    std::vector<std::filesystem::path> text;  ///< none: this repository's own
    std::filesystem::path out = "train_gpt_out";
    std::string device = "cpu";
    std::string isa;                          ///< empty: the fastest here
    int threads = 0;                          ///< 0: all cores

    std::int64_t layers = 4, heads = 4, width = 256, context = 128;
    std::int64_t batch = 4, accumulation = 1, steps = 500;
    double learning_rate = 1e-3;
    std::uint64_t seed = 1;

    std::int64_t eval_every = 0;              ///< 0: at the end alone
    std::int64_t eval_windows = 256;          ///< 0: all
    std::int64_t write = 200;                 ///< bytes of text that the model writes in the end
    bool profile = false;
    bool watch = false;                       ///< tell of each skipped step where it overflowed
    std::int64_t numerics_every = 0;          ///< steps between two looks at what the tensors hold; 0: none
    std::int64_t shadow_step = 0;             ///< which is also taken in fp32, and compared; 0: none
    std::string planted_layer;                ///< whose weights are spoilt in step planted_step; empty: none
    std::int64_t planted_step = 0;
};

/// Nothing where --help or --version has been answered. Throws exit_with(2) for anything that makes no run.
std::optional<options> parse_options(int argc, char** argv);

/// The text that the options name, checked to hold a window for training and one for validation. Throws exit_with(2).
std::string read_corpus(const options& o);
