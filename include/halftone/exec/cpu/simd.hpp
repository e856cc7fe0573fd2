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
///     round_as<T>(v)          v, rounded as by storing it as T and loading it again
///     split_bfloat16<N>(v, p) the N pieces of v, as number/split.hpp says, in vectors p
///     clamp_to<T>(v)          v limited to T's largest numbers, NaNs kept: a saturating store
///     store_or_stream(p, v, non_temporal)  a non-temporal store if `non_temporal` is true and the set has one; then p is a
///                             multiple of the vector's size, and end_non_temporal() must follow
///     store_vectors<N>(p, v, non_temporal)  the same for N vectors, two or more
///     load_reordered(p, a, b)  store_reordered<N>(p, v, non_temporal)
///                             two vectors of elements at even and at odd places, or of consecutive ones: the cheaper order
///     first_lane(v)           a float
///     above_floor(v)  scale_by_floor(p, v)  v - floor(v), and p times 2 to the power floor(v)
///     halves                  two vectors' 16-bit numbers as integers, with C++'s operators; larger, smaller_unsigned
///     vector_block<N>         N vectors with all of these operators and functions, computed side by side to hide latencies
///     swap_neighbours(v)      lanes 1, 0, 3, 2, ...
///     load_twice(p)  load_twice(p, n)  p[0], p[0], p[1], p[1], ... of floats; n: the first n lanes, an even number
///     transpose(rows)         f32::lanes vectors as a square matrix, in place
///     wide, multiply_low(a, b) a vector of 64-bit integers, with C++'s operators; the products of their low halves
///     exp  exp2  log  rsqrt  erf  tanh  sigmoid  silu  gelu  and slopes of the last four: simd/math.simd.hpp has their errors
///
/// Numeric contract: lanes are IEEE single precision. `fma` rounds once if the set has it, twice in `portable`.
/// Conversions to 16 and 8 bits round to nearest even; to tfloat32 and to pieces of split numbers to nearest, ties away
/// from zero. `sum` and `maximum` reduce lanes in a fixed tree.
#pragma once

#include <halftone/exec/cpu/simd/vector_block.hpp>
#include <halftone/number/constants.hpp>
#include <halftone/number/split.hpp>

#define HALFTONE_BODY <halftone/exec/cpu/simd/math.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
