// SPDX-License-Identifier: MIT
#include <halftone/cuda.cuh>

#include "run_policy.hpp"

template classifier_result run<ht::amp_bf16, memory_use::usual>(ht::cuda&, const std::string&, const image_data&, const run_options&);
