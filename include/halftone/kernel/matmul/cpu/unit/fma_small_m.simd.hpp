// SPDX-License-Identifier: MIT
/// \file
/// Products of few rows by multiply-add on f32 vectors. They read b unpacked, since packing it would serve few rows. As in
/// fma.simd.hpp every element is one chain of multiply-adds in the order of k, with the same bits.
///
///     row-major b     3 rows and more   tiles of sums in registers, strips of columns that stay in L2 for all rows
///                     1 or 2 rows       rows of b from beginning to end, 4 or 8 at a time; sums in c
///     k-contiguous b  few rows          squares of b are transposed in registers; of bfloat16, squares of pairs of k
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/matmul/cpu/unit/fma_packing.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// c (Rows, Vectors) = or += a (Rows, k) times b (k, Vectors); where a has fewer rows, its last one is computed again. Sums
/// stay in registers. `prefetches`: the columns behind, into L2.
template <class Compute, int Rows, int Vectors, class T>
[[gnu::noinline]] void fma_small_m_tile(const small_m_product<float, T>& product, bool prefetches) {
    const int lanes = static_cast<int>(product.columns < f32::lanes ? product.columns : f32::lanes);
    const float* row[Rows];
    f32 sums[Rows][Vectors];  // (rows, columns)
    const auto to = [&](int i) __attribute__((always_inline)) {
        return product.c + product.row_for(i) * product.c_stride;
    };
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
        row[i] = product.a + product.row_for(i) * product.a_stride;
#pragma GCC unroll 6
        for (int v = 0; v < Vectors; ++v) sums[i][v] = product.add ? load(to(i) + v * f32::lanes) : splat(0.0f);
    }
    const T* b = product.b;
    const extent k = product.k, k_stride = product.k_stride;
    for (extent p = 0; p < k; ++p, b += k_stride) {
        f32 bs[Vectors];
#pragma GCC unroll 6
        for (int v = 0; v < Vectors; ++v) {
            if (prefetches) __builtin_prefetch(b + (Vectors + v) * f32::lanes, 0, 2);
            bs[v] = load_as<Compute>(b + v * f32::lanes, Vectors == 1 ? lanes : f32::lanes);
        }
#pragma GCC unroll 12
        for (int i = 0; i < Rows; ++i) {
            const f32 ai = splat(row[i][p]);
#pragma GCC unroll 6
            for (int v = 0; v < Vectors; ++v) sums[i][v] = fma(ai, bs[v], sums[i][v]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 6
        for (int v = 0; v < Vectors; ++v) store(to(i) + v * f32::lanes, sums[i][v]);
    }
}

/// Rows of the next tile where so many are left: few of its rows are computed twice then.
constexpr int small_m_tile_rows(extent left) {
    if (left == 3) return 3;
    if (f32::lanes < 16) return left <= 4 || left == 7 || left == 8 ? 4 : 6;
    return left <= 4 ? 4 : left <= 6 || left == 9 || left == 10 ? 6 : left <= 8 || left == 13 || left == 14 ? 8 : 12;
}
/// Vectors of sums of a tile of so many rows: as many as leave registers for b and an element of a.
constexpr int small_m_tile_vectors(int rows) { return f32::lanes < 16 || rows == 12 ? 2 : rows <= 4 ? 6 : 3; }

/// Calls Tiles::run<Rows>(part, is_first) for the parts of a product: strips of columns, which stay in L2 until all rows
/// have met them, by the rows of a tile or fewer.
template <class Tiles, class Product>
HALFTONE_INLINE void run_small_m_tiles(const Product& product, extent strip) {
    for (extent j = 0; j < product.columns; j += strip) {
        const extent width = product.columns - j < strip ? product.columns - j : strip;
        for (extent i = 0, rows; i < product.rows; i += rows) {
            rows = small_m_tile_rows(product.rows - i);
            const Product part = product.part(i, product.rows - i < rows ? product.rows - i : rows, j, width);
            if (rows == 3) {
                Tiles::template run<3>(part, i == 0);
            } else if (rows == 4) {
                Tiles::template run<4>(part, i == 0);
            } else if (rows == 6) {
                Tiles::template run<6>(part, i == 0);
            } else if constexpr (f32::lanes == 16) {
                rows == 8 ? Tiles::template run<8>(part, i == 0) : Tiles::template run<12>(part, i == 0);
            }
        }
    }
}

/// Whole tiles; the last columns vector by vector.
template <class Compute, class T>
struct fma_small_m_tiles {
    template <int Rows>
    static void run(const small_m_product<float, T>& part, bool is_first) {
        constexpr int vectors = small_m_tile_vectors(Rows);
        constexpr extent wide = vectors * f32::lanes;
        extent j = 0;
        for (; j + wide <= part.columns; j += wide)
            fma_small_m_tile<Compute, Rows, vectors>(part.part(0, part.rows, j, wide), is_first);
        for (; j < part.columns; j += f32::lanes) {
            for (extent i = 0; i < part.rows; i += 4) {
                const extent rows = part.rows - i < 4 ? part.rows - i : 4;
                fma_small_m_tile<Compute, 4, 1>(part.part(i, rows, j, part.columns - j), false);
            }
        }
    }
};

/// c (Rows, columns) += a (Rows, Depth) times b (Depth, columns), each row of b from its beginning to its end.
template <class Compute, int Rows, int Depth, class T>
HALFTONE_INLINE void fma_small_m(const float* a, extent a_stride, const T* b, extent k_stride, extent columns, float* c,
                             extent c_stride) {
    f32 factors[Rows][Depth];  // (rows, k)
#pragma GCC unroll 2
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
        for (int p = 0; p < Depth; ++p) factors[i][p] = splat(a[i * a_stride + p]);
    }
    for (extent j = 0; j < columns; j += f32::lanes) {
        const int n = static_cast<int>(columns - j < f32::lanes ? columns - j : f32::lanes);
        f32 sums[Rows];
#pragma GCC unroll 2
        for (int i = 0; i < Rows; ++i) sums[i] = load(c + i * c_stride + j);
#pragma GCC unroll 8
        for (int p = 0; p < Depth; ++p) {
            const f32 row = load_as<Compute>(b + p * k_stride + j, n);
#pragma GCC unroll 2
            for (int i = 0; i < Rows; ++i) sums[i] = fma(factors[i][p], row, sums[i]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < Rows; ++i) store(c + i * c_stride + j, sums[i]);
    }
}
/// c += a times unpacked b for any k: with one or two rows multiply-adds wait for memory, which delivers long runs
/// fastest.
template <class Compute, int Rows, class T>
void fma_small_m_by_rows(const small_m_product<float, T>& product) {
    // As many elements of a as leave registers for b and the sums.
    constexpr int depth = Rows == 1 || f32::lanes == 16 ? 8 : 4;
    const auto [rows, k, columns, a, a_stride, b, k_stride, c, c_stride, add] = product;
    extent p = 0;
    for (; p + depth <= k; p += depth)
        fma_small_m<Compute, Rows, depth>(a + p, a_stride, b + p * k_stride, k_stride, columns, c, c_stride);
    for (; p < k; ++p) fma_small_m<Compute, Rows, 1>(a + p, a_stride, b + p * k_stride, k_stride, columns, c, c_stride);
}

/// sums (Rows, 1 vector) += column p of a (Rows, k) times `row` (1, 1 vector).
template <int Rows>
HALFTONE_INLINE void multiply_row(const float* const* a, extent p, f32 row, f32* sums) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) sums[i] = fma(splat(a[i][p]), row, sums[i]);
}

