// SPDX-License-Identifier: MIT
/// \file
/// The GPU's interface for a program that is built with or without CUDA. Both functions throw exit_with(3) if there is
/// no GPU: gpu.cu is built if CUDA is available, no_gpu.cpp otherwise.
#pragma once

#include <string>

#include "run.hpp"
#include "view.hpp"

/// Its description and its name: "cuda, NVIDIA H200".
struct gpu_names {
    std::string device, gpu;
};
gpu_names describe_gpu();

run_result run_on_gpu(const std::string& policy, const options& o, const halftone::token_view& corpus,
                      const surroundings& around, run_view& view);
