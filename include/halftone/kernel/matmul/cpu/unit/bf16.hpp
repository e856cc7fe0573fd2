// SPDX-License-Identifier: MIT
/// \file
/// Products of packed panels by VDPBF16PS, which multiplies and adds pairs of k at once (packing: bf16_packing.hpp). Tiles of
/// 12 x 32 sums as in fma.simd.hpp; written on AVX-512, which every processor with VDPBF16PS has.
#pragma once

#include <cstddef>

#include <halftone/kernel/matmul/cpu/unit/bf16_packing.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>
#include <halftone/number/integer.hpp>

#if HALFTONE_AVX512_BF16
#include <halftone/exec/cpu/set/avx512_bf16.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512_bf16 {

/// What a tile's sums are stored in: floats, or bfloat16, to which they are rounded. One type for both, so that the tiles are
/// compiled once.
struct pair_results {
    std::byte* first;
    extent stride;  ///< bytes
    bool are_rounded;

    pair_results(float* to, extent result_stride)
        : first(reinterpret_cast<std::byte*>(to)),
          stride(result_stride * static_cast<extent>(sizeof *to)),
          are_rounded(false) {}
    pair_results(bfloat16* to, extent result_stride)
        : first(reinterpret_cast<std::byte*>(to)), stride(result_stride * static_cast<extent>(sizeof *to)), are_rounded(true) {}
};

/// row (Rows, Vectors) = sums. VCVTNE2PS2BF16 flushes subnormals to zero, which changes nothing: VDPBF16PS gives none.
template <int Rows, int Vectors>
HALFTONE_INLINE void store_sums(const pair_results& to, std::byte* row, const __m512 (&sums)[Rows][Vectors]) {
    if (to.are_rounded) {
#pragma GCC unroll 12
        for (int i = 0; i < Rows; ++i, row += to.stride)
            _mm512_storeu_si512(row, (__m512i)_mm512_cvtne2ps_pbh(sums[i][Vectors - 1], sums[i][0]));
    } else {
#pragma GCC unroll 12
        for (int i = 0; i < Rows; ++i, row += to.stride) {
#pragma GCC unroll 2
            for (int v = 0; v < Vectors; ++v) _mm512_storeu_ps(row + 64 * v, sums[i][v]);
        }
    }
}

/// to (Rows, Vectors) = from + a (Rows, k) times the first Vectors of a panel of b (k / 2, 2 vectors). Meanwhile it
/// prefetches what `ahead` holds, the rows of `to`, and, if PrefetchesNext, the panel behind this one.
template <int Rows, int Vectors, a_layout Layout, bool PrefetchesNext>
HALFTONE_INLINE void pair_tile(extent k, const bfloat16* a, extent a_stride, const bfloat16* b, const float* from,
                               extent from_stride, const pair_results& to, std::byte* first, lookahead* ahead) {
    rows_to_store<Rows, Vectors * 64> results(first, to.stride, k, from);
    __m512 sums[Rows][Vectors];
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v)
            sums[i][v] = from != nullptr ? _mm512_loadu_ps(from + i * from_stride + 16 * v) : _mm512_setzero_ps();
    }
    constexpr int fours = detail::ceil_div(Rows, 4);
    const bfloat16* groups[fours];
#pragma GCC unroll 3
    for (int g = 0; g < fours; ++g) groups[g] = a + 4 * g * a_stride;
    for (extent rest = k; rest > 0; rest -= lookahead_depth) {
        if (ahead != nullptr) ahead->prefetch();
        results.prefetch();
        const bfloat16* const end = b + (rest < lookahead_depth ? rest : lookahead_depth) * bf16_columns;
#pragma GCC unroll 2
        for (; b < end; b += 2 * bf16_columns) {
            __m512bh bs[Vectors];
#pragma GCC unroll 2
            for (int v = 0; v < Vectors; ++v) {
                if constexpr (PrefetchesNext)
                    _mm_prefetch(reinterpret_cast<const char*>(b + (k + v) * bf16_columns), _MM_HINT_T0);
                bs[v] = (__m512bh)_mm512_loadu_si512(b + v * bf16_columns);
            }
#pragma GCC unroll 12
            for (int i = 0; i < Rows; ++i) {
                std::int32_t pair;
                // One pointer for four rows: an address adds one, two or three strides to it.
                std::memcpy(&pair, Layout == a_layout::k_major ? a + 2 * i : groups[i / 4] + i % 4 * a_stride, sizeof pair);
                const auto ai = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 2
                for (int v = 0; v < Vectors; ++v) sums[i][v] = _mm512_dpbf16_ps(sums[i][v], ai, bs[v]);
            }
            if constexpr (Layout == a_layout::k_major) a += 2 * k_major_rows;
#pragma GCC unroll 3
            for (int g = 0; g < fours; ++g) groups[g] += 2;
        }
    }
    store_sums(to, first, sums);
}

