// SPDX-License-Identifier: MIT
/// \file
/// Vectors as the compiler's own vector types: 4 lanes, by SSE2 on x86-64 and NEON on aarch64.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <halftone/exec/cpu/body_names.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/number/tfloat32.hpp>

#if HALFTONE_PORTABLE
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

// After all other inclusions, which must not be compiled inside the region.
#include <halftone/exec/cpu/set/portable.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace portable {

using float_lanes = float __attribute__((vector_size(16)));
using bit_lanes = std::uint32_t __attribute__((vector_size(16)));
using int_lanes = std::int32_t __attribute__((vector_size(16)));

struct f32 {
    static constexpr int lanes = 4;
    float_lanes v;
};
struct mask {
    int_lanes m;
};

HALFTONE_INLINE bit_lanes bits_of(f32 a) { return reinterpret_cast<bit_lanes>(a.v); }
HALFTONE_INLINE f32 float_of(bit_lanes b) { return {reinterpret_cast<float_lanes>(b)}; }
HALFTONE_INLINE bit_lanes splat_bits(std::uint32_t b) { return bit_lanes{b, b, b, b}; }
HALFTONE_INLINE bit_lanes blend(int_lanes m, bit_lanes yes, bit_lanes no) {
    const bit_lanes chosen = reinterpret_cast<bit_lanes>(m);
    return (yes & chosen) | (no & ~chosen);
}

HALFTONE_INLINE f32 splat(float x) { return {float_lanes{x, x, x, x}}; }

HALFTONE_INLINE f32 swap_neighbours(f32 a) { return {float_lanes{a.v[1], a.v[0], a.v[3], a.v[2]}}; }
HALFTONE_INLINE f32 load_twice(const float* p) { return {float_lanes{p[0], p[0], p[1], p[1]}}; }
HALFTONE_INLINE f32 load_twice(const float* p, int n) { return n > 2 ? load_twice(p) : f32{float_lanes{p[0], p[0], 0, 0}}; }

HALFTONE_INLINE f32 operator+(f32 a, f32 b) { return {a.v + b.v}; }
HALFTONE_INLINE f32 operator-(f32 a, f32 b) { return {a.v - b.v}; }
HALFTONE_INLINE f32 operator*(f32 a, f32 b) { return {a.v * b.v}; }
HALFTONE_INLINE f32 operator/(f32 a, f32 b) { return {a.v / b.v}; }
HALFTONE_INLINE f32 approximate_quotient(f32 a, f32 b) { return a / b; }
HALFTONE_INLINE f32 operator-(f32 a) { return float_of(bits_of(a) ^ splat_bits(0x80000000u)); }
HALFTONE_INLINE f32 fma(f32 a, f32 b, f32 c) { return {a.v * b.v + c.v}; }
#if __FINITE_MATH_ONLY__ && defined(__x86_64__)
// Compiled with -ffinite-math-only, compilers may swap the operands of min and max and invert comparisons, which loses
// NaNs: the softmax of a NaN would be finite. Inline assembly prevents that.
HALFTONE_INLINE mask less(f32 a, f32 b) {
    __asm__("cmpltps {%1, %0|%0, %1}" : "+x"(a.v) : "x"(b.v));
    return {reinterpret_cast<int_lanes>(a.v)};
}
HALFTONE_INLINE mask less_equal(f32 a, f32 b) {
    __asm__("cmpleps {%1, %0|%0, %1}" : "+x"(a.v) : "x"(b.v));
    return {reinterpret_cast<int_lanes>(a.v)};
}
HALFTONE_INLINE mask equal(f32 a, f32 b) {
    __asm__("cmpeqps {%1, %0|%0, %1}" : "+x"(a.v) : "x"(b.v));
    return {reinterpret_cast<int_lanes>(a.v)};
}
#else
HALFTONE_INLINE mask less(f32 a, f32 b) { return {reinterpret_cast<int_lanes>(a.v < b.v)}; }
HALFTONE_INLINE mask less_equal(f32 a, f32 b) { return {reinterpret_cast<int_lanes>(a.v <= b.v)}; }
HALFTONE_INLINE mask equal(f32 a, f32 b) { return {reinterpret_cast<int_lanes>(a.v == b.v)}; }
#endif
HALFTONE_INLINE mask both(mask a, mask b) { return {a.m & b.m}; }
HALFTONE_INLINE mask either(mask a, mask b) { return {a.m | b.m}; }
HALFTONE_INLINE mask complement(mask a) { return {~a.m}; }
HALFTONE_INLINE f32 select(mask m, f32 yes, f32 no) { return float_of(blend(m.m, bits_of(yes), bits_of(no))); }
HALFTONE_INLINE bool any(mask m) { return (m.m[0] | m.m[1] | m.m[2] | m.m[3]) != 0; }
// As x86's instructions, they return b if either operand is NaN.
HALFTONE_INLINE f32 min(f32 a, f32 b) { return select(less(a, b), a, b); }
HALFTONE_INLINE f32 max(f32 a, f32 b) { return select(less(b, a), a, b); }
HALFTONE_INLINE f32 sqrt(f32 a) {
#if __FINITE_MATH_ONLY__ && defined(__x86_64__)
    __asm__("sqrtps {%0, %0|%0, %0}" : "+x"(a.v));  // clang might use an approximation, whose result for a NaN is 0
    return a;
#endif
    f32 r;
    for (int i = 0; i < 4; ++i) r.v[i] = __builtin_sqrtf(a.v[i]);
    return r;
}
HALFTONE_INLINE f32 abs(f32 a) { return float_of(bits_of(a) & splat_bits(0x7fffffffu)); }
HALFTONE_INLINE f32 copy_sign(f32 magnitude, f32 sign) {
    return float_of((bits_of(magnitude) & splat_bits(0x7fffffffu)) | (bits_of(sign) & splat_bits(0x80000000u)));
}
/// Lanes whose exponent is all ones: infinities and NaNs, found on the bits.
HALFTONE_INLINE mask not_finite(f32 a) {
    const bit_lanes exponent = splat_bits(0x7f800000u);
    return {reinterpret_cast<int_lanes>((bits_of(a) & exponent) == exponent)};
}

