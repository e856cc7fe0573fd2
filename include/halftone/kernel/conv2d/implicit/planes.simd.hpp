// SPDX-License-Identifier: MIT
/// \file
/// Fills planes with floats, takes columns out of them, and packs weights as floats (planes.hpp).
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <algorithm>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/conv2d/implicit/pick.hpp>
#include <halftone/kernel/conv2d/implicit/planes.hpp>
#include <halftone/kernel/matmul/cpu/unit/fma_packing.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// to (count) = 0, and up to a vector beyond.
HALFTONE_INLINE void write_zeros(float* to, extent count) {
    for (extent i = 0; i < count; i += f32::lanes) store(to + i, splat(0.0f));
}

template <class Compute>
HALFTONE_INLINE f32 round_to(f32 x) {
    if constexpr (contains<Compute, float>) {
        return x;
    } else {
        return round_as<Compute>(x);
    }
}
/// A vector of n elements of `from`, `step` apart, rounded to Compute where that holds less than T.
template <class Compute, class T>
HALFTONE_INLINE f32 load_stepped(const T* from, extent step, int n) {
    if (step == 1) return load_as<Compute>(from, n);
    if constexpr (std::is_same_v<T, float>) {
        if (step == 2) return round_to<Compute>(even_picker::take(from, n));
    }
    T some[f32::lanes] = {};
    for (int e = 0; e < n; ++e) some[e] = from[e * step];
    return load_as<Compute>(static_cast<const T*>(some), f32::lanes);
}

template <class Compute, class T>
void fill_float_planes(const kernel::implicit_cpu::strip& s, extent channel, extent channels, void* planes) {
    using namespace kernel::implicit_cpu;
    const auto* const images = reinterpret_cast<const T*>(s.source.data);
    const extent width = s.of.plane_width(), step = s.of.across.stride * s.source.strides[3];
    for_each_plane_row(
        s, channel, channels, 1, static_cast<float*>(planes), [&](extent, float* to, extent row, const inside& part) {
            if (row < 0) return write_zeros(to, width);
            if (part.begin > 0) write_zeros(to, part.begin);
            const T* from = images + row;
            extent i = part.begin;
            for (; i < part.end; i += f32::lanes, from += f32::lanes * step) {
                const extent left = part.end - i;
                store(to + i,
                      load_stepped<Compute>(from, step, static_cast<int>(left < f32::lanes ? left : f32::lanes)));
            }
            if (part.end < width) write_zeros(to + part.end, width - part.end);
        });
}

/// Copies columns (planes.hpp): rows of `vectors` vectors of words.
inline void copy_column_words(const kernel::implicit_cpu::column_copy& c, void* to, extent to_stride) {
    const auto* const planes = static_cast<const float*>(c.planes);
    auto* row = static_cast<float*>(to);
    extent tap = c.first_row % c.taps, left = c.rows;
    const float* channel = planes + c.first_row / c.taps * c.channel_size;
    const auto each_row = [&](const auto& copy) __attribute__((always_inline)) {
        for (; left > 0; channel += c.channel_size, tap = 0) {
            for (; tap < c.taps && left > 0; ++tap, --left, row += to_stride) copy(channel + c.tap_offset[tap]);
        }
    };
    if (c.vectors == 2) {
        const word_picker first(c.columns[0]), second(c.columns[1]);
        if (first.is_adjacent() && second.is_adjacent()) {
            const extent a = c.columns[0].base, b = c.columns[1].base;
            each_row([&](const float* from) __attribute__((always_inline)) {
                store(row, load(from + a));
                store(row + f32::lanes, load(from + b));
            });
        } else {
            each_row([&](const float* from) __attribute__((always_inline)) {
                store(row, first.take(from));
                store(row + f32::lanes, second.take(from));
            });
        }
        return;
    }
    each_row([&](const float* from) __attribute__((always_inline)) {
        for (extent v = 0; v < c.vectors; ++v) store(row + v * f32::lanes, word_picker(c.columns[v]).take(from));
    });
}

/// Packs taps as floats (planes.hpp).
template <class Compute, class T>
void pack_float_taps(const kernel::implicit_cpu::tap_packing& p, void* to, extent to_stride) {
    using kernel::implicit_cpu::tap_packing;
    const auto* const weight = static_cast<const T*>(p.weight);
    auto* const floats = static_cast<float*>(to);
    const extent ahead =
        2 * std::max(p.row_stride, p.channel_stride);  // what is read in short runs is not fetched by itself
    const bool fits = p.window <= f32::lanes;
    kernel::implicit_cpu::for_each_channel(p, 1, [&](extent r, extent c) {
        const T* const from = weight + r * p.row_stride + c * p.channel_stride;
        float* row = floats + r * to_stride;
        __builtin_prefetch(from + ahead);
        const std::int32_t* number = p.number;
        const f32 all = fits ? load_as<Compute>(from, static_cast<int>(p.window)) : splat(0.0f);
        for (extent k = 0; k < p.classes; ++k) {
            const extent taps = p.taps_of[k];
            if (fits) {
                store(row + c * taps, tap_picker(number, taps).take(all));
            } else {
                for (extent t = 0; t < taps; t += f32::lanes) {
                    T some[f32::lanes] = {};
                    for (extent e = 0; e < std::min<extent>(f32::lanes, taps - t); ++e) some[e] = from[number[t + e]];
                    store(row + c * taps + t, load_as<Compute>(static_cast<const T*>(some), f32::lanes));
                }
            }
            number += taps;
            row += p.channels * taps + tap_packing::gap;
        }
    });
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
