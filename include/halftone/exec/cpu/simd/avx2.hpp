// SPDX-License-Identifier: MIT
/// \file
/// Vectors of AVX2 with FMA and F16C: 8 lanes. Masks are vectors whose lanes are all ones or all zeros.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <halftone/exec/cpu/simd/portable.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/number/tfloat32.hpp>

#if HALFTONE_AVX2
#include <immintrin.h>

#include <halftone/exec/cpu/set/avx2.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx2 {

struct f32 {
    static constexpr int lanes = 8;
    __m256 v;
};
struct mask {
    __m256 m;
};

HALFTONE_INLINE f32 splat(float x) { return {_mm256_set1_ps(x)}; }
HALFTONE_INLINE __m256i first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// The compiler's operators and not intrinsics, so that the pragmas of number/precise/begin.hpp apply to them under
// clang's -ffast-math.
HALFTONE_INLINE f32 operator+(f32 a, f32 b) { return {a.v + b.v}; }
HALFTONE_INLINE f32 operator-(f32 a, f32 b) { return {a.v - b.v}; }
HALFTONE_INLINE f32 operator*(f32 a, f32 b) { return {a.v * b.v}; }
HALFTONE_INLINE f32 operator/(f32 a, f32 b) { return {a.v / b.v}; }
HALFTONE_INLINE f32 approximate_quotient(f32 a, f32 b) { return a / b; }
HALFTONE_INLINE f32 operator-(f32 a) { return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.0f))}; }
HALFTONE_INLINE f32 fma(f32 a, f32 b, f32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
#if __FINITE_MATH_ONLY__
// Compiled with -ffinite-math-only, compilers may swap the operands of min and max and invert comparisons, which loses
// NaNs: the softmax of a NaN would be finite. Inline assembly prevents that.
HALFTONE_INLINE f32 min(f32 a, f32 b) {
    f32 r;
    __asm__("vminps {%2, %1, %0|%0, %1, %2}" : "=x"(r.v) : "x"(a.v), "x"(b.v));
    return r;
}
HALFTONE_INLINE f32 max(f32 a, f32 b) {
    f32 r;
    __asm__("vmaxps {%2, %1, %0|%0, %1, %2}" : "=x"(r.v) : "x"(a.v), "x"(b.v));
    return r;
}
HALFTONE_INLINE f32 sqrt(f32 a) {
    f32 r;
    __asm__("vsqrtps {%1, %0|%0, %1}" : "=x"(r.v) : "x"(a.v));
    return r;
}
#else
HALFTONE_INLINE f32 sqrt(f32 a) { return {_mm256_sqrt_ps(a.v)}; }
HALFTONE_INLINE f32 min(f32 a, f32 b) { return {_mm256_min_ps(a.v, b.v)}; }
HALFTONE_INLINE f32 max(f32 a, f32 b) { return {_mm256_max_ps(a.v, b.v)}; }
#endif
HALFTONE_INLINE f32 abs(f32 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
HALFTONE_INLINE f32 copy_sign(f32 magnitude, f32 sign) {
    return {_mm256_or_ps(abs(magnitude).v, _mm256_and_ps(sign.v, _mm256_set1_ps(-0.0f)))};
}
HALFTONE_INLINE f32 round_even(f32 a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }

#if __FINITE_MATH_ONLY__
// As for min and max.
HALFTONE_INLINE mask less(f32 a, f32 b) {
    mask r;
    __asm__("vcmpps {$%c3, %2, %1, %0|%0, %1, %2, %c3}" : "=x"(r.m) : "x"(a.v), "x"(b.v), "i"(_CMP_LT_OQ));
    return r;
}
HALFTONE_INLINE mask less_equal(f32 a, f32 b) {
    mask r;
    __asm__("vcmpps {$%c3, %2, %1, %0|%0, %1, %2, %c3}" : "=x"(r.m) : "x"(a.v), "x"(b.v), "i"(_CMP_LE_OQ));
    return r;
}
HALFTONE_INLINE mask equal(f32 a, f32 b) {
    mask r;
    __asm__("vcmpps {$%c3, %2, %1, %0|%0, %1, %2, %c3}" : "=x"(r.m) : "x"(a.v), "x"(b.v), "i"(_CMP_EQ_OQ));
    return r;
}
#else
HALFTONE_INLINE mask less(f32 a, f32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
HALFTONE_INLINE mask less_equal(f32 a, f32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
HALFTONE_INLINE mask equal(f32 a, f32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
#endif
HALFTONE_INLINE mask both(mask a, mask b) { return {_mm256_and_ps(a.m, b.m)}; }
HALFTONE_INLINE mask either(mask a, mask b) { return {_mm256_or_ps(a.m, b.m)}; }
HALFTONE_INLINE mask complement(mask a) { return {_mm256_xor_ps(a.m, _mm256_castsi256_ps(_mm256_set1_epi32(-1)))}; }
HALFTONE_INLINE f32 select(mask m, f32 yes, f32 no) { return {_mm256_blendv_ps(no.v, yes.v, m.m)}; }
HALFTONE_INLINE bool any(mask m) { return _mm256_movemask_ps(m.m) != 0; }
/// Lanes whose exponent is all ones: infinities and NaNs, found on the bits.
HALFTONE_INLINE mask not_finite(f32 a) {
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(a.v), exponent), exponent))};
}

HALFTONE_INLINE __m256 power_of_two(__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
}
/// x times 2^n for integral n; overflows to infinity, underflows to zero or a subnormal number.
HALFTONE_INLINE f32 scale_by_power(f32 x, f32 n) {
    // In two steps, since 2^n itself may overflow or underflow where the product does not.
    const __m256i power =
        _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(n.v, _mm256_set1_ps(-250.0f)), _mm256_set1_ps(250.0f)));
    const __m256i half = _mm256_srai_epi32(power, 1);
    return {x.v * power_of_two(half) * power_of_two(_mm256_sub_epi32(power, half))};
}
/// x times 2^n for integral n from -190 to 63: multiplies by 2^(n + 64), then by 2^-64, which rounds once.
HALFTONE_INLINE f32 scale_down(f32 x, f32 n) {
    const __m256 power = power_of_two(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(64)));
    return {x.v * power * _mm256_set1_ps(0x1p-64f)};
}
/// a - floor(a), from 0 to 1, and p times 2 to the power floor(a), for a up to 60; both are 0 for minus infinity.
HALFTONE_INLINE f32 floor_of_exponent(f32 a) { return {_mm256_floor_ps(max(splat(-160.0f), a).v)}; }
HALFTONE_INLINE f32 above_floor(f32 a) { return max(splat(-160.0f), a) - floor_of_exponent(a); }
HALFTONE_INLINE f32 scale_by_floor(f32 p, f32 a) { return scale_down(p, floor_of_exponent(a)); }
/// Whether above_floor and scale_by_floor work for every a, not only up to 60.
inline constexpr bool scales_by_all_powers = false;
/// Rounds a, |a| < 2^31, to the nearest integers, ties to even.
struct i32 {
    __m256i v;
};
HALFTONE_INLINE i32 nearest_integer(f32 a) { return {_mm256_cvtps_epi32(a.v)}; }
HALFTONE_INLINE f32 to_float(i32 a) { return {_mm256_cvtepi32_ps(a.v)}; }
/// p 2^n, by adding n to the exponent bits, in lanes where x is at least `least` or NaN; 0 in other lanes, whatever p
/// and n.
HALFTONE_INLINE f32 scale_or_clear(f32 p, i32 n, f32 x, float least) {
    const __m256i scaled = _mm256_add_epi32(_mm256_castps_si256(p.v), _mm256_slli_epi32(n.v, 23));
    return {_mm256_andnot_ps(less(x, splat(least)).m, _mm256_castsi256_ps(scaled))};
}
/// The exponent e and the significand m in [0.5, 1) of a positive normal x = m 2^e.
HALFTONE_INLINE f32 split_exponent(f32 x, f32& m) {
    const __m256i bits = _mm256_castps_si256(x.v);
    const __m256i e = _mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(126));
    m.v = _mm256_castsi256_ps(
        _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x007fffff)), _mm256_set1_epi32(0x3f000000)));
    return {_mm256_cvtepi32_ps(e)};
}

