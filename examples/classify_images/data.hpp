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

enum class memory_use { usual, small };

/// Defined in a separate file for each policy, to keep compile times short.
template <class P, memory_use Use>
run_result run(const std::string& name, const image_data& data, const run_options& o);
