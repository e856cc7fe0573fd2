// SPDX-License-Identifier: MIT
/// \file
/// Products of few rows by VDPBF16PS, as fma_small_m.simd.hpp has them by multiply-add: they read b unpacked, two rows of it
/// at a time, and interleave these to pairs of k.
#pragma once

#include <cstdint>
#include <cstring>

#include <halftone/kernel/matmul/cpu/unit/bf16_packing.hpp>
#include <halftone/kernel/matmul/cpu/unit/fma.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>

#if HALFTONE_AVX512_BF16
#include <halftone/exec/cpu/set/avx512_bf16.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512_bf16 {

/// c (Rows, 32) = or += a (Rows, k) times b (k, 32); where a has fewer rows, its last one is computed again. `prefetches`: the
/// columns behind, into L2.
template <int Rows, class T>
[[gnu::noinline]] void pair_small_m_tile(const small_m_product<bfloat16, T>& product, bool prefetches) {
    const bfloat16* row[Rows];
    __m512 sums[Rows][2];  // (rows, columns)
    const auto to = [&](int i) __attribute__((always_inline)) {
        return product.c + product.row_for(i) * product.c_stride;
    };
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
        row[i] = product.a + product.row_for(i) * product.a_stride;
        sums[i][0] = product.add ? _mm512_loadu_ps(to(i)) : _mm512_setzero_ps();
        sums[i][1] = product.add ? _mm512_loadu_ps(to(i) + 16) : _mm512_setzero_ps();
    }
    const pairs_of_rows order;
    const extent columns = product.columns, k = product.k, k_stride = product.k_stride;
    const T* b = product.b;
    const auto multiply = [&](extent p, __m512i first, __m512i second) __attribute__((always_inline)) {
        const auto b0 = (__m512bh)_mm512_permutex2var_epi16(first, order.lower, second),
                   b1 = (__m512bh)_mm512_permutex2var_epi16(first, order.upper, second);
#pragma GCC unroll 12
        for (int i = 0; i < Rows; ++i) {
            std::int32_t pair;
            std::memcpy(&pair, row[i] + p, sizeof pair);
            const auto factors = (__m512bh)_mm512_set1_epi32(pair);
            sums[i][0] = _mm512_dpbf16_ps(sums[i][0], factors, b0);
            sums[i][1] = _mm512_dpbf16_ps(sums[i][1], factors, b1);
        }
    };
    extent p = 0;
    for (; p + 2 <= k; p += 2, b += 2 * k_stride) {
        if (prefetches) {
            __builtin_prefetch(b + 32, 0, 2);
            __builtin_prefetch(b + k_stride + 32, 0, 2);
        }
        multiply(p, load_two_bfloat16(b, columns), load_two_bfloat16(b + k_stride, columns));
    }
    if (p < k) multiply(p, load_two_bfloat16(b, columns), _mm512_setzero_si512());
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
        _mm512_storeu_ps(to(i), sums[i][0]);
        _mm512_storeu_ps(to(i) + 16, sums[i][1]);
    }
}
template <class T>
struct pair_small_m_tiles {
    template <int Rows>
    static void run(const small_m_product<bfloat16, T>& part, bool is_first) {
        for (extent j = 0; j < part.columns; j += 32)
            pair_small_m_tile<Rows>(part.part(0, part.rows, j, part.columns - j), is_first);
    }
};

/// c (Rows, columns) += a (Rows, 2 Pairs) times b (2 Pairs, columns), each row of b from its beginning to its end; where `odd`
/// the last row of b is missing.
template <int Rows, int Pairs, class T>
HALFTONE_INLINE void pair_small_m(const bfloat16* a, extent a_stride, const T* b, extent k_stride, bool odd, extent columns,
                              float* c, extent c_stride, const pairs_of_rows& order) {
    __m512bh factors[Rows][Pairs];  // (rows, k / 2)
#pragma GCC unroll 2
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
        for (int p = 0; p < Pairs; ++p) {
            std::int32_t pair;
            std::memcpy(&pair, a + i * a_stride + 2 * p, sizeof pair);
            factors[i][p] = (__m512bh)_mm512_set1_epi32(pair);
        }
    }
    for (extent j = 0; j < columns; j += 32) {
        __m512 sums[Rows][2];
#pragma GCC unroll 2
        for (int i = 0; i < Rows; ++i) {
            sums[i][0] = _mm512_loadu_ps(c + i * c_stride + j);
            sums[i][1] = _mm512_loadu_ps(c + i * c_stride + j + 16);
        }
#pragma GCC unroll 4
        for (int p = 0; p < Pairs; ++p) {
            const T* const row = b + 2 * p * k_stride + j;
            const __m512i first = load_two_bfloat16(row, columns - j);
            const __m512i second = odd ? _mm512_setzero_si512() : load_two_bfloat16(row + k_stride, columns - j);
            const auto b0 = (__m512bh)_mm512_permutex2var_epi16(first, order.lower, second),
                       b1 = (__m512bh)_mm512_permutex2var_epi16(first, order.upper, second);
#pragma GCC unroll 2
            for (int i = 0; i < Rows; ++i) {
                sums[i][0] = _mm512_dpbf16_ps(sums[i][0], factors[i][p], b0);
                sums[i][1] = _mm512_dpbf16_ps(sums[i][1], factors[i][p], b1);
            }
        }
#pragma GCC unroll 2
        for (int i = 0; i < Rows; ++i) {
            _mm512_storeu_ps(c + i * c_stride + j, sums[i][0]);
            _mm512_storeu_ps(c + i * c_stride + j + 16, sums[i][1]);
        }
    }
}
/// c += a times unpacked b for any k: with one or two rows products wait for memory, which delivers long runs fastest.
template <int Rows, class T>
void pair_small_m_by_rows(const small_m_product<bfloat16, T>& product) {
    constexpr int pairs = 4;
    const pairs_of_rows order;
    const auto [rows, k, columns, a, a_stride, b, k_stride, c, c_stride, add] = product;
    extent p = 0;
    for (; p + 2 * pairs <= k; p += 2 * pairs)
        pair_small_m<Rows, pairs>(a + p, a_stride, b + p * k_stride, k_stride, false, columns, c, c_stride, order);
    for (; p < k; p += 2)
        pair_small_m<Rows, 1>(a + p, a_stride, b + p * k_stride, k_stride, p + 1 == k, columns, c, c_stride, order);
}