HALFTONE_INLINE float first_lane(f32 a) { return _mm256_cvtss_f32(a.v); }
HALFTONE_INLINE float sum(f32 a) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
HALFTONE_INLINE float maximum(f32 a) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
/// Reduces each of four vectors by `op`, in the order of sum and maximum, to a quarter of the result's lanes.
template <class Op>
HALFTONE_INLINE f32 fold_four(const f32* v, const Op& op) {
    const auto halves = [&](f32 x, f32 y) __attribute__((always_inline)) {
        return _mm256_castps_pd(
            op(f32{_mm256_permute2f128_ps(x.v, y.v, 0x20)}, f32{_mm256_permute2f128_ps(x.v, y.v, 0x31)}).v);
    };
    const __m256d even = halves(v[0], v[2]), odd = halves(v[1], v[3]);
    const f32 two = op(f32{_mm256_castpd_ps(_mm256_unpacklo_pd(even, odd))},
                       f32{_mm256_castpd_ps(_mm256_unpackhi_pd(even, odd))});
    return op(two, f32{_mm256_permute_ps(two.v, 0xb1)});
}
/// Broadcasts each quarter to all lanes of a vector.
HALFTONE_INLINE void spread_quarters(f32 a, f32* v) {
    const __m256 low = _mm256_permute2f128_ps(a.v, a.v, 0x00), high = _mm256_permute2f128_ps(a.v, a.v, 0x11);
    v[0].v = _mm256_permute_ps(low, 0x00);
    v[1].v = _mm256_permute_ps(low, 0xaa);
    v[2].v = _mm256_permute_ps(high, 0x00);
    v[3].v = _mm256_permute_ps(high, 0xaa);
}