/// How squares of b are read whose columns are contiguous. bfloat16 is read as pairs of k, one in each lane: a square then
/// has twice the k for as many shuffles.
template <class Compute, class T>
inline constexpr int square_pairs = std::is_same_v<T, bfloat16> && contains<Compute, T> ? 2 : 1;

/// sums (Rows, 1 vector) += a (Rows, k), from column p on, times a whole square of b (k, 1 vector), whose columns are
/// column_stride elements apart. A later square, at `ahead`, is prefetched: processors prefetch few of so many streams by
/// themselves.
template <class Compute, int Rows, class T>
HALFTONE_INLINE void multiply_square(const float* const* a, extent p, const T* b, const T* ahead, extent column_stride,
                                     f32* sums) {
    constexpr int lanes = f32::lanes;
    f32 square[lanes];  // (columns, k), transposed to (k, columns)
#pragma GCC unroll 16
    for (int r = 0; r < lanes; ++r) {
        __builtin_prefetch(ahead + r * column_stride);
        if constexpr (square_pairs<Compute, T> == 2) {
            square[r] = load(reinterpret_cast<const float*>(b + r * column_stride));
        } else {
            square[r] = load_as<Compute>(b + r * column_stride, lanes);
        }
    }
    transpose(square);
#pragma GCC unroll 16
    for (int r = 0; r < lanes; ++r) {
        if constexpr (square_pairs<Compute, T> == 2) {
            multiply_row<Rows>(a, p + 2 * r, floats_of(words_of(square[r]) << 16), sums);
            multiply_row<Rows>(a, p + 2 * r + 1, floats_of(words_of(square[r]) & 0xffff0000u), sums);
        } else {
            multiply_row<Rows>(a, p + r, square[r], sums);
        }
    }
}
/// sums (Rows, 1 vector) += a (Rows, k), from column p on, times a part of a square of b, with fewer columns or less k.
template <class Compute, int Rows, class T>
HALFTONE_INLINE void multiply_part_of_square(const float* const* a, extent p, const T* b, extent column_stride, extent wide,
                                             int k, f32* sums) {
    f32 square[f32::lanes];
    for (int r = 0; r < f32::lanes; ++r) square[r] = r < wide ? load_as<Compute>(b + r * column_stride, k) : splat(0.0f);
    transpose(square);
    for (int r = 0; r < k; ++r) multiply_row<Rows>(a, p + r, square[r], sums);
}

