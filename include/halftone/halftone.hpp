// SPDX-License-Identifier: MIT
/// \file
/// Rung 5: everything of amp.hpp, with the data loaders and the trainer.
///
///     const std::string text = ht::read_text({"king_james.txt"});
///     ht::language_data data{ht::token_view{text}, {.context = 128}};
///     ht::cpu device;
///     ht::nn::gpt<ht::amp_bf16> model{device, {.context = 128}};
///     ht::trainer trainer{device, model, {.per_device_train_batch_size = 16, .max_steps = 500, .learning_rate = 1e-3}};
///     trainer.train(data);
///
/// The writers of JSON (observe/metrics/metrics.hpp) are not included here: include that header where you want them.
#pragma once

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/data/length_buckets.hpp>
#include <halftone/data/text.hpp>
#include <halftone/kernel/exponent_counts/exponent_counts.hpp>
#include <halftone/observe/metrics/progress.hpp>
#include <halftone/observe/profile/profile.hpp>
#include <halftone/train/trainer.hpp>