/// All ones where a is a NaN, found on the bits.
HALFTONE_INLINE __m256i nans(f32 a) {
    const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(a.v), _mm256_set1_epi32(0x7fffffff));
    return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
}
HALFTONE_INLINE f32 widen_bfloat16(__m128i bits) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}
/// a rounded to nearest even at the middle of the word; the lower half is left as garbage. A NaN stays a NaN.
HALFTONE_INLINE __m256i round_to_upper_half(f32 a) {
    const __m256i bits = _mm256_castps_si256(a.v);
    const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), lsb);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    return _mm256_blendv_epi8(rounded, quiet, nans(a));
}
/// The upper halves of a's words and of b's.
HALFTONE_INLINE __m256i upper_halves(__m256i a, __m256i b) {
    const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
    return _mm256_permute4x64_epi64(packed, 0xd8);
}
HALFTONE_INLINE __m128i narrow_bfloat16(f32 a) {
    const __m256i rounded = round_to_upper_half(a);
    return _mm256_castsi256_si128(upper_halves(rounded, rounded));
}
HALFTONE_INLINE __m128i narrow_float16(f32 a) {
    return _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

HALFTONE_INLINE f32 round_bfloat16(f32 a) {
    return {_mm256_castsi256_ps(_mm256_and_si256(round_to_upper_half(a), _mm256_set1_epi32(-0x10000)))};
}
HALFTONE_INLINE f32 round_float16(f32 a) { return {_mm256_cvtph_ps(narrow_float16(a))}; }
HALFTONE_INLINE f32 round_tfloat32(f32 a) {
    const __m256i bits = _mm256_castps_si256(a.v);
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_set1_epi32(0x1000));
    const __m256i result = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nans(a));
    return {_mm256_castsi256_ps(_mm256_and_si256(result, _mm256_set1_epi32(-0x2000)))};
}

