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
/// The writers of JSON (observe/metrics/metrics.hpp) and the reader of gzip's files (data/gzip.hpp) are not included here:
/// include these headers where you want them.
#pragma once

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/data/data_loader.hpp>
#include <halftone/data/idx.hpp>
#include <halftone/data/labelled_batches.hpp>
#include <halftone/data/labelled_text.hpp>
#include <halftone/data/length_buckets.hpp>
#include <halftone/data/packing.hpp>
#include <halftone/data/subset.hpp>
#include <halftone/data/synthetic_reviews.hpp>
#include <halftone/data/text.hpp>
#include <halftone/data/token_file.hpp>
#include <halftone/data/vocabulary.hpp>
#include <halftone/kernel/exponent_counts/exponent_counts.hpp>
#include <halftone/observe/metrics/progress.hpp>
#include <halftone/observe/profile/profile.hpp>
#include <halftone/train/trainer.hpp>
