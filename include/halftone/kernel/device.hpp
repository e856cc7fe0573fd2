// SPDX-License-Identifier: MIT
/// \file
/// Every operation of halftone/kernel.hpp for devices that run GPU kernels. The device itself is another header:
/// <halftone/cuda.cuh> has ht::cuda.
#pragma once

#include <halftone/kernel/attention/device.hpp>
#include <halftone/kernel/axis_reduction/device.hpp>
#include <halftone/kernel/axis_reduction/along/function.hpp>
#include <halftone/kernel/cache_heads/device.hpp>
#include <halftone/kernel/cache_heads/eight_bit/device.hpp>
#include <halftone/kernel/column_sum/device.hpp>
#include <halftone/kernel/conv2d/device.hpp>
#include <halftone/kernel/convert/device.hpp>
#include <halftone/kernel/cross_entropy/device.hpp>
#include <halftone/kernel/dropout/device.hpp>
#include <halftone/kernel/embedding/device.hpp>
#include <halftone/kernel/embedding_rows/device.hpp>
#include <halftone/kernel/gather/device.hpp>
#include <halftone/kernel/gradient_norm/device.hpp>
#include <halftone/kernel/linear_cross_entropy/device.hpp>
#include <halftone/kernel/map/device.hpp>
#include <halftone/kernel/matmul/device.hpp>
#include <halftone/kernel/norm/device.hpp>
#include <halftone/kernel/optimizer_step/adafactor/device.hpp>
#include <halftone/kernel/optimizer_step/adafactor/function.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/device.hpp>
#include <halftone/kernel/optimizer_step/function.hpp>
#include <halftone/kernel/packed_positions/device.hpp>
#include <halftone/kernel/quantize/device.hpp>
#include <halftone/kernel/rotary/device.hpp>
#include <halftone/kernel/softmax/device.hpp>
#include <halftone/kernel/strided_copy/device.hpp>
#include <halftone/kernel/sum/device.hpp>
#include <halftone/kernel/count_nonfinite/device.hpp>
#include <halftone/kernel/target_share/device.hpp>
#include <halftone/kernel/topk/device.hpp>
#include <halftone/kernel/weighted_cross_entropy/device.hpp>
#include <halftone/kernel/channel_norm/device.hpp>
#include <halftone/kernel/channel_norm/each/function.hpp>
#include <halftone/kernel/pooling/device.hpp>