HALFTONE_INLINE __m128i load_sixteen_bit(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
HALFTONE_INLINE __m128i load_sixteen_bit(const void* p, int n) {
    alignas(16) std::uint16_t lanes[8] = {};
    std::memcpy(lanes, p, static_cast<std::size_t>(n) * 2);
    return _mm_load_si128(reinterpret_cast<const __m128i*>(lanes));
}
HALFTONE_INLINE void store_sixteen_bit(void* p, __m128i bits) { _mm_storeu_si128(static_cast<__m128i*>(p), bits); }
HALFTONE_INLINE void store_sixteen_bit(void* p, __m128i bits, int n) {
    alignas(16) std::uint16_t lanes[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(lanes), bits);
    std::memcpy(p, lanes, static_cast<std::size_t>(n) * 2);
}

HALFTONE_INLINE f32 load(const float* p) { return {_mm256_loadu_ps(p)}; }
HALFTONE_INLINE f32 load(const float* p, int n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
HALFTONE_INLINE void store(float* p, f32 a) { _mm256_storeu_ps(p, a.v); }
HALFTONE_INLINE void store(float* p, f32 a, int n) { _mm256_maskstore_ps(p, first_lanes(n), a.v); }

HALFTONE_INLINE f32 swap_neighbours(f32 a) { return {_mm256_permute_ps(a.v, 0xb1)}; }
HALFTONE_INLINE f32 each_twice(__m128 a) {
    return {_mm256_permutevar8x32_ps(_mm256_castps128_ps256(a), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3))};
}
HALFTONE_INLINE f32 load_twice(const float* p) { return each_twice(_mm_loadu_ps(p)); }
HALFTONE_INLINE f32 load_twice(const float* p, int n) {
    return each_twice(_mm_maskload_ps(p, _mm_cmpgt_epi32(_mm_set1_epi32(n / 2), _mm_setr_epi32(0, 1, 2, 3))));
}

HALFTONE_INLINE f32 load(const bfloat16* p) { return widen_bfloat16(load_sixteen_bit(p)); }
HALFTONE_INLINE f32 load(const bfloat16* p, int n) { return widen_bfloat16(load_sixteen_bit(p, n)); }
HALFTONE_INLINE void store(bfloat16* p, f32 a) { store_sixteen_bit(p, narrow_bfloat16(a)); }
HALFTONE_INLINE void store(bfloat16* p, f32 a, int n) { store_sixteen_bit(p, narrow_bfloat16(a), n); }

HALFTONE_INLINE f32 load(const float16* p) { return {_mm256_cvtph_ps(load_sixteen_bit(p))}; }
HALFTONE_INLINE f32 load(const float16* p, int n) { return {_mm256_cvtph_ps(load_sixteen_bit(p, n))}; }
HALFTONE_INLINE void store(float16* p, f32 a) { store_sixteen_bit(p, narrow_float16(a)); }
HALFTONE_INLINE void store(float16* p, f32 a, int n) { store_sixteen_bit(p, narrow_float16(a), n); }

// A non-temporal store if `non_temporal` is true; p is then a multiple of the vector's size.
HALFTONE_INLINE void store_or_stream(float* p, f32 a, bool non_temporal) {
    if (non_temporal) {
        _mm256_stream_ps(p, a.v);
    } else {
        store(p, a);
    }
}
HALFTONE_INLINE void store_or_stream_sixteen_bit(void* p, __m128i bits, bool non_temporal) {
    if (non_temporal) {
        _mm_stream_si128(static_cast<__m128i*>(p), bits);
    } else {
        _mm_storeu_si128(static_cast<__m128i*>(p), bits);
    }
}
HALFTONE_INLINE void store_or_stream(bfloat16* p, f32 a, bool non_temporal) {
    store_or_stream_sixteen_bit(p, narrow_bfloat16(a), non_temporal);
}
HALFTONE_INLINE void store_or_stream(float16* p, f32 a, bool non_temporal) {
    store_or_stream_sixteen_bit(p, narrow_float16(a), non_temporal);
}
/// Two vectors' 16-bit numbers.
HALFTONE_INLINE void store_or_stream_all(void* p, __m256i bits, bool non_temporal) {
    if (non_temporal) {
        _mm256_stream_si256(static_cast<__m256i*>(p), bits);
    } else {
        _mm256_storeu_si256(static_cast<__m256i*>(p), bits);
    }
}
template <int N>
HALFTONE_INLINE void store_vectors(bfloat16* p, const f32* v, bool non_temporal) {
#pragma GCC unroll 4
    for (int i = 0; i < N; i += 2) {
        const __m256i first = round_to_upper_half(v[i]), second = round_to_upper_half(v[i + 1]);
        store_or_stream_all(p + i * f32::lanes, upper_halves(first, second), non_temporal);
    }
}
HALFTONE_INLINE void load_reordered(const bfloat16* p, f32& even, f32& odd) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    even.v = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    odd.v = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-0x10000)));
}
template <int N>
HALFTONE_INLINE void store_reordered(bfloat16* p, const f32* v, bool non_temporal) {
#pragma GCC unroll 4
    for (int i = 0; i < N; i += 2) {
        const __m256i even = _mm256_srli_epi32(round_to_upper_half(v[i]), 16), odd = round_to_upper_half(v[i + 1]);
        store_or_stream_all(p + i * f32::lanes, _mm256_blend_epi16(even, odd, 0xaa), non_temporal);
    }
}

