// SPDX-License-Identifier: MIT
/// \file
/// Products of packed panels by multiply-add on f32 vectors (packing: fma_packing.simd.hpp). One tile of c is held in
/// registers while k runs. Every element is one chain of multiply-adds in the order of k, whatever tile it is in, so that no
/// result depends on how the work was cut.
///
///                  panel of b (k, 2 vectors)
///                  [v0 v1]  one load of each a k
///     a (rows, k)  +-----+
///     broadcast -> |sums |  (rows, 2 vectors): 12 x 32, 6 x 16 or 4 x 8
///                  +-----+
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/matmul/cpu/unit/fma_packing.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

// Rows of a tile: 2 x 12 of 32 registers, 2 x 6 or 2 x 4 of 16 hold sums; two hold b, one holds a.
inline constexpr int fma_rows = f32::lanes == 16 ? 12 : f32::lanes == 8 ? 6 : 4;

/// sums = from (Rows, Vectors), or zeros where `from` is nullptr.
template <int Rows, int Vectors>
HALFTONE_INLINE void load_sums(const float* from, extent stride, f32 (&sums)[Rows][Vectors]) {
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v)
            sums[i][v] = from != nullptr ? load(from + i * stride + v * f32::lanes) : splat(0.0f);
    }
}
template <int Rows, int Vectors>
HALFTONE_INLINE void store_sums(float* to, extent stride, const f32 (&sums)[Rows][Vectors]) {
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) store(to + i * stride + v * f32::lanes, sums[i][v]);
    }
}

/// to (Rows, Vectors) = from + a (Rows, k) times the first Vectors of a panel of b (k, 2 vectors). Meanwhile it prefetches
/// what `ahead` holds, the rows of `to`, and, if PrefetchesNext, the panel behind this one.
template <int Rows, int Vectors, a_layout Layout, bool PrefetchesNext>
HALFTONE_INLINE void fma_tile(extent k, const float* a, extent a_stride, const float* b, const float* from,
                              extent from_stride, float* to, extent to_stride, lookahead* ahead) {
    rows_to_store<Rows, Vectors * sizeof(f32)> results(to, to_stride, k, from);
    f32 sums[Rows][Vectors];
    load_sums(from, from_stride, sums);
    constexpr int fours = detail::ceil_div(Rows, 4);
    const float* groups[fours];
#pragma GCC unroll 3
    for (int g = 0; g < fours; ++g) groups[g] = a + 4 * g * a_stride;
    for (extent p = 0; p < k;) {
        if (ahead != nullptr) ahead->prefetch();
        results.prefetch();
        const extent end = k - p < lookahead_depth ? k : p + lookahead_depth;
        for (; p < end; ++p, b += fma_columns) {
            if constexpr (PrefetchesNext) {
                __builtin_prefetch(b + k * fma_columns, 0, 2);
                if constexpr (f32::lanes == 16 && Vectors == 2) __builtin_prefetch(b + k * fma_columns + 16, 0, 2);
            }
            f32 bs[Vectors];
#pragma GCC unroll 2
            for (int v = 0; v < Vectors; ++v) bs[v] = load(b + v * f32::lanes);  // (1, Vectors)
#pragma GCC unroll 12
            for (int i = 0; i < Rows; ++i) {
                // One pointer for four rows: an address adds one, two or three strides to it.
                const f32 ai = splat(Layout == a_layout::k_major ? a[i] : groups[i / 4][i % 4 * a_stride + p]);
#pragma GCC unroll 2
                for (int v = 0; v < Vectors; ++v) sums[i][v] = fma(ai, bs[v], sums[i][v]);
            }
            if constexpr (Layout == a_layout::k_major) a += k_major_rows;
        }
    }
    store_sums(to, to_stride, sums);
}

/// Prefetches the first line of each row.
template <int Rows, int Write>
HALFTONE_INLINE void prefetch_of_rows(const float* first, extent stride) {
#pragma GCC unroll 1
    for (int i = 0; i < Rows; ++i, first += stride) __builtin_prefetch(first, Write);
}

