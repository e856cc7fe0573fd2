// SPDX-License-Identifier: MIT
/// \file
/// The vectors of AVX-512: 16 lanes, masks in mask registers.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <halftone/exec/cpu/simd/portable.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/number/tfloat32.hpp>

#if HALFTONE_AVX512
#include <immintrin.h>

#include <halftone/exec/cpu/set/avx512.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512 {

struct f32 {
    static constexpr int lanes = 16;
    __m512 v;
};
struct mask {
    __mmask16 m;
};

HALFTONE_INLINE f32 splat(float x) { return {_mm512_set1_ps(x)}; }
HALFTONE_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

// The compiler's operators, for the reason given in avx2.hpp.
HALFTONE_INLINE f32 operator+(f32 a, f32 b) { return {a.v + b.v}; }
HALFTONE_INLINE f32 operator-(f32 a, f32 b) { return {a.v - b.v}; }
HALFTONE_INLINE f32 operator*(f32 a, f32 b) { return {a.v * b.v}; }
HALFTONE_INLINE f32 operator/(f32 a, f32 b) { return {a.v / b.v}; }
/// a / b with a relative error of 2^-14.
HALFTONE_INLINE f32 approximate_quotient(f32 a, f32 b) { return {_mm512_mul_ps(a.v, _mm512_rcp14_ps(b.v))}; }
HALFTONE_INLINE f32 operator-(f32 a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
HALFTONE_INLINE f32 fma(f32 a, f32 b, f32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
#if __FINITE_MATH_ONLY__
// Compiled with -ffinite-math-only, compilers may swap the operands of min and max and invert comparisons, which loses
// NaNs: the softmax of a NaN would be finite. Inline assembly prevents that.
HALFTONE_INLINE f32 min(f32 a, f32 b) {
    f32 r;
    __asm__("vminps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
}
HALFTONE_INLINE f32 max(f32 a, f32 b) {
    f32 r;
    __asm__("vmaxps {%2, %1, %0|%0, %1, %2}" : "=v"(r.v) : "v"(a.v), "v"(b.v));
    return r;
}
HALFTONE_INLINE f32 sqrt(f32 a) {
    f32 r;
    __asm__("vsqrtps {%1, %0|%0, %1}" : "=v"(r.v) : "v"(a.v));
    return r;
}
#else
HALFTONE_INLINE f32 sqrt(f32 a) { return {_mm512_sqrt_ps(a.v)}; }
HALFTONE_INLINE f32 min(f32 a, f32 b) { return {_mm512_min_ps(a.v, b.v)}; }
HALFTONE_INLINE f32 max(f32 a, f32 b) { return {_mm512_max_ps(a.v, b.v)}; }
#endif
HALFTONE_INLINE f32 abs(f32 a) { return {_mm512_abs_ps(a.v)}; }
HALFTONE_INLINE f32 copy_sign(f32 magnitude, f32 sign) {
    return {_mm512_or_ps(_mm512_abs_ps(magnitude.v), _mm512_and_ps(sign.v, _mm512_set1_ps(-0.0f)))};
}
HALFTONE_INLINE f32 round_even(f32 a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

#if __FINITE_MATH_ONLY__
// As for min and max.
HALFTONE_INLINE mask less(f32 a, f32 b) {
    mask r;
    __asm__("vcmpps {$%c3, %2, %1, %0|%0, %1, %2, %c3}" : "=k"(r.m) : "v"(a.v), "v"(b.v), "i"(_CMP_LT_OQ));
    return r;
}
HALFTONE_INLINE mask less_equal(f32 a, f32 b) {
    mask r;
    __asm__("vcmpps {$%c3, %2, %1, %0|%0, %1, %2, %c3}" : "=k"(r.m) : "v"(a.v), "v"(b.v), "i"(_CMP_LE_OQ));
    return r;
}
HALFTONE_INLINE mask equal(f32 a, f32 b) {
    mask r;
    __asm__("vcmpps {$%c3, %2, %1, %0|%0, %1, %2, %c3}" : "=k"(r.m) : "v"(a.v), "v"(b.v), "i"(_CMP_EQ_OQ));
    return r;
}
#else
HALFTONE_INLINE mask less(f32 a, f32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
HALFTONE_INLINE mask less_equal(f32 a, f32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
HALFTONE_INLINE mask equal(f32 a, f32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
#endif
HALFTONE_INLINE mask both(mask a, mask b) { return {static_cast<__mmask16>(a.m & b.m)}; }
HALFTONE_INLINE mask either(mask a, mask b) { return {static_cast<__mmask16>(a.m | b.m)}; }
HALFTONE_INLINE mask complement(mask a) { return {static_cast<__mmask16>(~a.m)}; }
HALFTONE_INLINE f32 select(mask m, f32 yes, f32 no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
HALFTONE_INLINE bool any(mask m) { return m.m != 0; }
/// Lanes whose exponent is all ones: infinities and NaNs, found on the bits.
HALFTONE_INLINE mask not_finite(f32 a) {
    const __m512i exponent = _mm512_set1_epi32(0x7f800000);
    return {_mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(a.v), exponent), exponent)};
}

/// x times 2^n for integral n; overflows to infinity, underflows to zero or a subnormal number.
HALFTONE_INLINE f32 scale_by_power(f32 x, f32 n) { return {_mm512_scalef_ps(x.v, n.v)}; }
/// x times 2^n for integral n from -190 to 63.
HALFTONE_INLINE f32 scale_down(f32 x, f32 n) { return scale_by_power(x, n); }
/// a - floor(a), from 0 to 1, and p times 2 to the power floor(a). For minus infinity both are 0; for infinity 0 and
/// infinity.
HALFTONE_INLINE f32 above_floor(f32 a) { return {_mm512_reduce_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
HALFTONE_INLINE f32 scale_by_floor(f32 p, f32 a) { return scale_by_power(p, a); }  // vscalefps uses floor(a) only
/// Whether above_floor and scale_by_floor work for every a, not only up to 60.
inline constexpr bool scales_by_all_powers = true;
/// Rounds a, |a| < 2^31, to the nearest integers, ties to even; kept as floats, as vscalefps takes them.
struct i32 {
    __m512 v;
};
HALFTONE_INLINE i32 nearest_integer(f32 a) { return {round_even(a).v}; }
HALFTONE_INLINE f32 to_float(i32 a) { return {a.v}; }
/// p 2^n in lanes where x is at least `least` or NaN; 0 in other lanes, whatever p and n.
HALFTONE_INLINE f32 scale_or_clear(f32 p, i32 n, f32 x, float least) {
    const __mmask16 kept = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(least), _CMP_NLT_UQ);
    return {_mm512_maskz_scalef_ps(kept, p.v, n.v)};
}
/// The exponent e and the significand m in [0.5, 1) of a positive normal x = m 2^e.
HALFTONE_INLINE f32 split_exponent(f32 x, f32& m) {
    const __m512i bits = _mm512_castps_si512(x.v);
    const __m512i e = _mm512_sub_epi32(_mm512_srli_epi32(bits, 23), _mm512_set1_epi32(126));
    m.v = _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_and_si512(bits, _mm512_set1_epi32(0x007fffff)), _mm512_set1_epi32(0x3f000000)));
    return {_mm512_cvtepi32_ps(e)};
}

HALFTONE_INLINE float first_lane(f32 a) { return _mm512_cvtss_f32(a.v); }
HALFTONE_INLINE float sum(f32 a) {
    const __m256 high = _mm512_extractf32x8_ps(a.v, 1);
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
HALFTONE_INLINE float maximum(f32 a) {
    const __m256 high = _mm512_extractf32x8_ps(a.v, 1);
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/// Reduces each of four vectors by `op`, in the order of sum and maximum, to a quarter of the result's lanes.
template <class Op>
HALFTONE_INLINE f32 fold_four(const f32* v, const Op& op) {
    const auto halves = [&](f32 x, f32 y) __attribute__((always_inline)) {
        return op(f32{_mm512_shuffle_f32x4(x.v, y.v, 0x44)}, f32{_mm512_shuffle_f32x4(x.v, y.v, 0xee)});
    };
    const __m512 first = halves(v[0], v[1]).v, last = halves(v[2], v[3]).v;
    const f32 four = op(f32{_mm512_shuffle_f32x4(first, last, 0x88)}, f32{_mm512_shuffle_f32x4(first, last, 0xdd)});
    const f32 two = op(four, f32{_mm512_permute_ps(four.v, 0x4e)});
    return op(two, f32{_mm512_permute_ps(two.v, 0xb1)});
}
/// Broadcasts each quarter to all lanes of a vector.
HALFTONE_INLINE void spread_quarters(f32 a, f32* v) {
    v[0].v = _mm512_shuffle_f32x4(a.v, a.v, 0x00);
    v[1].v = _mm512_shuffle_f32x4(a.v, a.v, 0x55);
    v[2].v = _mm512_shuffle_f32x4(a.v, a.v, 0xaa);
    v[3].v = _mm512_shuffle_f32x4(a.v, a.v, 0xff);
}

HALFTONE_INLINE f32 widen_bfloat16(__m256i bits) {
    const __m512i each_in_upper_half = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0,
                                                        4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    return {_mm512_castsi512_ps(
        _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, each_in_upper_half, _mm512_castsi256_si512(bits)))};
}
/// a rounded to nearest even at the middle of the word; the lower half is left as garbage. A NaN stays a NaN.
HALFTONE_INLINE __m512i round_to_upper_half(f32 a) {
    const __m512i bits = _mm512_castps_si512(a.v), below_half = _mm512_set1_epi32(0x7fff);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    const __m512i rounded = _mm512_mask_add_epi32(_mm512_add_epi32(bits, below_half), odd, bits, _mm512_set1_epi32(0x8000));
    // Keeps the word, except where a is a NaN, which becomes quiet.
    return _mm512_castps_si512(_mm512_fixupimm_ps(_mm512_castsi512_ps(rounded), a.v, _mm512_set1_epi32(0x22), 0));
}
HALFTONE_INLINE __m256i narrow_bfloat16(f32 a) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_to_upper_half(a), 16));
}
/// Whether the processor is known to have the instruction VCVTNE2PS2BF16. Under zig c++, which defines this macro of libc++'s,
/// it never is: its runtime does not know the processor's AVX512-BF16 before zig 0.17.1, so that the builtin does not link. CPUID
/// is no remedy in an inner loop, since virtual machines trap it.
HALFTONE_INLINE bool has_bfloat16_instruction() {
#if defined(_LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS)
    return false;
#else
    return __builtin_cpu_supports("avx512bf16");
#endif
}
/// Whether to round these vectors by the instruction VCVTNE2PS2BF16: the processor must have it, and the values must
/// contain no subnormal number, which the instruction treats as zero. The compiler's target lacks it here, so it is
/// written as inline assembly, which is not executed on processors without it.
template <int N>
HALFTONE_INLINE bool rounds_bfloat16(const f32* v) {
    if (!has_bfloat16_instruction()) return false;
    // If the program has set denormals-are-zero, VFPCLASS sees subnormal numbers as zeros, so zeros are tested for,
    // too; where it finds one of both, the bits decide.
    constexpr int zero_or_subnormal = 0x26;
    int found = 0;
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) found |= _mm512_fpclass_ps_mask(v[i].v, zero_or_subnormal);
    if (found == 0) return true;
    found = 0;
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
        const __m512i bits = _mm512_castps_si512(v[i].v);
        const __mmask16 least = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));
        found |= _mm512_mask_test_epi32_mask(least, bits, _mm512_set1_epi32(0x007fffff));
    }
    return found == 0;
}
// For two vectors: a's numbers, then b's. For a single vector the test above costs more than it saves.
HALFTONE_INLINE __m512i narrow_bfloat16_by_instruction(f32 a, f32 b) {
    __m512i r;
    __asm__ volatile("vcvtne2ps2bf16 {%1, %2, %0|%0, %2, %1}" : "=v"(r) : "v"(a.v), "v"(b.v));
    return r;
}
HALFTONE_INLINE __m512i narrow_bfloat16_by_words(f32 a, f32 b) {
    const __m512i upper_halves = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                                                  25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(round_to_upper_half(a), upper_halves, round_to_upper_half(b));
}
HALFTONE_INLINE __m512i narrow_bfloat16(f32 a, f32 b) {
    const f32 both[] = {a, b};
    return rounds_bfloat16<2>(both) ? narrow_bfloat16_by_instruction(a, b) : narrow_bfloat16_by_words(a, b);
}

