// SPDX-License-Identifier: MIT
/// \file
/// The command line of finetune.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "task.hpp"

struct options {
    std::filesystem::path folder, data, out = "finetune";
    std::filesystem::path plan;  ///< with --plan: a config.json, or its folder
    std::string method = "lora", template_name;
    std::size_t budget = 0;                                           ///< 0: the machine's memory
    double epochs = 3, held_out = 0.1, alpha = 0, learning_rate = 0;  ///< 0: twice the rank; the method's
    std::int64_t steps = 0, save_steps = 0, questions = 64;           ///< 0: by epochs; a tenth of the steps
    ht::extent length = 512, batch = 4, rank = 16;
    std::uint64_t seed = 0;
    int threads = 0;

    bool is_example() const { return folder.empty() && plan.empty(); }
};

/// Nothing if the command line asked for help, which has been printed. Throws exit_with for one that is wrong.
std::optional<options> parse_options(int argc, char** argv);
