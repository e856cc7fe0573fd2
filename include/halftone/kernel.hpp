// SPDX-License-Identifier: MIT
/// \file
/// Rung 2: the CPU device and every kernel on it, over views of your own memory.
///
///     ht::cpu device;
///     ht::matmul<ht::amp_bf16>(device, a, b, c, ht::bias_gelu{beta});
///     ht::layer_norm<ht::amp_bf16>(device, x, gain, bias, y);                // all kernels: docs/api.md
///     ht::map(device, [k](auto x, auto y) { return x * y + k * ht::tanh(x); }, x, y, out);
#pragma once

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/kernel/axis_reduction/cpu.hpp>
#include <halftone/kernel/axis_reduction/along/function.hpp>
#include <halftone/kernel/cache_heads/cpu.hpp>
#include <halftone/kernel/cache_heads/eight_bit/cpu.hpp>
#include <halftone/kernel/column_sum/cpu.hpp>
#include <halftone/kernel/conv2d/cpu.hpp>
#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/dropout/cpu.hpp>
#include <halftone/kernel/embedding/cpu.hpp>
#include <halftone/kernel/embedding_rows/cpu.hpp>
#include <halftone/kernel/gather/cpu.hpp>
#include <halftone/kernel/gradient_norm/cpu.hpp>
#include <halftone/kernel/linear_cross_entropy/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/kernel/multinomial/multinomial.hpp>
#include <halftone/kernel/norm/cpu.hpp>
#include <halftone/kernel/one_hot/one_hot.hpp>
#include <halftone/kernel/optimizer_step/adafactor/cpu.hpp>
#include <halftone/kernel/optimizer_step/adafactor/function.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>
#include <halftone/kernel/optimizer_step/function.hpp>
#include <halftone/kernel/packed_positions/cpu.hpp>
#include <halftone/kernel/quantize/cpu.hpp>
#include <halftone/kernel/rotary/cpu.hpp>
#include <halftone/kernel/softmax/cpu.hpp>
#include <halftone/kernel/strided_copy/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>
#include <halftone/kernel/count_nonfinite/cpu.hpp>
#include <halftone/kernel/target_share/cpu.hpp>
#include <halftone/kernel/topk/cpu.hpp>
#include <halftone/kernel/weighted_cross_entropy/cpu.hpp>
#include <halftone/kernel/channel_norm/cpu.hpp>
#include <halftone/kernel/channel_norm/each/function.hpp>
#include <halftone/kernel/pooling/cpu.hpp>
#include <halftone/number.hpp>
#include <halftone/policy.hpp>
#include <halftone/tensor/host_tensor.hpp>
#if defined(HALFTONE_COMPILED)
#include <halftone/compiled/kernels.hpp>
#endif