HALFTONE_INLINE f32 round_bfloat16(f32 a) {
    return {_mm512_castsi512_ps(_mm512_and_si512(round_to_upper_half(a), _mm512_set1_epi32(-0x10000)))};
}
HALFTONE_INLINE f32 round_tfloat32(f32 a) {
    const __m512i bits = _mm512_castps_si512(a.v);
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x1000));
    const __m512i result = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return {_mm512_castsi512_ps(_mm512_and_si512(result, _mm512_set1_epi32(-0x2000)))};
}

HALFTONE_INLINE f32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
HALFTONE_INLINE f32 load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
HALFTONE_INLINE void store(float* p, f32 a) { _mm512_storeu_ps(p, a.v); }
HALFTONE_INLINE void store(float* p, f32 a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }

HALFTONE_INLINE f32 swap_neighbours(f32 a) { return {_mm512_permute_ps(a.v, 0xb1)}; }
HALFTONE_INLINE f32 each_twice(__m512 a) {
    return {_mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), a)};
}
HALFTONE_INLINE f32 load_twice(const float* p) { return each_twice(_mm512_castps256_ps512(_mm256_loadu_ps(p))); }
HALFTONE_INLINE f32 load_twice(const float* p, int n) { return each_twice(_mm512_maskz_loadu_ps(first_lanes(n / 2), p)); }

