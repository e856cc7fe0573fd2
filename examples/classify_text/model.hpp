// SPDX-License-Identifier: MIT
/// \file
/// The data and the sizes of classify_text, and its runs.
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

/// Defined in a separate file for each policy and device, to keep compile times short.
template <class P, memory_use Use, class Device>
classifier_result run(Device& device, const std::string& name, const text_data& data, const text_options& o);

template <class Device>
classifier_result run_named(Device& device, const std::string& name, const text_data& data, const text_options& o) {
    if (name == "full_fp32") return run<ht::full_fp32, memory_use::usual>(device, name, data, o);
    if (name == "amp_fp16") return run<ht::amp_fp16, memory_use::usual>(device, name, data, o);
    if (name == "amp_bf16") return run<ht::amp_bf16, memory_use::usual>(device, name, data, o);
    return run<ht::amp_bf16, memory_use::small>(device, name, data, o);
}

classifier_result run_on_gpu(const std::string& name, const text_data& data, const text_options& o);
