// SPDX-License-Identifier: MIT
/// \file
/// What is tuned, on what, and what comes of it, whatever the method: adapters, adapters over a base in four bits, or all weights.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/nn/llama.hpp>
#include <halftone/observe/memory/plan.hpp>
#include <halftone/policy/table.hpp>
#include <halftone/train/callback.hpp>
#include <halftone/train/memory_budget.hpp>

#include "../command_line.hpp"
#include "data.hpp"

namespace ht = halftone;

/// What is tuned, and how.
struct task {
    std::filesystem::path folder;  ///< of the base; empty: a model with initial weights
    bool has_head_norms = false;   ///< a Qwen3
    ht::nn::llama_config config;
    ids ends;                 ///< tokens that end an answer
    ht::extent length = 512;  ///< tokens in a row
    ht::extent batch = 4;     ///< rows in a step
    std::int64_t steps = 0;
    ht::extent rank = 16;
    double alpha = 32, learning_rate = 2e-4;
    std::uint64_t seed = 0;
    std::size_t budget = 0;  ///< the most bytes; 0: no limit
};

/// What surrounds a run.
struct surroundings {
    ht::trainer_callback& observer;
    std::filesystem::path out;           ///< gets the checkpoints, and the results in folders
    std::string arguments;               ///< what a run that is resumed must have the same, as JSON
    std::int64_t save_steps = 0;         ///< between checkpoints; 0: none, and nothing is resumed
    bool (*is_interrupted)() = nullptr;  ///< called after every step
};

/// How a model does on conversations that it is not trained on.
struct held_out_result {
    double loss = 0;             ///< nats a token of the answers
    std::vector<ids> answers{};  ///< what it says to each question
    std::size_t exact = 0;       ///< how many are those of the data
};

struct tuning_result {
    held_out_result before{}, after{};
    ht::training_result training{};
    ht::memory_choice choice{};  ///< with a budget
    std::size_t peak_bytes = 0;  ///< of the whole run
    std::size_t parameters = 0, trained = 0;
    std::vector<ht::policy_row> policies{};
    bool is_stopped = false;  ///< nothing but a checkpoint was written
};

/// The memory of a run that has not begun.
struct memory_answer {
    bool fits = true;
    std::size_t peak_bytes = 0;  ///< with what it takes to fit, or the least that there is
    ht::memory_plan plan{};      ///< as asked for
    std::string way{};           ///< what it takes to fit; empty: nothing
};

/// A way to tune. Each one is in a source of its own, since it compiles for minutes.
struct method {
    const char* name;
    const char* what;  ///< the types in words
    memory_answer (*plan)(ht::cpu& device, const task& t, tuning_data& data);
    tuning_result (*tune)(ht::cpu& device, const task& t, tuning_data& data, tuning_data& held_out,
                          const std::vector<question>& questions, const surroundings& around);
};
extern const method lora, qlora, full, full_in_bf16;

/// Reads the base and PEFT's folder out/adapter, and writes their sum to out/merged, and to out/model.gguf.
void write_merged(ht::cpu& device, const task& t, const std::filesystem::path& out);