HALFTONE_INLINE f32 load(const bfloat16* p) {
    return widen_bfloat16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HALFTONE_INLINE f32 load(const bfloat16* p, int n) {
    return widen_bfloat16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
HALFTONE_INLINE void store(bfloat16* p, f32 a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bfloat16(a));
}
HALFTONE_INLINE void store(bfloat16* p, f32 a, int n) {
    _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_bfloat16(a));
}

/// Stores two vectors' 16-bit numbers; with a non-temporal store if `non_temporal` is true.
HALFTONE_INLINE void store_or_stream_all(void* p, __m512i bits, bool non_temporal) {
    if (non_temporal) {
        _mm512_stream_si512(static_cast<__m512i*>(p), bits);
    } else {
        _mm512_storeu_si512(p, bits);
    }
}
template <int N>
HALFTONE_INLINE void store_vectors(bfloat16* p, const f32* v, bool non_temporal) {
    if (rounds_bfloat16<N>(v)) {
#pragma GCC unroll 4
        for (int i = 0; i < N; i += 2) {
            store_or_stream_all(p + i * f32::lanes, narrow_bfloat16_by_instruction(v[i], v[i + 1]), non_temporal);
        }
    } else {
#pragma GCC unroll 4
        for (int i = 0; i < N; i += 2) {
            store_or_stream_all(p + i * f32::lanes, narrow_bfloat16_by_words(v[i], v[i + 1]), non_temporal);
        }
    }
}
// By shifts and masks: shuffles would occupy a unit of Zen 5 that also multiplies.
HALFTONE_INLINE void load_reordered(const bfloat16* p, f32& even, f32& odd) {
    const __m512i both = _mm512_loadu_si512(p);
    even.v = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    odd.v = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-0x10000)));
}
template <int N>
HALFTONE_INLINE void store_reordered(bfloat16* p, const f32* v, bool non_temporal) {
    if (rounds_bfloat16<N>(v)) {
        const __m512i in_turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                                 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
#pragma GCC unroll 4
        for (int i = 0; i < N; i += 2) {
            const __m512i both = narrow_bfloat16_by_instruction(v[i], v[i + 1]);
            store_or_stream_all(p + i * f32::lanes, _mm512_permutexvar_epi16(in_turn, both), non_temporal);
        }
    } else {
        const __m512i in_turn = _mm512_set_epi16(63, 31, 61, 29, 59, 27, 57, 25, 55, 23, 53, 21, 51, 19, 49, 17, 47, 15, 45,
                                                 13, 43, 11, 41, 9, 39, 7, 37, 5, 35, 3, 33, 1);
#pragma GCC unroll 4
        for (int i = 0; i < N; i += 2) {
            const __m512i even = round_to_upper_half(v[i]), odd = round_to_upper_half(v[i + 1]);
            store_or_stream_all(p + i * f32::lanes, _mm512_permutex2var_epi16(even, in_turn, odd), non_temporal);
        }
    }
}

