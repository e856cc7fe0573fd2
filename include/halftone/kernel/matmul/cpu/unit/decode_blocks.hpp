// SPDX-License-Identifier: MIT
/// \file
/// Decoding 32 elements of a coded row in the registers of each instruction set: what decode.simd.hpp calls.
///
///     const nf4_block<T> block(scale);           // of a block of nf4
///     block.decode(codes, to);                   // 16 bytes: 32 elements
///     decode_q8_0(quants, d, to);                // 32 bytes: 32 elements
///
/// An element of nf4 has one of sixteen values in its block, so these are multiplied by the scale, and rounded, once a block:
/// an element costs a look-up in a register.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/nf4.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A block of nf4 without vectors.
template <class T>
struct nf4_block_of_memory {
    T values[16];

    explicit nf4_block_of_memory(float scale) {
        for (int code = 0; code < 16; ++code) values[code] = T(nf4_values[code] * scale);
    }
    void decode(const std::byte* codes, T* to) const {
        for (int i = 0; i < 16; ++i) {
            const auto both = std::to_integer<unsigned>(codes[i]);
            to[2 * i] = values[both >> 4];
            to[2 * i + 1] = values[both & 15];
        }
    }
};
template <class T>
void decode_q8_0_in_memory(const std::byte* quants, float d, T* to) {
    for (int i = 0; i < 32; ++i) to[i] = T(d * static_cast<float>(static_cast<std::int8_t>(quants[i])));
}

}  // namespace detail

#if HALFTONE_PORTABLE
namespace portable {

template <class T>
using nf4_block = halftone::detail::nf4_block_of_memory<T>;
template <class T>
void decode_q8_0(const std::byte* quants, float d, T* to) {
    halftone::detail::decode_q8_0_in_memory(quants, d, to);
}

}  // namespace portable
#endif
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if HALFTONE_AVX2
#include <halftone/exec/cpu/set/avx2.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx2 {

template <class T>
struct nf4_block : halftone::detail::nf4_block_of_memory<T> {
    using halftone::detail::nf4_block_of_memory<T>::nf4_block_of_memory;
};
template <>
struct nf4_block<float> {
    __m256 lower, upper;  ///< values of codes 0 to 7, and 8 to 15

    explicit nf4_block(float scale)
        : lower(_mm256_mul_ps(_mm256_loadu_ps(halftone::detail::nf4_values), _mm256_set1_ps(scale))),
          upper(_mm256_mul_ps(_mm256_loadu_ps(halftone::detail::nf4_values + 8), _mm256_set1_ps(scale))) {}
    /// The values of eight codes in the lower bits of lanes.
    __m256 look_up(__m256i codes) const {
        const __m256 is_upper = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));  // bit 3 of a code becomes the sign
        return _mm256_blendv_ps(_mm256_permutevar8x32_ps(lower, codes), _mm256_permutevar8x32_ps(upper, codes),
                                is_upper);
    }
    void decode(const std::byte* codes, float* to) const {
        const __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
        for (int i = 0; i < 4; ++i) {
            std::int32_t four;
            std::memcpy(&four, codes + 4 * i, sizeof four);
            _mm256_storeu_ps(to + 8 * i, look_up(_mm256_srlv_epi32(_mm256_set1_epi32(four), shifts)));
        }
    }
};

template <class T>
void decode_q8_0(const std::byte* quants, float d, T* to) {
    halftone::detail::decode_q8_0_in_memory(quants, d, to);
}
inline void decode_q8_0(const std::byte* quants, float d, float* to) {
    for (int i = 0; i < 32; i += 8) {
        const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(quants + i));
        _mm256_storeu_ps(to + i, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)), _mm256_set1_ps(d)));
    }
}

}  // namespace avx2
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif

#if HALFTONE_AVX512
#include <halftone/exec/cpu/set/avx512.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512 {

inline __m512 scaled_nf4_values(float scale) {
    return _mm512_mul_ps(_mm512_loadu_ps(halftone::detail::nf4_values), _mm512_set1_ps(scale));
}

template <class T>
struct nf4_block;
template <>
struct nf4_block<float> {
    __m512 values;

    explicit nf4_block(float scale) : values(scaled_nf4_values(scale)) {}
    void decode(const std::byte* codes, float* to) const {
        for (int i = 0; i < 2; ++i) {
            const __m512i bytes =
                _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + 8 * i)));
            // Lanes of 32 bits: of each byte the upper four bits, then all of it, of which a look-up takes the lower four.
            const __m512i order = _mm512_or_si512(_mm512_srli_epi64(bytes, 4), _mm512_slli_epi64(bytes, 32));
            _mm512_storeu_ps(to + 16 * i, _mm512_permutexvar_ps(order, values));
        }
    }
};
template <>
struct nf4_block<bfloat16> {
    __m512i values;  ///< of the sixteen codes twice, since a look-up takes five bits

    explicit nf4_block(float scale) {
        const __m256i once = narrow_bfloat16(f32{scaled_nf4_values(scale)});
        values = _mm512_inserti64x4(_mm512_castsi256_si512(once), once, 1);
    }
    void decode(const std::byte* codes, bfloat16* to) const {
        const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
        // Lanes of 16 bits: of each byte the upper four bits, then all of it, of which the fifth does not matter.
        const __m512i order = _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16));
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, values));
    }
};

/// Sixteen elements of q8_0.
inline f32 q8_0_values(const std::byte* quants, float d) {
    const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(quants));
    return {_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen)), _mm512_set1_ps(d))};
}
inline void decode_q8_0(const std::byte* quants, float d, float* to) {
    _mm512_storeu_ps(to, q8_0_values(quants, d).v);
    _mm512_storeu_ps(to + 16, q8_0_values(quants + 16, d).v);
}
inline void decode_q8_0(const std::byte* quants, float d, bfloat16* to) {
    _mm512_storeu_si512(to, narrow_bfloat16_by_words(q8_0_values(quants, d), q8_0_values(quants + 16, d)));
}

}  // namespace avx512
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
