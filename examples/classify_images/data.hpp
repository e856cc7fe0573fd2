// SPDX-License-Identifier: MIT
/// \file
/// The data of classify_images, and its runs.
#pragma once

#include <halftone/data/idx.hpp>
#include <halftone/policy/presets.hpp>

#include "../classify/run.hpp"

namespace ht = halftone;

struct image_data {
    ht::labelled_images training, test;
    ht::extent classes;
};

/// Defined in a separate file for each policy and device, to keep compile times short.
template <class P, memory_use Use, class Device>
classifier_result run(Device& device, const std::string& name, const image_data& data, const run_options& o);

template <class Device>
classifier_result run_named(Device& device, const std::string& name, const image_data& data, const run_options& o) {
    if (name == "full_fp32") return run<ht::full_fp32, memory_use::usual>(device, name, data, o);
    if (name == "amp_fp16") return run<ht::amp_fp16, memory_use::usual>(device, name, data, o);
    if (name == "amp_bf16") return run<ht::amp_bf16, memory_use::usual>(device, name, data, o);
    return run<ht::amp_bf16, memory_use::small>(device, name, data, o);
}

classifier_result run_on_gpu(const std::string& name, const image_data& data, const run_options& o);
