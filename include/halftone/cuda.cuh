// SPDX-License-Identifier: MIT
/// \file
/// An NVIDIA GPU as a device, and every kernel on it. Beside any other header of halftone's, in a file that nvcc
/// compiles:
///
///     #include <halftone/amp.hpp>
///     #include <halftone/cuda.cuh>
///
///     ht::cuda device;                                  // in place of ht::cpu; the rest of the program is unchanged
///     ht::nn::gpt<ht::amp_bf16> model{device, config};
///
/// Needs CUDA 12.4, an sm_80 and no flag of nvcc's but -std=c++20.
#pragma once

#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/exec/cuda/interop.cuh>
#include <halftone/exec/cuda/sort.cuh>
#include <halftone/exec/measure.hpp>
#include <halftone/kernel/device.hpp>