/// Integral a, |a| < 2^22, as integers: adding 1.5 * 2^23 leaves them in the low bits of the float.
HALFTONE_INLINE int_lanes to_int(f32 a) {
    return reinterpret_cast<int_lanes>(bits_of(a + splat(12582912.0f)) - splat_bits(0x4b400000u));
}
HALFTONE_INLINE f32 to_float(int_lanes i) { return {__builtin_convertvector(i, float_lanes)}; }
HALFTONE_INLINE f32 round_even(f32 a) {
    // Beyond 2^23 every float is an integer already.
    const f32 magic = copy_sign(splat(8388608.0f), a);
    f32 biased = {a.v + magic.v};
    __asm__("" : "+m"(biased.v));  // prevents -ffast-math from simplifying (a + c) - c to a
    return select(less(abs(a), splat(8388608.0f)), copy_sign({biased.v - magic.v}, a), a);
}

HALFTONE_INLINE f32 power_of_two(int_lanes e) { return float_of(reinterpret_cast<bit_lanes>((e + 127) << 23)); }
/// x times 2^n for integral n; overflows to infinity, underflows to zero or a subnormal number.
HALFTONE_INLINE f32 scale_by_power(f32 x, f32 n) {
    // In two steps, since 2^n itself may overflow or underflow where the product does not.
    const int_lanes power = to_int(min(max(n, splat(-250.0f)), splat(250.0f)));
    const int_lanes half = power >> 1;
    return x * power_of_two(half) * power_of_two(power - half);
}
/// x times 2^n for integral n from -190 to 63: multiplies by 2^(n + 64), then by 2^-64, which rounds once.
HALFTONE_INLINE f32 scale_down(f32 x, int_lanes n) { return x * power_of_two(n + 64) * splat(0x1p-64f); }
HALFTONE_INLINE f32 scale_down(f32 x, f32 n) { return scale_down(x, to_int(n)); }
/// a - floor(a), from 0 to 1, and p times 2 to the power floor(a), for a up to 60; both are 0 for minus infinity.
HALFTONE_INLINE int_lanes floor_of_exponent(f32 a) {
    const f32 bounded = max(splat(-160.0f), a);
    const int_lanes toward_zero = __builtin_convertvector(bounded.v, int_lanes);
    return toward_zero + less(bounded, to_float(toward_zero)).m;
}
HALFTONE_INLINE f32 above_floor(f32 a) { return max(splat(-160.0f), a) - to_float(floor_of_exponent(a)); }
HALFTONE_INLINE f32 scale_by_floor(f32 p, f32 a) { return scale_down(p, floor_of_exponent(a)); }
/// Whether above_floor and scale_by_floor work for every a, not only up to 60.
inline constexpr bool scales_by_all_powers = false;
/// Rounds a, |a| < 2^22, to the nearest integers, ties to even.
struct i32 {
    int_lanes v;
};
HALFTONE_INLINE i32 nearest_integer(f32 a) { return {to_int(a)}; }
HALFTONE_INLINE f32 to_float(i32 a) { return to_float(a.v); }
/// p 2^n, by adding n to the exponent bits, in lanes where x is at least `least` or NaN; 0 in other lanes, whatever p
/// and n.
HALFTONE_INLINE f32 scale_or_clear(f32 p, i32 n, f32 x, float least) {
    const bit_lanes scaled = bits_of(p) + (reinterpret_cast<bit_lanes>(n.v) << 23);
    return float_of(blend(less(x, splat(least)).m, splat_bits(0), scaled));
}
/// The exponent e and the significand m in [0.5, 1) of a positive normal x = m 2^e.
HALFTONE_INLINE f32 split_exponent(f32 x, f32& m) {
    const bit_lanes bits = bits_of(x);
    m = float_of((bits & splat_bits(0x007fffffu)) | splat_bits(0x3f000000u));
    return to_float(reinterpret_cast<int_lanes>(bits >> 23) - 126);
}