/// Two vectors' 16-bit numbers as signed integers.
using halves = std::int16_t __attribute__((vector_size(64)));
HALFTONE_INLINE halves larger(halves a, halves b) {
    return reinterpret_cast<halves>(_mm512_max_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
HALFTONE_INLINE halves smaller_unsigned(halves a, halves b) {
    return reinterpret_cast<halves>(_mm512_min_epu16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}

HALFTONE_INLINE __m256i narrow_float16(f32 a) {
    return _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
HALFTONE_INLINE f32 round_float16(f32 a) { return {_mm512_cvtph_ps(narrow_float16(a))}; }
HALFTONE_INLINE f32 load(const float16* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
HALFTONE_INLINE f32 load(const float16* p, int n) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
HALFTONE_INLINE void store(float16* p, f32 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_float16(a)); }
HALFTONE_INLINE void store(float16* p, f32 a, int n) { _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_float16(a)); }

// A non-temporal store if `non_temporal` is true; p is then a multiple of the vector's size.
HALFTONE_INLINE void store_or_stream(float* p, f32 a, bool non_temporal) {
    if (non_temporal) {
        _mm512_stream_ps(p, a.v);
    } else {
        store(p, a);
    }
}
HALFTONE_INLINE void store_or_stream_sixteen_bit(void* p, __m256i bits, bool non_temporal) {
    if (non_temporal) {
        _mm256_stream_si256(static_cast<__m256i*>(p), bits);
    } else {
        _mm256_storeu_si256(static_cast<__m256i*>(p), bits);
    }
}
HALFTONE_INLINE void store_or_stream(bfloat16* p, f32 a, bool non_temporal) {
    store_or_stream_sixteen_bit(p, narrow_bfloat16(a), non_temporal);
}
HALFTONE_INLINE void store_rows(bfloat16* p, std::ptrdiff_t stride, const f32* v, bool non_temporal) {
    const bool by_instruction = rounds_bfloat16<4>(v);
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2, p += 2 * stride) {
        const __m512i two =
            by_instruction ? narrow_bfloat16_by_instruction(v[i], v[i + 1]) : narrow_bfloat16_by_words(v[i], v[i + 1]);
        store_or_stream_sixteen_bit(p, _mm512_castsi512_si256(two), non_temporal);
        store_or_stream_sixteen_bit(p + stride, _mm512_extracti64x4_epi64(two, 1), non_temporal);
    }
}
HALFTONE_INLINE void store_or_stream(float16* p, f32 a, bool non_temporal) {
    store_or_stream_sixteen_bit(p, narrow_float16(a), non_temporal);
}

/// Bytes, each in a lane of its own.
using words = std::uint32_t __attribute__((vector_size(64)));
HALFTONE_INLINE words load_eight_bit(const void* p) {
    return reinterpret_cast<words>(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
HALFTONE_INLINE words load_eight_bit(const void* p, int n) {
    return reinterpret_cast<words>(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p)));
}
HALFTONE_INLINE void store_eight_bit(void* p, words b) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(b)));
}
HALFTONE_INLINE void store_eight_bit(void* p, words b, int n) {
    _mm_mask_storeu_epi8(p, first_lanes(n), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(b)));
}
/// The numbers of a table at these places.
HALFTONE_INLINE words look_up(const std::uint32_t* table, words at) {
    return reinterpret_cast<words>(_mm512_i32gather_epi32(reinterpret_cast<__m512i>(at), table, 4));
}
/// A table of eight numbers in a register; a look-up reads the low three bits of each index.
struct small_table {
    __m512i v;
};
inline constexpr bool looks_up_in_registers = true;
HALFTONE_INLINE small_table load_small_table(const void* eight) {
    return {_mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(eight)))};
}
HALFTONE_INLINE words look_up(const small_table& table, words at) {
    return reinterpret_cast<words>(_mm512_permutexvar_epi32(reinterpret_cast<__m512i>(at), table.v));
}
/// The maximum and the minimum of integers below 2^31, in each lane.
HALFTONE_INLINE words larger_word(words a, words b) {
    return reinterpret_cast<words>(_mm512_max_epi32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
HALFTONE_INLINE words smaller_word(words a, words b) {
    return reinterpret_cast<words>(_mm512_min_epi32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
/// The magnitude of signed integers.
HALFTONE_INLINE words magnitude_of_word(words a) {
    return reinterpret_cast<words>(_mm512_abs_epi32(reinterpret_cast<__m512i>(a)));
}
/// The upper 16 bits of the products of 16-bit halves.
HALFTONE_INLINE words multiply_high_halves(words a, words b) {
    return reinterpret_cast<words>(_mm512_mulhi_epu16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
/// Signed integers as floats, and floats as integers, cut off.
HALFTONE_INLINE f32 converted(words a) { return {_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(a))}; }
HALFTONE_INLINE words truncated(f32 a) { return reinterpret_cast<words>(_mm512_cvttps_epi32(a.v)); }
HALFTONE_INLINE words choose(mask m, words yes, words no) {
    return reinterpret_cast<words>(
        _mm512_mask_mov_epi32(reinterpret_cast<__m512i>(no), m.m, reinterpret_cast<__m512i>(yes)));
}
/// a + b in the lanes of m, a in others; a in the lanes of m, 0 in others; a where b is not 0, 0 elsewhere.
HALFTONE_INLINE words add_where(mask m, words a, std::uint32_t b) {
    const __m512i lanes = reinterpret_cast<__m512i>(a);
    return reinterpret_cast<words>(_mm512_mask_add_epi32(lanes, m.m, lanes, _mm512_set1_epi32(static_cast<int>(b))));
}
HALFTONE_INLINE words keep_where(mask m, words a) {
    return reinterpret_cast<words>(_mm512_maskz_mov_epi32(m.m, reinterpret_cast<__m512i>(a)));
}
HALFTONE_INLINE words where_not_zero(words b, words a) {
    const __m512i lanes = reinterpret_cast<__m512i>(b);
    return keep_where({_mm512_test_epi32_mask(lanes, lanes)}, a);
}
/// Whether a lane has none of these bits.
HALFTONE_INLINE bool any_clear(words a, std::uint32_t bits) {
    return _mm512_testn_epi32_mask(reinterpret_cast<__m512i>(a), _mm512_set1_epi32(static_cast<int>(bits))) != 0;
}

/// A vector of 64-bit integers, and the products of their low halves.
using wide = std::uint64_t __attribute__((vector_size(64)));
HALFTONE_INLINE wide multiply_low(wide a, wide b) {
    return reinterpret_cast<wide>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}

/// Transposes 16 rows of 16 in place: exchanges neighbours, then pairs, then the 128-bit quarters of each register.
HALFTONE_INLINE void transpose(f32* rows) {
    __m512 t[16], u[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
        t[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) {
        const __m512 low = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88),
                     high = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
        const __m512 low2 = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88),
                     high2 = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
        rows[i].v = _mm512_shuffle_f32x4(low, low2, 0x88);
        rows[i + 4].v = _mm512_shuffle_f32x4(high, high2, 0x88);
        rows[i + 8].v = _mm512_shuffle_f32x4(low, low2, 0xdd);
        rows[i + 12].v = _mm512_shuffle_f32x4(high, high2, 0xdd);
    }
}

}  // namespace avx512
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>

#endif
