// SPDX-License-Identifier: MIT
/// \file
/// The data and the sizes of classify_text.
#pragma once

#include <halftone/data/labelled_batches.hpp>
#include <halftone/policy/presets.hpp>

#include "../classify/run.hpp"

namespace ht = halftone;

struct text_data {
    ht::encoded_texts texts;                ///< all of them, or those for training
    ht::random_split parts;                 ///< of them, if no others are for the test
    const ht::encoded_texts* test;          ///< nullptr: the held-out part
    ht::extent vocabulary, classes;
    std::int32_t padding;
};

struct text_options : run_options {
    ht::extent length = 128;
    std::int64_t layers = 2, heads = 4, width = 64;
};

enum class memory_use { usual, small };

/// Defined in a separate file for each policy, to keep compile times short.
template <class P, memory_use Use>
run_result run(const std::string& name, const text_data& data, const text_options& o);
