// SPDX-License-Identifier: MIT
/// \file
/// Planes and packed weights whose words are pairs of channels in bfloat16, as VDPBF16PS multiplies them (planes.hpp); and planes of
/// single bfloat16, whose columns are rows of the weight's gradient.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/conv2d/implicit/planes.hpp>
#include <halftone/kernel/matmul/cpu/unit/bf16_packing.hpp>
#include <halftone/number/integer.hpp>

#if HALFTONE_AVX512_BF16
#include <halftone/exec/cpu/set/avx512_bf16.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512_bf16 {

/// Up to 16 values of two channels, `step` apart, as pairs; `channels`: 2, or 1 for pairs with zero.
template <class T>
HALFTONE_INLINE __m512i load_stepped_pairs(const T* from, extent step, extent channel_stride, extent n,
                                           extent channels) {
    if (step == 1) return load_pairs(from, channel_stride, n, channels);
    if constexpr (std::is_same_v<T, bfloat16>) {
        if (step == 2) {  // The first of each two values.
            const auto mask = static_cast<__mmask32>((std::uint64_t{1} << (2 * n - 1)) - 1);
            const __m512i first = _mm512_and_si512(_mm512_maskz_loadu_epi16(mask, from), _mm512_set1_epi32(0xffff));
            if (channels < 2) return first;
            return _mm512_or_si512(first, _mm512_slli_epi32(_mm512_maskz_loadu_epi16(mask, from + channel_stride), 16));
        }
    }
    T some[2][16] = {};
    for (extent c = 0; c < channels; ++c)
        for (extent i = 0; i < n; ++i) some[c][i] = from[c * channel_stride + i * step];
    return load_pairs(static_cast<const T*>(some[0]), 16, 16, 2);
}

/// to (count) = 0, and up to a vector beyond.
template <class Word>
HALFTONE_INLINE void write_zero_words(Word* to, extent count) {
    for (extent i = 0; i < count; i += static_cast<extent>(64 / sizeof(Word)))
        _mm512_storeu_si512(to + i, _mm512_setzero_si512());
}

/// Planes of pairs of channels. The group's last channel may be alone: `channels` says how many there are.
template <class T>
void fill_pair_planes(const kernel::implicit_cpu::strip& s, extent channel, extent channels, void* planes) {
    using namespace kernel::implicit_cpu;
    const auto* const images = reinterpret_cast<const T*>(s.source.data);
    const extent width = s.of.plane_width(), step = s.of.across.stride * s.source.strides[3];
    for_each_plane_row(s, channel, detail::ceil_div(channels, 2), 2, static_cast<std::uint32_t*>(planes),
                       [&](extent unit, std::uint32_t* to, extent row, const inside& part) {
                           if (row < 0) return write_zero_words(to, width);
                           if (part.begin > 0) write_zero_words(to, part.begin);
                           const T* from = images + row;
                           const extent some = std::min<extent>(2, channels - 2 * unit);
                           for (extent i = part.begin; i < part.end; i += 16, from += 16 * step) {
                               const extent n = std::min<extent>(16, part.end - i);
                               _mm512_storeu_si512(to + i,
                                                   load_stepped_pairs(from, step, s.source.strides[1], n, some));
                           }
                           if (part.end < width) write_zero_words(to + part.end, width - part.end);
                       });
}

/// Planes of bfloat16.
template <class T>
void fill_half_planes(const kernel::implicit_cpu::strip& s, extent channel, extent channels, void* planes) {
    using namespace kernel::implicit_cpu;
    const auto* const images = reinterpret_cast<const T*>(s.source.data);
    const extent width = s.of.plane_width(), step = s.of.across.stride * s.source.strides[3];
    for_each_plane_row(s, channel, channels, 1, static_cast<std::uint16_t*>(planes),
                       [&](extent, std::uint16_t* to, extent row, const inside& part) {
                           if (row < 0) return write_zero_words(to, width);
                           if (part.begin > 0) write_zero_words(to, part.begin);
                           const T* from = images + row;
                           if (step == 1) {
                               for (extent i = part.begin; i < part.end; i += 32, from += 32)
                                   _mm512_storeu_si512(to + i, load_two_bfloat16(from, part.end - i));
                           } else {
                               for (extent i = part.begin; i < part.end; i += 16, from += 16 * step) {
                                   const extent n = std::min<extent>(16, part.end - i);
                                   _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                                                       _mm512_cvtepi32_epi16(load_stepped_pairs(from, step, 0, n, 1)));
                               }
                           }
                           if (part.end < width) write_zero_words(to + part.end, width - part.end);
                       });
}

