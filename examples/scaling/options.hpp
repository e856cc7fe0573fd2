// SPDX-License-Identifier: MIT
/// \file
/// The command line of scaling.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "../command_line.hpp"

struct options {
    std::int64_t ranks = 4096;                ///< the table goes from 1 to this
    std::vector<int> zero{0, 1, 2, 3};        ///< strategies
    std::vector<std::string> units{"h.*"};
    std::string policy = "amp_bf16";

    std::int64_t layers = 4, heads = 4, width = 256, context = 128, vocabulary = 256;
    std::int64_t batch = 4, accumulation = 1; ///< of a rank

    double step_seconds = 0;                  ///< measured on one device
    double update_seconds = 0;                ///< of these, those of the optimizer
    std::vector<double> bandwidth{100, 25};   ///< GB/s: within a node, and between nodes
    std::vector<double> latency{10, 20};      ///< microseconds
    std::int64_t per_node = 8;                ///< ranks of a node
    std::int64_t at_once = 0;                 ///< how many of them compute at a time; 0: all
    std::filesystem::path json, html;         ///< empty: not written
};

/// Parses the command line; empty if --help or --version has been answered. Throws exit_with(2) for invalid arguments.
std::optional<options> parse_options(int argc, char** argv);