/// Two vectors' 16-bit numbers as signed integers.
using halves = std::int16_t __attribute__((vector_size(32)));
HALFTONE_INLINE halves larger(halves a, halves b) {
    return reinterpret_cast<halves>(_mm256_max_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
HALFTONE_INLINE halves smaller_unsigned(halves a, halves b) {
    return reinterpret_cast<halves>(_mm256_min_epu16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}

/// Bytes, each in a lane of its own.
using words = std::uint32_t __attribute__((vector_size(32)));
HALFTONE_INLINE words widen_bytes(std::uint64_t bytes) {
    return reinterpret_cast<words>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes))));
}
HALFTONE_INLINE std::uint64_t narrow_to_bytes(words b) {
    const __m256i lanes = reinterpret_cast<__m256i>(b);
    const __m128i pairs = _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(pairs, pairs)));
}
HALFTONE_INLINE words load_eight_bit(const void* p, int n = 8) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, p, static_cast<std::size_t>(n));
    return widen_bytes(bytes);
}
HALFTONE_INLINE void store_eight_bit(void* p, words b, int n = 8) {
    const std::uint64_t bytes = narrow_to_bytes(b);
    std::memcpy(p, &bytes, static_cast<std::size_t>(n));
}
/// The numbers of a table at these places.
HALFTONE_INLINE words look_up(const std::uint32_t* table, words at) {
    return reinterpret_cast<words>(
        _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), reinterpret_cast<__m256i>(at), 4));
}
/// A table of eight numbers in a register; a look-up reads the low three bits of each index.
struct small_table {
    __m256i v;
};
inline constexpr bool looks_up_in_registers = true;
HALFTONE_INLINE small_table load_small_table(const void* eight) {
    return {_mm256_loadu_si256(static_cast<const __m256i*>(eight))};
}
HALFTONE_INLINE words look_up(const small_table& table, words at) {
    return reinterpret_cast<words>(_mm256_permutevar8x32_epi32(table.v, reinterpret_cast<__m256i>(at)));
}
/// The maximum and the minimum of integers below 2^31, in each lane.
HALFTONE_INLINE words larger_word(words a, words b) {
    return reinterpret_cast<words>(_mm256_max_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
HALFTONE_INLINE words smaller_word(words a, words b) {
    return reinterpret_cast<words>(_mm256_min_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
/// The magnitude of signed integers.
HALFTONE_INLINE words magnitude_of_word(words a) {
    return reinterpret_cast<words>(_mm256_abs_epi32(reinterpret_cast<__m256i>(a)));
}
/// The upper 16 bits of the products of 16-bit halves.
HALFTONE_INLINE words multiply_high_halves(words a, words b) {
    return reinterpret_cast<words>(_mm256_mulhi_epu16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
/// Signed integers as floats, and floats as integers, cut off.
HALFTONE_INLINE f32 converted(words a) { return {_mm256_cvtepi32_ps(reinterpret_cast<__m256i>(a))}; }
HALFTONE_INLINE words truncated(f32 a) { return reinterpret_cast<words>(_mm256_cvttps_epi32(a.v)); }
HALFTONE_INLINE words choose(mask m, words yes, words no) {
    return reinterpret_cast<words>(
        _mm256_blendv_epi8(reinterpret_cast<__m256i>(no), reinterpret_cast<__m256i>(yes), _mm256_castps_si256(m.m)));
}
/// a + b in the lanes of m, a in others; a in the lanes of m, 0 in others; a where b is not 0, 0 elsewhere.
HALFTONE_INLINE words add_where(mask m, words a, std::uint32_t b) {
    return a + (reinterpret_cast<words>(m.m) & b);
}
HALFTONE_INLINE words keep_where(mask m, words a) { return reinterpret_cast<words>(m.m) & a; }
HALFTONE_INLINE words where_not_zero(words b, words a) {
    const __m256i is_zero = _mm256_cmpeq_epi32(reinterpret_cast<__m256i>(b), _mm256_setzero_si256());
    return reinterpret_cast<words>(_mm256_andnot_si256(is_zero, reinterpret_cast<__m256i>(a)));
}
/// Whether a lane has none of these bits.
HALFTONE_INLINE bool any_clear(words a, std::uint32_t bits) {
    const __m256i kept = _mm256_and_si256(reinterpret_cast<__m256i>(a), _mm256_set1_epi32(static_cast<int>(bits)));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(kept, _mm256_setzero_si256())) != 0;
}

/// A vector of 64-bit integers, and the products of their low halves.
using wide = std::uint64_t __attribute__((vector_size(32)));
HALFTONE_INLINE wide multiply_low(wide a, wide b) {
    return reinterpret_cast<wide>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}

/// Transposes 8 rows of 8 in place: exchanges neighbours, then pairs, then halves.
HALFTONE_INLINE void transpose(f32* rows) {
    __m256 t[8], u[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(rows[i].v, rows[i + 1].v);
        t[i + 1] = _mm256_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; ++i) {
        rows[i].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        rows[i + 4].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

}  // namespace avx2
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>

#endif
