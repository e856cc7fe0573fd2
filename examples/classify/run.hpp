// SPDX-License-Identifier: MIT
/// \file
/// What classify_images and classify_text have in common: their options, and the result of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <halftone/tensor/shape.hpp>

#include "../command_line.hpp"
#include "../seeing.hpp"

struct run_options : seeing_options {
    /// small_bf16 is amp_bf16 with adamw_8bit and checkpoints: less memory for more time.
    std::vector<std::string> runs{"full_fp32", "amp_fp16", "amp_bf16", "small_bf16"};
    std::filesystem::path out;
    std::int64_t epochs = 3;
    std::int64_t batch = 64;
    double learning_rate = 2e-3;
    std::string device = "cpu";  ///< or cuda
    int threads = 0;  ///< of the CPU; 0: all cores
    int workers = 1;  ///< that make batches
    std::uint64_t seed = 1;
    seen_runs::run* seen = nullptr;  ///< what the run tells
};

/// small: moments in 8 bits, and activations that are computed again.
enum class memory_use { usual, small };

struct classifier_result {
    std::string name;
    std::size_t parameters = 0;
    std::int64_t steps = 0;
    double train_loss = 0;          ///< the mean of the last epoch, in nats
    double accuracy = 0;            ///< the share of test samples whose largest logit is that of the label
    double samples_per_second = 0;  ///< of training
    double step_ms = 0;             ///< median
    double seconds = 0;             ///< of training
    double waited = 0;              ///< seconds in which training waited for batches
    std::size_t peak_bytes = 0;
    std::int64_t skipped_steps = 0;
    double loss_scale = 0;
    std::vector<halftone::policy_row> policies{};  ///< the types of its layers
};