/// 32 numbers as numbers of 16 bits.
HALFTONE_INLINE __m512i places_of(const std::int32_t* at) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(_mm512_loadu_si512(at))),
                              _mm512_cvtepi32_epi16(_mm512_loadu_si512(at + 16)), 1);
}
/// Copies columns (planes.hpp) of single bfloat16: vectors of 32.
inline void copy_column_halves(const kernel::implicit_cpu::column_copy& c, void* to, extent to_stride) {
    using form = kernel::implicit_cpu::column_vector::form;
    auto* row = static_cast<std::uint16_t*>(to);
    extent tap = c.first_row % c.taps;
    const auto* channel = static_cast<const std::uint16_t*>(c.planes) + c.first_row / c.taps * c.channel_size;
    for (extent left = c.rows; left > 0; --left, row += to_stride) {
        const std::uint16_t* const seen = channel + c.tap_offset[tap];
        for (extent v = 0; v < c.vectors; ++v) {
            const auto& column = c.columns[v];
            const std::uint16_t* const from = seen + column.base;
            if (column.is == form::adjacent) {
                _mm512_storeu_si512(row + 32 * v, _mm512_loadu_si512(from));
            } else if (column.is == form::near) {
                const __m512i order = places_of(column.at);
                _mm512_storeu_si512(row + 32 * v, _mm512_permutex2var_epi16(_mm512_loadu_si512(from), order,
                                                                            _mm512_loadu_si512(from + 32)));
            } else {
                for (int i = 0; i < 32; ++i) row[32 * v + i] = from[column.at[i]];
            }
        }
        if (++tap == c.taps) {
            tap = 0;
            channel += c.channel_size;
        }
    }
}

/// Packs taps of pairs of channels (planes.hpp).
template <class T>
void pack_pair_taps(const kernel::implicit_cpu::tap_packing& p, void* to, extent to_stride) {
    using kernel::implicit_cpu::tap_packing;
    const auto* const weight = static_cast<const T*>(p.weight);
    auto* const words = static_cast<std::uint32_t*>(to);
    const extent ahead =
        2 * std::max(p.row_stride, p.channel_stride);  // what is read in short runs is not fetched by itself
    const bool fits = p.window <= 16;
    kernel::implicit_cpu::for_each_channel(p, 2, [&](extent r, extent c) {
        const T* const from = weight + r * p.row_stride + c * p.channel_stride;
        std::uint32_t* row = words + r * to_stride;
        __builtin_prefetch(from + ahead);
        if (p.channel_stride > p.row_stride) __builtin_prefetch(from + p.channel_stride + ahead);
        const std::int32_t* number = p.number;
        const extent channels = std::min<extent>(2, p.channels - c);
        const __m512i all = fits ? load_pairs(from, p.channel_stride, p.window, channels) : _mm512_setzero_si512();
        for (extent k = 0; k < p.classes; ++k) {
            const extent taps = p.taps_of[k];
            if (fits) {
                const __m512i order = _mm512_maskz_loadu_epi32(avx512::first_lanes(static_cast<int>(taps)), number);
                _mm512_storeu_si512(row + c / 2 * taps, _mm512_permutexvar_epi32(order, all));
            } else {
                for (extent t = 0; t < taps; t += 16) {
                    T some[2][16] = {};
                    for (extent second = 0; second < channels; ++second)
                        for (extent e = 0; e < std::min<extent>(16, taps - t); ++e)
                            some[second][e] = from[second * p.channel_stride + number[t + e]];
                    _mm512_storeu_si512(row + c / 2 * taps + t, load_pairs(static_cast<const T*>(some[0]), 16, 16, 2));
                }
            }
            number += taps;
            row += detail::ceil_div(p.channels, 2) * taps + tap_packing::gap;
        }
    });
}

}  // namespace avx512_bf16
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