HALFTONE_INLINE float first_lane(f32 a) { return a.v[0]; }
HALFTONE_INLINE float sum(f32 a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
HALFTONE_INLINE float maximum(f32 a) {
    const float even = a.v[0] > a.v[2] ? a.v[0] : a.v[2], odd = a.v[1] > a.v[3] ? a.v[1] : a.v[3];
    return even > odd ? even : odd;
}
/// Reduces each of four vectors by `op`, in the order of sum and maximum, to a quarter of the result's lanes.
template <class Op>
HALFTONE_INLINE f32 fold_four(const f32* v, const Op& op) {
    const auto lane = [&](int i) __attribute__((always_inline)) {
        return f32{float_lanes{v[0].v[i], v[1].v[i], v[2].v[i], v[3].v[i]}};
    };
    return op(op(lane(0), lane(2)), op(lane(1), lane(3)));
}
/// Broadcasts each quarter to all lanes of a vector.
HALFTONE_INLINE void spread_quarters(f32 a, f32* v) {
    for (int i = 0; i < 4; ++i) v[i] = splat(a.v[i]);
}

/// Four 16-bit patterns, each in the low half of a lane.
HALFTONE_INLINE bit_lanes load_sixteen_bit(const void* p, int n = 4) {
    std::uint16_t lanes[4] = {};
    std::memcpy(lanes, p, static_cast<std::size_t>(n) * 2);
    return bit_lanes{lanes[0], lanes[1], lanes[2], lanes[3]};
}
HALFTONE_INLINE void store_sixteen_bit(void* p, bit_lanes b, int n = 4) {
    const std::uint16_t lanes[4] = {static_cast<std::uint16_t>(b[0]), static_cast<std::uint16_t>(b[1]),
                                    static_cast<std::uint16_t>(b[2]), static_cast<std::uint16_t>(b[3])};
    std::memcpy(p, lanes, static_cast<std::size_t>(n) * 2);
}

HALFTONE_INLINE bit_lanes narrow_bfloat16(f32 a) {
    const bit_lanes bits = bits_of(a), high = bits >> 16;
    const bit_lanes rounded = (bits + splat_bits(0x7fffu) + (high & splat_bits(1u))) >> 16;
    const int_lanes nan = reinterpret_cast<int_lanes>((bits & splat_bits(0x7fffffffu)) > splat_bits(0x7f800000u));
    return blend(nan, high | splat_bits(0x40u), rounded);
}
HALFTONE_INLINE f32 widen_float16(bit_lanes half) {
    const bit_lanes exponent = splat_bits(0x7c00u << 13), shifted = (half & splat_bits(0x7fffu)) << 13;
    const bit_lanes present = shifted & exponent;
    const int_lanes special = reinterpret_cast<int_lanes>(present == exponent);
    const int_lanes subnormal = reinterpret_cast<int_lanes>(present == splat_bits(0u));
    const bit_lanes normal = shifted + splat_bits((127u - 15u) << 23);
    const bit_lanes infinite = normal + splat_bits((128u - 16u) << 23);
    // A subnormal 2^-14 m is computed as 2^-14 (1 + m) - 2^-14: the subtraction normalises it.
    const f32 tiny = float_of(normal + splat_bits(1u << 23)) - float_of(splat_bits(113u << 23));
    const bit_lanes quiet = blend(reinterpret_cast<int_lanes>((shifted & splat_bits(0x007fe000u)) != splat_bits(0u)),
                                  splat_bits(0x00400000u), splat_bits(0u));
    const bit_lanes magnitude = blend(special, infinite | quiet, blend(subnormal, bits_of(tiny), normal));
    return float_of(magnitude | ((half & splat_bits(0x8000u)) << 16));
}
HALFTONE_INLINE bit_lanes narrow_float16(f32 a) {
    const bit_lanes sign = bits_of(a) & splat_bits(0x80000000u), magnitude = bits_of(a) ^ sign;
    const auto above = [magnitude](std::uint32_t limit) {
        return reinterpret_cast<int_lanes>(magnitude > splat_bits(limit));
    };
    // For a subnormal result: adding 0.5 aligns its last bit with the sum's last bit, so the addition rounds it to
    // nearest even.
    const bit_lanes tiny = bits_of(float_of(magnitude) + splat(0.5f)) - splat_bits(0x3f000000u);
    const bit_lanes odd = (magnitude >> 13) & splat_bits(1u);
    const bit_lanes normal = (magnitude - splat_bits(112u << 23) + splat_bits(0xfffu) + odd) >> 13;
    const bit_lanes nan = splat_bits(0x7e00u) | ((magnitude >> 13) & splat_bits(0x3ffu));
    bit_lanes result = blend(above(0x387fffffu), normal, tiny);
    result = blend(above(0x477fefffu), splat_bits(0x7c00u), result);
    result = blend(above(0x7f800000u), nan, result);
    return result | (sign >> 16);
}

HALFTONE_INLINE f32 round_bfloat16(f32 a) { return float_of(narrow_bfloat16(a) << 16); }
HALFTONE_INLINE f32 round_float16(f32 a) { return widen_float16(narrow_float16(a)); }
HALFTONE_INLINE f32 round_tfloat32(f32 a) {
    const bit_lanes bits = bits_of(a);
    const int_lanes nan = reinterpret_cast<int_lanes>(bits & splat_bits(0x7fffffffu)) >
                          reinterpret_cast<int_lanes>(splat_bits(0x7f800000u));
    return float_of(blend(nan, bits | splat_bits(0x400000u), bits + splat_bits(0x1000u)) & splat_bits(0xffffe000u));
}

HALFTONE_INLINE f32 load(const float* p) {
    f32 r;
    std::memcpy(&r.v, p, sizeof r.v);
    return r;
}
HALFTONE_INLINE f32 load(const float* p, int n) {
    f32 r = splat(0.0f);
    std::memcpy(&r.v, p, static_cast<std::size_t>(n) * 4);
    return r;
}
HALFTONE_INLINE void store(float* p, f32 a) { std::memcpy(p, &a.v, sizeof a.v); }
HALFTONE_INLINE void store(float* p, f32 a, int n) { std::memcpy(p, &a.v, static_cast<std::size_t>(n) * 4); }

HALFTONE_INLINE f32 load(const bfloat16* p) { return float_of(load_sixteen_bit(p) << 16); }
HALFTONE_INLINE f32 load(const bfloat16* p, int n) { return float_of(load_sixteen_bit(p, n) << 16); }
HALFTONE_INLINE void store(bfloat16* p, f32 a) { store_sixteen_bit(p, narrow_bfloat16(a)); }
HALFTONE_INLINE void store(bfloat16* p, f32 a, int n) { store_sixteen_bit(p, narrow_bfloat16(a), n); }

HALFTONE_INLINE f32 load(const float16* p) { return widen_float16(load_sixteen_bit(p)); }
HALFTONE_INLINE f32 load(const float16* p, int n) { return widen_float16(load_sixteen_bit(p, n)); }
HALFTONE_INLINE void store(float16* p, f32 a) { store_sixteen_bit(p, narrow_float16(a)); }
HALFTONE_INLINE void store(float16* p, f32 a, int n) { store_sixteen_bit(p, narrow_float16(a), n); }

/// Two vectors' 16-bit numbers as signed integers.
using halves = std::int16_t __attribute__((vector_size(16)));
HALFTONE_INLINE halves larger(halves a, halves b) { return a > b ? a : b; }
HALFTONE_INLINE halves smaller_unsigned(halves a, halves b) {
    using unsigned_halves = std::uint16_t __attribute__((vector_size(16)));
    return reinterpret_cast<unsigned_halves>(a) < reinterpret_cast<unsigned_halves>(b) ? a : b;
}

/// Bytes, each in a lane of its own.
using words = bit_lanes;
HALFTONE_INLINE words load_eight_bit(const void* p, int n = 4) {
    std::uint8_t lanes[4] = {};
    std::memcpy(lanes, p, static_cast<std::size_t>(n));
    return words{lanes[0], lanes[1], lanes[2], lanes[3]};
}
HALFTONE_INLINE void store_eight_bit(void* p, words b, int n = 4) {
    const std::uint8_t lanes[4] = {static_cast<std::uint8_t>(b[0]), static_cast<std::uint8_t>(b[1]),
                                   static_cast<std::uint8_t>(b[2]), static_cast<std::uint8_t>(b[3])};
    std::memcpy(p, lanes, static_cast<std::size_t>(n));
}
/// The numbers of a table at these places.
HALFTONE_INLINE words look_up(const std::uint32_t* table, words at) {
    return words{table[at[0]], table[at[1]], table[at[2]], table[at[3]]};
}
/// A table of eight numbers; a look-up reads the low three bits of each index.
struct small_table {
    std::uint32_t numbers[8];
};
inline constexpr bool looks_up_in_registers = false;
HALFTONE_INLINE small_table load_small_table(const void* eight) {
    small_table table;
    std::memcpy(table.numbers, eight, sizeof table.numbers);
    return table;
}
HALFTONE_INLINE words look_up(const small_table& table, words at) { return look_up(table.numbers, at & 7u); }
HALFTONE_INLINE words choose(mask m, words yes, words no) { return blend(m.m, yes, no); }
/// The maximum and the minimum of integers below 2^31, in each lane.
HALFTONE_INLINE words larger_word(words a, words b) {
    return blend(reinterpret_cast<int_lanes>(a) > reinterpret_cast<int_lanes>(b), a, b);
}
HALFTONE_INLINE words smaller_word(words a, words b) {
    return blend(reinterpret_cast<int_lanes>(a) < reinterpret_cast<int_lanes>(b), a, b);
}
/// The magnitude of signed integers.
HALFTONE_INLINE words magnitude_of_word(words a) {
    return blend(reinterpret_cast<int_lanes>(a) < 0, 0u - a, a);
}
/// The upper 16 bits of the products of 16-bit halves.
HALFTONE_INLINE words multiply_high_halves(words a, words b) {
    words product;
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t upper = (a[i] >> 16) * (b[i] >> 16), lower = (a[i] & 0xffffu) * (b[i] & 0xffffu);
        product[i] = (upper & 0xffff0000u) | (lower >> 16);
    }
    return product;
}
/// Signed integers as floats, and floats as integers, cut off.
HALFTONE_INLINE f32 converted(words a) { return to_float(reinterpret_cast<int_lanes>(a)); }
HALFTONE_INLINE words truncated(f32 a) { return reinterpret_cast<words>(__builtin_convertvector(a.v, int_lanes)); }
/// a + b in the lanes of m, a in others; a in the lanes of m, 0 in others; a where b is not 0, 0 elsewhere.
HALFTONE_INLINE words add_where(mask m, words a, std::uint32_t b) { return a + (reinterpret_cast<words>(m.m) & b); }
HALFTONE_INLINE words keep_where(mask m, words a) { return reinterpret_cast<words>(m.m) & a; }
HALFTONE_INLINE words where_not_zero(words b, words a) { return reinterpret_cast<words>(b != 0u) & a; }
/// Whether a lane has none of these bits.
HALFTONE_INLINE bool any_clear(words a, std::uint32_t bits) {
    const int_lanes clear = reinterpret_cast<int_lanes>((a & bits) == 0u);
    return (clear[0] | clear[1] | clear[2] | clear[3]) != 0;
}

/// A vector of 64-bit integers, and the products of their low halves.
using wide = std::uint64_t __attribute__((vector_size(16)));
HALFTONE_INLINE wide multiply_low(wide a, wide b) {
#if defined(__SSE2__)
    return reinterpret_cast<wide>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
    return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

/// Transposes 4 rows of 4 in place.
HALFTONE_INLINE void transpose(f32* rows) {
    for (int i = 0; i < 4; ++i) {
        for (int j = i + 1; j < 4; ++j) {
            const float above = rows[i].v[j];
            rows[i].v[j] = rows[j].v[i];
            rows[j].v[i] = above;
        }
    }
}

}  // namespace portable
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