/// c (Rows, columns) += a (Rows, k) times b (k, columns), whose columns are contiguous and column_stride elements apart;
/// where there are fewer rows, the last one is computed again.
template <class Compute, int Rows, class T>
void fma_small_m_by_columns(const small_m_product<float, T>& product, extent column_stride) {
    constexpr int lanes = f32::lanes, depth = lanes * square_pairs<Compute, T>;
    constexpr extent lookahead = 512 / sizeof(T);  // in k; what is beyond it is of the next columns
    const auto to = [&](int i) __attribute__((always_inline)) {
        return product.c + product.row_for(i) * product.c_stride;
    };
    const float* a[Rows];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) a[i] = product.a + product.row_for(i) * product.a_stride;
    const extent k = product.k;
    for (extent j = 0; j < product.columns; j += lanes) {
        const T* const from = product.b + j * column_stride;
        const extent wide = product.columns - j;
        f32 sums[Rows];
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) sums[i] = load(to(i) + j);
        extent p = 0;
        for (; p + depth <= k && wide >= lanes; p += depth) {
            const extent ahead = p + lookahead < k ? p + lookahead : p + lookahead - k + lanes * column_stride;
            multiply_square<Compute, Rows>(a, p, from + p, from + ahead, column_stride, sums);
        }
        for (; p < k; p += lanes) {
            const int n = static_cast<int>(k - p < lanes ? k - p : lanes);
            multiply_part_of_square<Compute, Rows>(a, p, from + p, column_stride, wide, n, sums);
        }
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) store(to(i) + j, sums[i]);
    }
}

/// c (rows, columns), with room for whole vectors, = or += a (rows, k) times unpacked b (k, columns): the bits of
/// fma_multiply. Where b is not row-major, rows are at most small_m, or small_m_by_columns_wide on vectors of 16 floats.
template <class Compute, class T>
void fma_multiply_small_m(extent rows, extent k, const void* a_rows, extent a_stride, const void* b, extent k_stride,
                      extent column_stride, extent columns, float* c, extent c_stride, bool add) {
    const auto* a = static_cast<const float*>(a_rows);
    const auto* from = static_cast<const T*>(b);
    const small_m_product<float, T> product{rows, k, columns, a, a_stride, from, k_stride, c, c_stride, add};
    const bool row_major = column_stride == 1;
    if (row_major && rows > 2) return run_small_m_tiles<fma_small_m_tiles<Compute, T>>(product, 6 * f32::lanes);
    for (extent i = 0; i < rows && !add; ++i) {
        for (extent j = 0; j < columns; j += f32::lanes) store(c + i * c_stride + j, splat(0.0f));
    }
    if (row_major) return rows == 1 ? fma_small_m_by_rows<Compute, 1>(product) : fma_small_m_by_rows<Compute, 2>(product);
    static_assert(small_m == 4);
    constexpr decltype(&fma_small_m_by_columns<Compute, 1, T>) by_columns[] = {
        &fma_small_m_by_columns<Compute, 1, T>, &fma_small_m_by_columns<Compute, 2, T>, &fma_small_m_by_columns<Compute, 3, T>,
        &fma_small_m_by_columns<Compute, 4, T>};
    if constexpr (f32::lanes == 16) {
        static_assert(small_m_by_columns_wide == 8);
        if (rows > small_m) return fma_small_m_by_columns<Compute, 8, T>(product, column_stride);
    }
    by_columns[rows - 1](product, column_stride);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
