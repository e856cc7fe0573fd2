// SPDX-License-Identifier: MIT
/// \file
/// Packing for units that multiply pairs of bfloat16; written on AVX-512, which every processor with such a unit has.
///
///     a block:  (rows, k), or k-major (rows / 12, k / 2, 12, 2)
///     b panel:  (k / 2, bf16_columns, 2)
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/matmul/cpu/unit/fma_k_major.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/number/integer.hpp>

#if HALFTONE_AVX512_BF16
#include <halftone/exec/cpu/set/avx512_bf16.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512_bf16 {

inline constexpr int bf16_columns = 32;
inline constexpr int bf16_k_step = 32;

/// The bits of the first n of 16 values, rounded to bfloat16.
template <class T>
HALFTONE_INLINE __m256i load_bfloat16(const T* from, int n) {
    if constexpr (std::is_same_v<T, bfloat16>) {
        return _mm256_maskz_loadu_epi16(avx512::first_lanes(n), from);
    } else {
        return avx512::narrow_bfloat16(avx512::load(from, n));
    }
}
/// The bits of 16 values.
template <class T>
HALFTONE_INLINE __m256i load_bfloat16(const T* from) {
    if constexpr (std::is_same_v<T, bfloat16>) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    } else {
        return avx512::narrow_bfloat16(avx512::load(from));
    }
}

inline int up_to_sixteen(extent n) { return static_cast<int>(n < 0 ? 0 : n < 16 ? n : 16); }

/// The bits of the first n of 32 values.
template <class T>
HALFTONE_INLINE __m512i load_two_bfloat16(const T* from, extent n) {
    if (n >= 32) {
        if constexpr (std::is_same_v<T, bfloat16>) {
            return _mm512_loadu_si512(from);
        } else {
            return avx512::narrow_bfloat16(avx512::load(from), avx512::load(from + 16));
        }
    }
    return _mm512_inserti64x4(_mm512_castsi256_si512(load_bfloat16(from, up_to_sixteen(n))),
                              load_bfloat16(from + 16, up_to_sixteen(n - 16)), 1);
}

/// Transposes rows (16, 16 pairs).
HALFTONE_INLINE void transpose_pairs(__m512i* rows) {
    avx512::f32 square[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) square[r].v = _mm512_castsi512_ps(rows[r]);
    avx512::transpose(square);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) rows[r] = _mm512_castps_si512(square[r].v);
}

/// (16 rows, one pair of k) of a column-major a: of the first n rows and the first `left` of two k, else zeros.
template <class T>
HALFTONE_INLINE __m512i load_pairs(const T* from, extent k_stride, extent n, extent left) {
    const auto column = [&](extent at) __attribute__((always_inline)) {
        if (at >= left) return _mm512_setzero_si512();
        const T* const values = from + at * k_stride;
        return _mm512_cvtepu16_epi32(n >= 16 ? load_bfloat16(values) : load_bfloat16(values, static_cast<int>(n)));
    };
    return _mm512_or_si512(column(0), _mm512_slli_epi32(column(1), 16));
}

/// Packs a (rows, k) into rows block_stride elements apart, k padded with zeros to a multiple of bf16_k_step.
template <class T>
void pack_a_bf16(const void* source, extent row_stride, extent k_stride, extent rows, extent k, void* block,
                 extent block_stride) {
    const auto* from = static_cast<const T*>(source);
    auto* to = static_cast<bfloat16*>(block);
    if (k_stride == 1) {
        for (extent i = 0; i < rows; ++i) {
            for (extent p = 0; p < k; p += 32)
                _mm512_storeu_si512(to + i * block_stride + p, load_two_bfloat16(from + i * row_stride + p, k - p));
        }
        return;
    }
    for (extent p = 0; p < k; p += 32) {
        for (extent i = 0; i < rows; i += 16) {
            const int high = up_to_sixteen(rows - i);
            __m512i square[16];  // (k / 2, rows) pairs, transposed to (rows, k / 2)
            if (high == 16 && p + 32 <= k) {
#pragma GCC unroll 16
                for (int r = 0; r < 16; ++r)
                    square[r] = load_pairs(from + (p + 2 * r) * k_stride + i, k_stride, 16, 2);
            } else {
                for (int r = 0; r < 16; ++r)
                    square[r] = load_pairs(from + (p + 2 * r) * k_stride + i, k_stride, high, k - p - 2 * r);
            }
            transpose_pairs(square);
            if (high == 16) {
#pragma GCC unroll 16
                for (int r = 0; r < 16; ++r) _mm512_storeu_si512(to + (i + r) * block_stride + p, square[r]);
            } else {
                for (int r = 0; r < high; ++r) _mm512_storeu_si512(to + (i + r) * block_stride + p, square[r]);
            }
        }
    }
}

