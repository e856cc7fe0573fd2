// SPDX-License-Identifier: MIT
/// \file
/// The GPU, as far as a program that is built with or without one needs to know. Both throw exit_with(3) where there is
/// none: gpu.cu is built where there is CUDA, no_gpu.cpp elsewhere.
#pragma once

#include <string>

#include "run.hpp"

/// Its description and its name: "cuda, NVIDIA H200".
struct gpu_names {
    std::string device, gpu;
};
gpu_names describe_gpu();

run_result run_on_gpu(const std::string& policy, const options& o, const halftone::token_view& corpus,
                      const surroundings& around);
