// SPDX-License-Identifier: MIT
/// \file
/// An NVIDIA GPU as a device, with every kernel. Include it in addition to any other header of halftone, in a file that
/// nvcc compiles:
///
///     #include <halftone/amp.hpp>
///     #include <halftone/cuda.cuh>
///
///     ht::cuda device;                                  // in place of ht::cpu; the rest of the program is unchanged
///     ht::nn::gpt<ht::amp_bf16> model{device, config};
///
/// Needs CUDA 12.4 or newer and a GPU of compute capability 8.0 (sm_80) or newer; nvcc needs no flag but -std=c++20.
#pragma once

#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/exec/cuda/interop.cuh>
#include <halftone/exec/cuda/sort.cuh>
#include <halftone/exec/measure.hpp>
#include <halftone/kernel/device.hpp>
