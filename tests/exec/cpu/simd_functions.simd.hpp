// SPDX-License-Identifier: MIT
/// \file
/// The operations of exec/cpu/simd.hpp on arrays, for simd.cpp: arrays are whole vectors long.
// No include guard: exec/cpu/each_set.hpp includes this body once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>

#include "exec/cpu/simd_functions.hpp"

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

inline int simd_lanes() { return f32::lanes; }

HALFTONE_INLINE f32 simd_apply(simd_function function, f32 x) {
    switch (function) {
        case simd_function::exp:
            return exp(x);
        case simd_function::exp_below_zero:
            return exp_below_zero(-abs(x));
        case simd_function::exp2_below_zero:
            return exp2_below_zero(-abs(x));
        case simd_function::exp2_by_floor:
            return exp2_by_floor(min(splat(60.0f), x));
        case simd_function::short_exp_below_zero:
            return short_exp_below_zero(-abs(x));
        case simd_function::exp2:
            return exp2(x);
        case simd_function::expm1:
            return expm1(x);
        case simd_function::log1p:
            return log1p(x);
        case simd_function::softplus:
            return softplus(x);
        case simd_function::erf:
            return erf(x);
        case simd_function::log:
            return log(x);
        case simd_function::rsqrt:
            return rsqrt(x);
        case simd_function::tanh:
            return tanh(x);
        case simd_function::tanh_derivative:
            return tanh_derivative(x);
        case simd_function::sigmoid:
            return sigmoid(x);
        case simd_function::sigmoid_derivative:
            return sigmoid_derivative(x);
        case simd_function::silu:
            return silu(x);
        case simd_function::silu_derivative:
            return silu_derivative(x);
        case simd_function::gelu:
            return gelu(x);
        case simd_function::gelu_derivative:
            return gelu_derivative(x);
        case simd_function::silu_for_float16:
            return silu<float16>(x);
        case simd_function::short_silu_slope:
            return silu_derivative<bfloat16>(x);
        case simd_function::gelu_for_float16:
            return gelu<float16>(x);
        case simd_function::short_gelu_slope:
            return gelu_derivative<bfloat16>(x);
        case simd_function::silu_for_bfloat16:
            return silu<bfloat16>(x);
        case simd_function::gelu_for_bfloat16:
            return gelu<bfloat16>(x);
        case simd_function::sqrt:
            return sqrt(x);
        case simd_function::abs:
            return abs(x);
        case simd_function::negate:
            return -x;
        case simd_function::round_even:
            return round_even(x);
        case simd_function::not_finite:
            return select(not_finite(x), splat(1.0f), splat(0.0f));
    }
    return x;
}

inline void simd_unary(simd_function function, const float* x, float* y, int n) {
    for (int i = 0; i < n; i += f32::lanes) store(y + i, simd_apply(function, load(x + i)));
}

HALFTONE_INLINE f32 number_of(mask m) { return select(m, splat(1.0f), splat(0.0f)); }

inline void simd_binary(const float* a, const float* b, const float* c, simd_results& r, int n) {
    for (int i = 0; i < n; i += f32::lanes) {
        const f32 x = load(a + i), y = load(b + i);
        store(r.sum + i, x + y);
        store(r.difference + i, x - y);
        store(r.product + i, x * y);
        store(r.quotient + i, x / y);
        store(r.fused + i, fma(x, y, load(c + i)));
        store(r.smaller + i, min(x, y));
        store(r.larger + i, max(x, y));
        store(r.signed_as + i, copy_sign(x, y));
        store(r.less + i, number_of(less(x, y)));
        store(r.less_equal + i, number_of(less_equal(x, y)));
        store(r.equal + i, number_of(equal(x, y)));
        store(r.both + i, number_of(both(less(x, y), less(x, splat(0.0f)))));
        store(r.either + i, number_of(either(less(x, y), less(x, splat(0.0f)))));
        store(r.complement + i, number_of(complement(less(x, y))));
        store(r.any + i, splat(any(less(x, y)) ? 1.0f : 0.0f));
    }
}

inline void simd_powers(const float* x, const float* n, float* scaled, float* exponents, float* significands,
                        int count) {
    for (int i = 0; i < count; i += f32::lanes) {
        store(scaled + i, scale_by_power(load(x + i), load(n + i)));
        f32 m;
        store(exponents + i, split_exponent(load(x + i), m));
        store(significands + i, m);
    }
}

inline void simd_reduce(const float* x, float& total, float& largest) {
    total = sum(load(x));
    largest = maximum(load(x));
}

inline void simd_transpose(float* square) {
    f32 rows[f32::lanes];
    for (int i = 0; i < f32::lanes; ++i) rows[i] = load(square + i * f32::lanes);
    transpose(rows);
    for (int i = 0; i < f32::lanes; ++i) store(square + i * f32::lanes, rows[i]);
}

/// Whole vectors of T to float, and back.
template <class T>
void simd_widen(const T* x, float* y, int n) {
    for (int i = 0; i < n; i += f32::lanes) store(y + i, load(x + i));
}
template <class T>
void simd_narrow(const float* x, T* y, int n) {
    for (int i = 0; i < n; i += f32::lanes) store(y + i, load(x + i));
}
/// Several at once, which some sets pack together.
template <class T>
void simd_narrow_four(const float* x, T* y, int n) {
    for (int i = 0; i < n; i += 4 * f32::lanes) {
        vector_block<4> four;
        for (int k = 0; k < 4; ++k) four.v[k] = load(x + i + k * f32::lanes);
        store_or_stream(y + i, four, false);
    }
}
/// Rounds through vectors of T in the instruction set's cheapest order (reordered vectors).
template <class T>
void simd_round_apart(const float* x, float* y, int n) {
    for (int i = 0; i < n; i += 4 * f32::lanes) {
        f32 v[4];
        for (int k = 0; k < 4; ++k) v[k] = load(x + i + k * f32::lanes);
        T rounded[4 * f32::lanes];
        store_reordered<4>(rounded, v, false);
        for (int k = 0; k < 4; k += 2) load_reordered(rounded + k * f32::lanes, v[k], v[k + 1]);
        for (int k = 0; k < 4; ++k) store(y + i + k * f32::lanes, v[k]);
    }
}
template <class T>
void simd_load_first(const T* x, float* y, int n) {
    store(y, load(x, n));
}
template <class T>
void simd_store_first(const float* x, T* y, int n) {
    store(y, load(x), n);
}

/// What is left of whole vectors as T.
template <class T>
void simd_round(const float* x, float* y, int n) {
    for (int i = 0; i < n; i += f32::lanes) store(y + i, round_as<T>(load(x + i)));
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
