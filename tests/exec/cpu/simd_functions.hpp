// SPDX-License-Identifier: MIT
/// \file
/// The functions of an instruction set's vectors that simd.cpp tests (simd_functions.simd.hpp).
#pragma once

namespace halftone {

enum class simd_function {
    exp,
    exp_below_zero,
    exp2_by_floor,
    short_exp_below_zero,
    exp2,
    exp2_below_zero,
    expm1,
    log,
    log1p,
    softplus,
    erf,
    rsqrt,
    tanh,
    tanh_derivative,
    sigmoid,
    sigmoid_derivative,
    silu,
    silu_derivative,
    gelu,
    gelu_derivative,
    silu_for_float16,
    short_silu_slope,
    gelu_for_float16,
    short_gelu_slope,
    silu_for_bfloat16,
    gelu_for_bfloat16,
    sqrt,
    abs,
    negate,
    round_even,
    not_finite,
};

constexpr int block = 4096;

struct simd_results {
    float sum[block], difference[block], product[block], quotient[block], fused[block], smaller[block], larger[block],
        signed_as[block], less[block], less_equal[block], equal[block], both[block], either[block], complement[block],
        any[block];
};

}  // namespace halftone
