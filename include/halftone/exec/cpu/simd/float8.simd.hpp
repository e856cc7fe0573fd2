// SPDX-License-Identifier: MIT
/// \file
/// Conversions between one-byte numbers and vectors of float, on an instruction set's `words`: vectors of 32-bit
/// integers with the operators of the compiler's vector types. load_eight_bit and store_eight_bit read and write their
/// low bytes. The bits are those of number/float8.hpp.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>
#include <type_traits>

#include <halftone/exec/cpu/simd/avx2.hpp>
#include <halftone/exec/cpu/simd/avx512.hpp>
#include <halftone/exec/cpu/simd/portable.hpp>
#include <halftone/number/float8.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

HALFTONE_INLINE words words_of(std::uint32_t b) { return words{} + b; }
HALFTONE_INLINE words words_of(f32 a) { return reinterpret_cast<words>(a.v); }
HALFTONE_INLINE f32 floats_of(words b) { return {reinterpret_cast<decltype(f32::v)>(b)}; }

/// All ones where a > b. Both are below 2^31, because a set may lack unsigned comparisons.
HALFTONE_INLINE words greater(words a, std::uint32_t b) {
    using integers = std::int32_t __attribute__((vector_size(sizeof(words))));
    return reinterpret_cast<words>(reinterpret_cast<integers>(a) > reinterpret_cast<integers>(words_of(b)));
}
HALFTONE_INLINE words choose(words m, words yes, words no) { return (yes & m) | (no & ~m); }

/// Rounds to T: `Dropped` is the number of fraction bits that T lacks, `Least` the exponent of T's least normal number,
/// with float's bias.
template <int Dropped, std::uint32_t Least, class T>
HALFTONE_INLINE words narrow_to_byte(words bits) {
    using codes = detail::float8_codes<T>;
    const words magnitude = bits & 0x7fffffffu;
    const words odd = (magnitude >> Dropped) & 1u;
    const words normal = (magnitude - ((Least - 1) << 23) + ((1u << (Dropped - 1)) - 1) + odd) >> Dropped;
    // A subnormal result is a multiple of T's least number: adding 2^23 times that number rounds to it, to nearest
    // even.
    constexpr std::uint32_t aligned = (Least + Dropped) << 23;
    const words tiny = words_of(floats_of(magnitude) + floats_of(words_of(aligned))) - aligned;
    words result = choose(greater(magnitude, (Least << 23) - 1), normal, tiny);
    result = choose(greater(magnitude, codes::first_beyond - 1), words_of(codes::beyond), result);
    if constexpr (codes::beyond != codes::nan)
        result = choose(greater(magnitude, 0x7f800000u), words_of(codes::nan), result);
    return result | ((bits >> 24) & 0x80u);
}
HALFTONE_INLINE words narrow_float8(f32 a, const float8_e4m3*) {
    return narrow_to_byte<20, 121, float8_e4m3>(words_of(a));
}
HALFTONE_INLINE words narrow_float8(f32 a, const float8_e5m2*) {
    return narrow_to_byte<21, 113, float8_e5m2>(words_of(a));
}

/// The bits of a number that is finite; a subnormal one is computed as (1 + m) 2^e - 2^e.
template <int Dropped, std::uint32_t Least>
HALFTONE_INLINE words widen_byte(words magnitude) {
    const words shifted = magnitude << Dropped;
    const words normal = shifted + ((Least - 1) << 23);
    const words tiny = words_of(floats_of(shifted + (Least << 23)) - floats_of(words_of(Least << 23)));
    return choose(greater(shifted, (1u << 23) - 1), normal, tiny);
}
HALFTONE_INLINE f32 widen_float8(words byte, const float8_e4m3*) {
    const words magnitude = byte & 0x7fu;
    const words value = choose(greater(magnitude, 0x7e), words_of(0x7fc00000u), widen_byte<20, 121>(magnitude));
    return floats_of(value | ((byte & 0x80u) << 24));
}
HALFTONE_INLINE f32 widen_float8(words byte, const float8_e5m2*) {
    const words magnitude = byte & 0x7fu;
    const words quiet = greater(magnitude, 0x7c) & 0x400000u;
    const words special = (magnitude << 21) + (224u << 23);
    const words value = choose(greater(magnitude, 0x7b), special | quiet, widen_byte<21, 113>(magnitude));
    return floats_of(value | ((byte & 0x80u) << 24));
}

template <eight_bit T>
    requires(!own_number<T>)
HALFTONE_INLINE f32 load(const T* p) {
    return widen_float8(load_eight_bit(p), p);
}
template <eight_bit T>
    requires(!own_number<T>)
HALFTONE_INLINE f32 load(const T* p, int n) {
    return widen_float8(load_eight_bit(p, n), p);
}
template <eight_bit T>
    requires(!own_number<T>)
HALFTONE_INLINE void store(T* p, f32 a) {
    store_eight_bit(p, narrow_float8(a, p));
}
template <eight_bit T>
    requires(!own_number<T>)
HALFTONE_INLINE void store(T* p, f32 a, int n) {
    store_eight_bit(p, narrow_float8(a, p), n);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