/// to (Rows, Vectors) = from + a (Rows, k) times the first Vectors of a panel of b, for narrow vectors and at most six rows.
/// Each row has a pointer of its own and a step is four k, so that there is hardly any instruction but multiply-adds and
/// their loads; noinline, so that the tile has all registers. L1 and L2 are small on such processors: the results' lines and
/// the next tile's sums are prefetched, too (Zen 3: 1.01 to 1.02), and of the next panel a line every four k, which is a
/// quarter of it, number `quarter` (four tiles instead of one: 1.01).
template <int Rows, int Vectors, tile_prefetch Prefetch>
[[gnu::noinline]] void fma_small_tile(extent k, const float* a, extent a_stride, const float* b, const float* from,
                                      extent from_stride, float* to, extent to_stride, lookahead* ahead, int quarter) {
    if (from != nullptr) prefetch_of_rows<Rows, 0>(from + Rows * from_stride, from_stride);
    prefetch_of_rows<Rows, 1>(to, to_stride);
    f32 sums[Rows][Vectors];
    load_sums(from, from_stride, sums);
    const float* row[Rows];
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i) row[i] = a + i * a_stride;
    const auto multiply = [&](int p) __attribute__((always_inline)) {
        f32 bs[Vectors];
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) bs[v] = load(b + p * fma_columns + v * f32::lanes);
#pragma GCC unroll 6
        for (int i = 0; i < Rows; ++i) {
            const f32 ai = splat(row[i][p]);
#pragma GCC unroll 2
            for (int v = 0; v < Vectors; ++v) sums[i][v] = fma(ai, bs[v], sums[i][v]);
        }
    };
    const auto go_on = [&](int depth) __attribute__((always_inline)) {
        b += depth * fma_columns;
#pragma GCC unroll 6
        for (int i = 0; i < Rows; ++i) {
            row[i] += depth;
            __asm__ volatile("" : "+r"(row[i]));  // keeps the compiler from deriving one pointer from another: loads by base and index take longer
        }
    };
    // The step of four k is written twice: as a third lambda around these two, g++ 12 keeps the sums in memory.
    extent rest = k;
    if constexpr (Prefetch == tile_prefetch::lookahead) {
        for (; rest >= lookahead_depth; rest -= lookahead_depth) {
            ahead->prefetch();
            for (extent p = 0; p < lookahead_depth; p += 4) {
#pragma GCC unroll 4
                for (int q = 0; q < 4; ++q) multiply(q);
                go_on(4);
            }
        }
        if (rest > 0) ahead->prefetch();
    }
    const float* next = b + (k + quarter * (k / 4)) * fma_columns;
    for (; rest >= 4; rest -= 4) {
        if constexpr (Prefetch == tile_prefetch::next_panel) {
            __builtin_prefetch(next, 0, 2);
            next += fma_columns;
        }
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) multiply(p);
        go_on(4);
    }
    for (; rest > 0; --rest) {
        multiply(0);
        go_on(1);
    }
    store_sums(to, to_stride, sums);
}