/// sums (Rows, 16) += a (Rows, 1 pair) times `pairs` (1 pair, 16).
template <int Rows>
HALFTONE_INLINE void multiply_pair(const bfloat16* a, extent a_stride, __m512i pairs, __m512* sums) {
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) {
        std::int32_t pair;
        std::memcpy(&pair, a + i * a_stride, sizeof pair);
        sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)_mm512_set1_epi32(pair), (__m512bh)pairs);
    }
}

/// c (Rows, columns) += a (Rows, k) times b (k, columns), whose columns are contiguous and column_stride elements apart.
template <int Rows, class T>
void pair_small_m_by_columns(extent k, const bfloat16* a, extent a_stride, const T* b, extent column_stride, extent columns,
                         float* c, extent c_stride) {
    for (extent j = 0; j < columns; j += 16) {
        const T* const from = b + j * column_stride;
        const int wide = up_to_sixteen(columns - j);
        __m512 sums[Rows];
#pragma GCC unroll 4
        for (int i = 0; i < Rows; ++i) sums[i] = _mm512_loadu_ps(c + i * c_stride + j);
        for (extent p = 0; p < k; p += 32) {
            __m512i square[16];  // (columns, k / 2) pairs, transposed to (k / 2, columns)
            if (wide == 16 && p + 32 <= k) {
#pragma GCC unroll 16
                for (int r = 0; r < 16; ++r) {
                    // The next columns: processors prefetch few of so many streams by themselves.
                    _mm_prefetch(reinterpret_cast<const char*>(from + (r + 32) * column_stride + p), _MM_HINT_T1);
                    square[r] = load_two_bfloat16(from + r * column_stride + p, 32);
                }
            } else {
                for (int r = 0; r < 16; ++r) {
                    square[r] =
                        r < wide ? load_two_bfloat16(from + r * column_stride + p, k - p) : _mm512_setzero_si512();
                }
            }
            transpose_pairs(square);
            if (p + 32 <= k) {
#pragma GCC unroll 16
                for (int r = 0; r < 16; ++r) multiply_pair<Rows>(a + p + 2 * r, a_stride, square[r], sums);
            } else {
                for (int r = 0; p + 2 * r < k; ++r) multiply_pair<Rows>(a + p + 2 * r, a_stride, square[r], sums);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < Rows; ++i) _mm512_storeu_ps(c + i * c_stride + j, sums[i]);
    }
}

/// c (rows, columns), with room for whole panels, = or += a (rows, k), whose last pair is whole, times unpacked b
/// (k, columns): the bits of pair_multiply. Where b is not row-major, rows are at most small_m.
template <class T>
void pair_multiply_small_m(extent rows, extent k, const void* a_rows, extent a_stride, const void* b, extent k_stride,
                       extent column_stride, extent columns, float* c, extent c_stride, bool add) {
    const auto* a = static_cast<const bfloat16*>(a_rows);
    const auto* from = static_cast<const T*>(b);
    const small_m_product<bfloat16, T> product{rows, k, columns, a, a_stride, from, k_stride, c, c_stride, add};
    const bool row_major = column_stride == 1;
    if (row_major && rows > 2) return avx512::run_small_m_tiles<pair_small_m_tiles<T>>(product, 96);
    for (extent i = 0; i < rows && !add; ++i) {
        for (extent j = 0; j < columns; j += 32) {
            _mm512_storeu_ps(c + i * c_stride + j, _mm512_setzero_ps());
            _mm512_storeu_ps(c + i * c_stride + j + 16, _mm512_setzero_ps());
        }
    }
    if (row_major) return rows == 1 ? pair_small_m_by_rows<1>(product) : pair_small_m_by_rows<2>(product);
    static_assert(small_m == 4);
    constexpr decltype(&pair_small_m_by_columns<1, T>) by_columns[] = {
        &pair_small_m_by_columns<1, T>, &pair_small_m_by_columns<2, T>, &pair_small_m_by_columns<3, T>,
        &pair_small_m_by_columns<4, T>};
    by_columns[rows - 1](k, a, a_stride, from, column_stride, columns, c, c_stride);
}

}  // namespace avx512_bf16
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
