// SPDX-License-Identifier: MIT
#include <halftone/cuda.cuh>

#include "run_policy.hpp"

template classifier_result run<ht::full_fp32, memory_use::usual>(ht::cuda&, const std::string&, const image_data&, const run_options&);
