// SPDX-License-Identifier: MIT
/// \file
/// Rung 2 on a GPU: every kernel over views of your own memory, queued on your own stream; the GPU's counterpart of
/// halftone/kernel.hpp. A program may include both. Only the gradient of an embedding needs one more header,
/// <halftone/exec/cuda/sort.cuh>, because it sorts.
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