/// to (rows, Vectors) = from (nullptr: zeros) + a (rows, k) times the first Vectors of a panel of b (k / 2, 2 vectors), tile
/// by tile.
template <int Vectors, a_layout Layout>
[[gnu::noinline]] void pair_rows(extent rows, extent k, const void* block, extent a_stride, const void* b_panel,
                                 const float* from, extent from_stride, const pair_results& to, lookahead* ahead) {
    constexpr int high = tile_rows(Layout, 12);
    const auto* a = static_cast<const bfloat16*>(block);
    const auto* b = static_cast<const bfloat16*>(b_panel);
    const auto rows_from = [&](extent first) __attribute__((always_inline)) {
        return Layout == a_layout::k_major ? a + first / k_major_rows * a_stride + first % k_major_rows * 2
                                           : a + first * a_stride;
    };
    extent i = 0;
    const auto tile = [&]<int Rows, bool PrefetchesNext = false>() __attribute__((always_inline)) {
        pair_tile<Rows, Vectors, Layout, PrefetchesNext>(k, rows_from(i), a_stride, b,
                                                   from == nullptr ? nullptr : from + i * from_stride, from_stride, to,
                                                   to.first + i * to.stride, ahead);
        i += Rows;
    };
    if (ahead == nullptr && rows >= high) tile.template operator()<high, true>();
    // A tile of four rows keeps the unit half busy: the last sixteen rows are twice eight, not twelve and four. A k-major a
    // has groups of twelve.
    while (i + high <= rows && (Layout == a_layout::k_major || rows - i != 16)) tile.template operator()<high>();
    while (i + 8 <= rows) tile.template operator()<8>();
    while (i + 4 <= rows) tile.template operator()<4>();
    while (i < rows) tile.template operator()<1>();
}
/// to (rows, Vectors) = from (nullptr: zeros) + a times a panel of b, with a in any layout, k-major only for whole
/// panels.
template <int Vectors>
void pair_block(extent rows, extent k, const block_of_a& a, const void* b_panel, const float* from, extent from_stride,
                const pair_results& to, lookahead* ahead) {
    constexpr a_layout k_major = Vectors == 2 ? a_layout::k_major : a_layout::row_major;
    const a_layout layout = a_layout_of(a, sizeof(bfloat16));
    const auto multiply = layout == a_layout::k_major  ? &pair_rows<Vectors, k_major>
                          : layout == a_layout::row_major ? &pair_rows<Vectors, a_layout::row_major>
                                                 : &pair_rows<Vectors, a_layout::row_major_aliased>;
    multiply(rows, k, a.first, a.stride, b_panel, from, from_stride, to, ahead);
}

/// c (rows, bf16_columns) = or += a (rows, k), panel_stride from row to row, times one panel of b.
inline void pair_multiply(extent rows, extent k, const void* a_block, const void* b_panel, float* c, extent c_stride,
                          bool add, lookahead* ahead) {
    pair_rows<2, a_layout::row_major>(rows, k, a_block, panel_stride, b_panel, add ? c : nullptr, c_stride, {c, c_stride},
                                ahead);
}
/// c = or += a (rows, k) times a panel of b, with a in any layout; k is even.
inline void pair_multiply_rows(extent rows, extent k, const block_of_a& a, const void* b_panel, float* c,
                               extent c_stride, bool add, lookahead* ahead) {
    pair_block<2>(rows, k, a, b_panel, add ? c : nullptr, c_stride, {c, c_stride}, ahead);
}
/// c (rows, bf16_columns / 2): by the first half of the panel's columns.
inline void pair_multiply_half(extent rows, extent k, const block_of_a& a, const void* b_panel, float* c,
                               extent c_stride, bool add, lookahead* ahead) {
    pair_block<1>(rows, k, a, b_panel, add ? c : nullptr, c_stride, {c, c_stride}, ahead);
}
/// to (rows, bf16_columns) = sums (nullptr: zeros) + a times the panel: the last piece of k, stored as the result.
template <class To>
void pair_multiply_last(extent rows, extent k, const block_of_a& a, const void* b_panel, const float* sums,
                        extent sums_stride, To* to, extent to_stride, lookahead* ahead) {
    pair_block<2>(rows, k, a, b_panel, sums, sums_stride, {to, to_stride}, ahead);
}

}  // namespace avx512_bf16
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
