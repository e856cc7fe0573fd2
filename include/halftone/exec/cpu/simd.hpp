// SPDX-License-Identifier: MIT
/// \file
/// Vectors of float for CPU kernels, once for each instruction set.
///
/// The namespaces `portable`, `avx2` and `avx512` hold the same names, so that a kernel's body is written once and
/// included into each (each_set.hpp):
///
///     f32                     a vector of f32::lanes floats; + - * / and unary minus
///     mask                    what a comparison returns; less, less_equal, equal; both, either, complement; select(mask, yes, no), any
///     splat(x)  load(p)  load(p, n)  store(p, v)  store(p, v, n)    p: float, bfloat16, float16, float8_e4m3, float8_e5m2; n: the first n lanes
///     fma(a, b, c)  min  max  sqrt  abs  copy_sign  round_even  sum(v)  maximum(v)
///     round_as<T>(v)          what is left of v when it is stored as T and loaded again
///     split_bfloat16<N>(v, p) the N pieces of v, as number/split.hpp says, in vectors p
///     clamp_to<T>(v)          v between the largest numbers of T, NaNs kept: stored then, it is saturated
///     store_or_stream(p, v, past)  past the caches, where `past` says so and the set can; p is a multiple of the vector's
///                             size then, end_non_temporal() follows
///     store_vectors<N>(p, v, past)  the same of N vectors, two or more
///     load_reordered(p, a, b)  store_reordered<N>(p, v, past)
///                             two vectors' numbers, those at even and those at odd places where that comes cheaper
///     first_lane(v)           a float
///     above_floor(v)  scale_by_floor(p, v)  v less the integer below it, p times 2 to that integer
///     halves                  two vectors' 16-bit numbers as integers, with C++'s operators; larger, smaller_unsigned
///     vector_block<N>         N vectors, with all of these operators and functions: chains of instructions side by side
///     transpose(rows)         f32::lanes vectors as a square matrix, in place
///     wide, multiply_low(a, b) a vector of 64-bit integers, with C++'s operators; the products of their low halves
///     exp  exp2  log  rsqrt  tanh  sigmoid  silu  gelu  and slopes (derivatives) of the last four: math.simd.hpp has their errors
///
/// Numeric contract: a lane is an IEEE single; `fma` rounds once where the set has it, twice in `portable`; conversions
/// to 16 and 8 bits round to nearest even, to tfloat32 and to pieces ties away from zero; `sum` and `maximum` add lanes
/// in a fixed tree.
#pragma once

#include <halftone/exec/cpu/simd/vector_block.hpp>
#include <halftone/number/split.hpp>

#define HALFTONE_BODY <halftone/exec/cpu/simd/math.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
