// SPDX-License-Identifier: MIT
/// \file
/// Rung 2 on a GPU: every kernel, over views of your own memory, in order with your own stream. What
/// halftone/kernel.hpp is for the CPU; a program may include both. Only an embedding's gradient needs one header more,
/// which says so: it sorts.
///
///     ht::cuda gpu{stream};
///     ht::matmul<ht::amp_bf16>(gpu, a, b, c, ht::bias_gelu{bias});       // views of your pointers, __half* and
///     ht::map(gpu, [k](auto x, auto y) { return x * y + k * ht::tanh(x); }, x, y, out);      // __nv_bfloat16* too
#pragma once

#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/exec/cuda/interop.cuh>
#include <halftone/exec/measure.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/number.hpp>
#include <halftone/policy.hpp>
#include <halftone/tensor/host_tensor.hpp>