/// Indices that interleave two rows of 32: 16-bit lane 2 i takes column i of the first one, lane 2 i + 1 that of the second,
/// whose lanes have the numbers from 32 on.
struct pairs_of_rows {
    __m512i lower, upper;  ///< for columns 0 to 15, and 16 to 31

    pairs_of_rows() {
        const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        lower =
            _mm512_add_epi32(_mm512_set1_epi32(0x00200000), _mm512_mullo_epi32(_mm512_set1_epi32(0x00010001), count));
        upper = _mm512_add_epi32(lower, _mm512_set1_epi32(0x00100010));
    }
};

/// Packs a column-major a (rows, k) k-major (block_of_a), without a transpose. Eight k are packed at a time, missing ones as
/// zeros.
template <class T>
void pack_a_pairs(const void* source, extent k_stride, extent rows, extent k, void* block, extent stride) {
    const auto* from = static_cast<const T*>(source);
    auto* to = static_cast<bfloat16*>(block);
    for (extent p = 0; p < k; p += 8, from += 8 * k_stride, to += 8 * k_major_rows) {
        for (extent i = 0; i < rows; i += k_major_rows) {
            avx512::f32 pairs[4];  // (4 pairs of k, 16 rows)
#pragma GCC unroll 4
            for (int q = 0; q < 4; ++q) {
                pairs[q].v = _mm512_castsi512_ps(
                    load_pairs(from + 2 * q * k_stride + i, k_stride, rows - i, k - p - 2 * q));
            }
            avx512::store_k_major(reinterpret_cast<float*>(to + i / k_major_rows * stride), pairs);
        }
    }
}

/// Packs b (k, columns) into panels that begin panel_step_bytes apart; missing columns and missing k are zeros.
template <class T>
void pack_b_bf16(const void* source, extent k_stride, extent column_stride, extent k, extent columns, void* panels,
                 std::size_t panel_step_bytes) {
    const auto* from = static_cast<const T*>(source);
    auto* to = static_cast<std::uint32_t*>(panels);
    const extent padded = round_up(k, bf16_k_step);
    const auto panel_step = static_cast<extent>(panel_step_bytes / sizeof(std::uint32_t));
    if (column_stride == 1) {
        const pairs_of_rows order;
        for (extent p = 0; p < padded; p += 2) {
            // Two rows through all panels: long runs come fastest from memory.
            std::uint32_t* pairs = to + p / 2 * bf16_columns;
            for (extent j = 0; j < columns; j += bf16_columns, pairs += panel_step) {
                const __m512i zero = _mm512_setzero_si512();
                const __m512i first = p < k ? load_two_bfloat16(from + p * k_stride + j, columns - j) : zero;
                const __m512i second = p + 1 < k ? load_two_bfloat16(from + (p + 1) * k_stride + j, columns - j) : zero;
                _mm512_storeu_si512(pairs, _mm512_permutex2var_epi16(first, order.lower, second));
                _mm512_storeu_si512(pairs + 16, _mm512_permutex2var_epi16(first, order.upper, second));
            }
        }
        return;
    }
    const extent padded_columns = round_up(columns, bf16_columns);
    for (extent j = 0; j < padded_columns; j += 16) {
        const int wide = up_to_sixteen(columns - j);
        std::uint32_t* const pairs = to + j / bf16_columns * panel_step + j % bf16_columns;
        for (extent p = 0; p < padded; p += 32) {
            __m512i square[16];  // (columns, k / 2) pairs, transposed to (k / 2, columns)
            if (wide == 16 && p + 32 <= k) {
#pragma GCC unroll 16
                for (int r = 0; r < 16; ++r) square[r] = load_two_bfloat16(from + (j + r) * column_stride + p, 32);
            } else {
                for (int r = 0; r < 16; ++r) {
                    square[r] = r < wide ? load_two_bfloat16(from + (j + r) * column_stride + p, k - p)
                                         : _mm512_setzero_si512();
                }
            }
            transpose_pairs(square);
#pragma GCC unroll 16
            for (int r = 0; r < 16; ++r) _mm512_storeu_si512(pairs + (p / 2 + r) * bf16_columns, square[r]);
        }
    }
}

}  // namespace avx512_bf16
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