/// to (rows, Vectors) = from (nullptr: zeros) + a (rows, k) times the first Vectors of a panel of b (k, 2 vectors), tile by
/// tile.
template <int Vectors, a_layout Layout>
[[gnu::noinline]] void fma_rows_of(extent rows, extent k, const void* block, extent a_stride, const void* b_panel,
                                   const float* from, extent from_stride, float* to, extent to_stride,
                                   lookahead* ahead) {
    // Eight sums or more: a multiply-add takes four cycles, and two begin in each.
    constexpr int high = tile_rows(Layout, Vectors == 1 ? k_major_rows : fma_rows);
    // The first tiles prefetch the next panel: a small one a quarter of it, another one all of it.
    constexpr bool is_small = f32::lanes < 16 && high <= 6;
    constexpr int prefetching_tiles = is_small ? 4 : 1;
    const auto* a = static_cast<const float*>(block);
    const auto* b = static_cast<const float*>(b_panel);
    const auto rows_from = [&](extent first) __attribute__((always_inline)) {
        return Layout == a_layout::k_major ? a + first / k_major_rows * a_stride + first % k_major_rows : a + first * a_stride;
    };
    extent i = 0;
    int quarter = 0;
    const auto tile = [&]<int Rows, tile_prefetch Prefetch>() __attribute__((always_inline)) {
        const float* const sums = from == nullptr ? nullptr : from + i * from_stride;
        float* const results = to + i * to_stride;
        if constexpr (f32::lanes < 16 && Rows <= 6) {
            fma_small_tile<Rows, Vectors, Prefetch>(k, a + i * a_stride, a_stride, b, sums, from_stride, results, to_stride,
                                                ahead, quarter++);
        } else {
            fma_tile<Rows, Vectors, Layout, Prefetch == tile_prefetch::next_panel>(
                k, rows_from(i), a_stride, b, sums, from_stride, results, to_stride, ahead);
        }
        i += Rows;
    };
    for (int t = 0; t < prefetching_tiles && ahead == nullptr && i + high <= rows; ++t)
        tile.template operator()<high, tile_prefetch::next_panel>();
    while (i + high <= rows) {
        if (!is_small || ahead == nullptr) {
            tile.template operator()<high, tile_prefetch::nothing>();
        } else {
            tile.template operator()<high, tile_prefetch::lookahead>();
        }
    }
    while (i + 4 <= rows) tile.template operator()<4, tile_prefetch::nothing>();
    while (i < rows) tile.template operator()<1, tile_prefetch::nothing>();
}
/// to (rows, Vectors) = from (nullptr: zeros) + a times a panel of b, with a in any layout, k-major only for whole
/// panels.
template <int Vectors>
void fma_block(extent rows, extent k, const block_of_a& a, const void* b_panel, const float* from, extent from_stride,
               float* to, extent to_stride, lookahead* ahead) {
    // Narrow tiles have so few rows that their lines fit one cache set, and a is never k-major for them.
    constexpr bool is_wide = f32::lanes == 16;
    constexpr a_layout aliased = is_wide ? a_layout::row_major_aliased : a_layout::row_major;
    constexpr a_layout k_major = is_wide && Vectors == 2 ? a_layout::k_major : a_layout::row_major;
    const a_layout layout = a_layout_of(a, sizeof(float));
    const auto multiply = layout == a_layout::k_major  ? &fma_rows_of<Vectors, k_major>
                          : layout == a_layout::row_major ? &fma_rows_of<Vectors, a_layout::row_major>
                                                 : &fma_rows_of<Vectors, aliased>;
    multiply(rows, k, a.first, a.stride, b_panel, from, from_stride, to, to_stride, ahead);
}

/// c (rows, fma_columns) = or += a (rows, k), panel_stride from row to row, times one panel of b (k, fma_columns).
inline void fma_multiply(extent rows, extent k, const void* a_block, const void* b_panel, float* c, extent c_stride,
                         bool add, lookahead* ahead) {
    fma_rows_of<2, a_layout::row_major>(rows, k, a_block, panel_stride, b_panel, add ? c : nullptr, c_stride, c, c_stride,
                                  ahead);
}
/// c = or += a (rows, k) times a panel of b, with a in any layout.
inline void fma_multiply_rows(extent rows, extent k, const block_of_a& a, const void* b_panel, float* c,
                              extent c_stride, bool add, lookahead* ahead) {
    fma_block<2>(rows, k, a, b_panel, add ? c : nullptr, c_stride, c, c_stride, ahead);
}
/// c (rows, fma_columns / 2): by the first half of the panel's columns.
inline void fma_multiply_half(extent rows, extent k, const block_of_a& a, const void* b_panel, float* c,
                              extent c_stride, bool add, lookahead* ahead) {
    fma_block<1>(rows, k, a, b_panel, add ? c : nullptr, c_stride, c, c_stride, ahead);
}
/// to (rows, fma_columns) = sums (nullptr: zeros) + a times the panel: the last piece of k, stored as the result.
inline void fma_multiply_last(extent rows, extent k, const block_of_a& a, const void* b_panel, const float* sums,
                              extent sums_stride, float* to, extent to_stride, lookahead* ahead) {
    fma_block<2>(rows, k, a, b_panel, sums, sums_stride, to, to_stride, ahead);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
