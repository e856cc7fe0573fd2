// SPDX-License-Identifier: MIT
/// \file
/// Products by multiply-add on f32 vectors, of what fma_packing.simd.hpp packs. One tile of c is held in registers while k
/// runs; every element is one chain of multiply-adds in the order of k, whatever tile it lies in, so that no result
/// depends on how the work was cut.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/matmul/cpu/unit/fma_packing.hpp>
#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

// Rows of a tile: as many accumulators as leave registers for two vectors of b and one of a.
inline constexpr int fma_rows = f32::lanes == 16 ? 12 : f32::lanes == 8 ? 6 : 4;

/// A tile's sums: as they stand, or zeros without a `from`.
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

/// One tile by the first vectors of a panel: two are all of it. It asks for what `ahead` says, and for the panel behind
/// b if PrefetchesNext.
template <int Rows, int Vectors, a_layout Layout, bool PrefetchesNext>
HALFTONE_INLINE void fma_tile(extent k, const float* a, extent a_stride, const float* b, const float* from,
                              extent from_stride, float* to, extent to_stride, lookahead* ahead) {
    rows_to_store<Rows, Vectors * sizeof(f32)> results(to, to_stride, k, from);
    f32 sums[Rows][Vectors];
    load_sums(from, from_stride, sums);
    const float* groups[(Rows + 3) / 4];
#pragma GCC unroll 3
    for (int g = 0; g < (Rows + 3) / 4; ++g) groups[g] = a + 4 * g * a_stride;
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
            for (int v = 0; v < Vectors; ++v) bs[v] = load(b + v * f32::lanes);
#pragma GCC unroll 12
            for (int i = 0; i < Rows; ++i) {
                // Every fourth row has a pointer of its own: the processor adds one, two or three strides to it.
                const f32 ai = splat(Layout == a_layout::k_major ? a[i] : groups[i / 4][i % 4 * a_stride + p]);
#pragma GCC unroll 2
                for (int v = 0; v < Vectors; ++v) sums[i][v] = fma(ai, bs[v], sums[i][v]);
            }
            if constexpr (Layout == a_layout::k_major) a += k_major_rows;
        }
    }
    store_sums(to, to_stride, sums);
}

/// Asks for a line of each row.
template <int Rows, int Write>
HALFTONE_INLINE void prefetch_of_rows(const float* first, extent stride) {
#pragma GCC unroll 1
    for (int i = 0; i < Rows; ++i, first += stride) __builtin_prefetch(first, Write);
}

/// The same of few rows, where vectors are narrow: each row has a pointer of its own, and four k are one step, so that
/// hardly an instruction stands beside the multiply-adds and their loads. Alone in a function it has all registers.
/// Caches are small there: the results' lines and the next tile's sums are asked for, too, and of the next panel a line
/// every four k: `share` says which fourth of it.
template <int Rows, int Vectors, tile_prefetch Prefetch>
[[gnu::noinline]] void fma_small_tile(extent k, const float* a, extent a_stride, const float* b, const float* from,
                                      extent from_stride, float* to, extent to_stride, lookahead* ahead, int share) {
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
            __asm__ volatile("" : "+r"(row[i]));  // not one from another: loads by base and index take longer
        }
    };
    // Four k stand twice: g++ 12 keeps the sums in memory where they are a lambda of these two.
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
    const float* next = b + (k + share * (k / 4)) * fma_columns;
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

/// to (rows x Vectors' columns) = from + a (rows x k) times the first vectors of one panel b; without a `from` the
/// product alone.
template <int Vectors, a_layout Layout>
[[gnu::noinline]] void fma_rows_of(extent rows, extent k, const void* block, extent a_stride, const void* b_panel,
                                   const float* from, extent from_stride, float* to, extent to_stride,
                                   lookahead* ahead) {
    // Eight sums or more, since a multiply-add waits four cycles for the one before and two begin in a cycle.
    constexpr int high = tile_rows(Layout, Vectors == 1 ? k_major_rows : fma_rows);
    // A small tile is made for what it asks for, and asks for a fourth of the next panel; another one for all of it, and
    // for what `ahead` says, if anything.
    constexpr bool is_small = f32::lanes < 16 && high <= 6;
    constexpr int prefetching_tiles = is_small ? 4 : 1;
    const auto* a = static_cast<const float*>(block);
    const auto* b = static_cast<const float*>(b_panel);
    const auto rows_from = [&](extent first) __attribute__((always_inline)) {
        return Layout == a_layout::k_major ? a + first / k_major_rows * a_stride + first % k_major_rows : a + first * a_stride;
    };
    extent i = 0;
    int share = 0;
    const auto tile = [&]<int Rows, tile_prefetch Prefetch>() __attribute__((always_inline)) {
        const float* const sums = from == nullptr ? nullptr : from + i * from_stride;
        float* const results = to + i * to_stride;
        if constexpr (f32::lanes < 16 && Rows <= 6) {
            fma_small_tile<Rows, Vectors, Prefetch>(k, a + i * a_stride, a_stride, b, sums, from_stride, results, to_stride,
                                                ahead, share++);
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
/// The same, however a lies; by depth only for whole panels.
template <int Vectors>
void fma_block(extent rows, extent k, const block_of_a& a, const void* b_panel, const float* from, extent from_stride,
               float* to, extent to_stride, lookahead* ahead) {
    // Narrow tiles have so few rows that none are crowded, and a is never packed by depth for them.
    constexpr bool is_wide = f32::lanes == 16;
    constexpr a_layout crowded = is_wide ? a_layout::row_major_aliased : a_layout::row_major;
    constexpr a_layout deep = is_wide && Vectors == 2 ? a_layout::k_major : a_layout::row_major;
    const a_layout layout = a_layout_of(a, sizeof(float));
    const auto multiply = layout == a_layout::k_major  ? &fma_rows_of<Vectors, deep>
                          : layout == a_layout::row_major ? &fma_rows_of<Vectors, a_layout::row_major>
                                                 : &fma_rows_of<Vectors, crowded>;
    multiply(rows, k, a.first, a.stride, b_panel, from, from_stride, to, to_stride, ahead);
}

/// c (rows x fma_columns) = or += a (rows x k, rows panel_stride apart) times one panel b (k x fma_columns).
inline void fma_multiply(extent rows, extent k, const void* a_block, const void* b_panel, float* c, extent c_stride,
                         bool add, lookahead* ahead) {
    fma_rows_of<2, a_layout::row_major>(rows, k, a_block, panel_stride, b_panel, add ? c : nullptr, c_stride, c, c_stride,
                                  ahead);
}
/// The same with a however it lies.
inline void fma_multiply_rows(extent rows, extent k, const block_of_a& a, const void* b_panel, float* c,
                              extent c_stride, bool add, lookahead* ahead) {
    fma_block<2>(rows, k, a, b_panel, add ? c : nullptr, c_stride, c, c_stride, ahead);
}
/// And by the first half of the panel's columns.
inline void fma_multiply_half(extent rows, extent k, const block_of_a& a, const void* b_panel, float* c,
                              extent c_stride, bool add, lookahead* ahead) {
    fma_block<1>(rows, k, a, b_panel, add ? c : nullptr, c_stride, c, c_stride, ahead);
}
/// The last piece of k: sums, if there are any, and the product of this piece, stored where they belong.
inline void fma_multiply_last(extent rows, extent k, const block_of_a& a, const void* b_panel, const float* sums,
                              extent sums_stride, float* to, extent to_stride, lookahead* ahead) {
    fma_block<2>(rows, k, a, b_panel, sums, sums_stride, to, to_stride, ahead);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
