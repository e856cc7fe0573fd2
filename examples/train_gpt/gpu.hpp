// SPDX-License-Identifier: MIT
/// \file
/// The GPU's interface for a program that is built with or without CUDA. All functions throw exit_with(3) if there is no
/// GPU: gpu.cu is built if CUDA is available, no_gpu.cpp otherwise.
#pragma once

#include <string>

#include "../seeing.hpp"
#include "run.hpp"

/// Its description and its name: "cuda, NVIDIA H200".
struct gpu_names {
    std::string device, gpu;
};
gpu_names describe_gpu();

/// The plan of a run there, which computes nothing, and the choice for a budget; see planned.hpp.
run_plan plan_on_gpu(const std::string& policy, const options& few, const halftone::token_view& corpus);
run_result choose_on_gpu(const std::string& policy, const options& few, const halftone::token_view& corpus);

run_result run_on_gpu(const std::string& policy, const options& o, const halftone::token_view& corpus,
                      const surroundings& around, run_view& view);
