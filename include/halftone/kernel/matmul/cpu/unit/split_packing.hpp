// SPDX-License-Identifier: MIT
/// \file
/// Packing of operands as sums of N bfloat16 (number/split.hpp), and the addition of their products' sums to a result.
/// Written on AVX-512, which every processor with tiles has.
///
///     a block:  (rows, k / 32, N, 32), N * panel_stride elements from row to row
///     b panel:  (k / 32, N, 16, 32 columns, 2)
///
/// All N pieces of 32 of k are side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include <halftone/kernel/matmul/cpu/unit/fma_packing.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/number/split.hpp>

#if HALFTONE_AVX512
#include <halftone/exec/cpu/set/avx512.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512 {

/// The upper 16 bits of the lanes of two vectors: 32 bfloat16.
HALFTONE_INLINE __m512i upper_halves(f32 low, f32 high) {
    alignas(64) static constexpr std::uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                          23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                          45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    return _mm512_permutex2var_epi16(_mm512_castps_si512(low.v), _mm512_load_si512(odd), _mm512_castps_si512(high.v));
}

/// to (N, 32) = the pieces of 32 values.
template <int N>
HALFTONE_INLINE void store_pieces(std::uint16_t* to, f32 low, f32 high) {
    f32 low_pieces[N], high_pieces[N];
    split_bfloat16<N>(low, low_pieces);
    split_bfloat16<N>(high, high_pieces);
    for (int q = 0; q < N; ++q) _mm512_storeu_si512(to + q * 32, upper_halves(low_pieces[q], high_pieces[q]));
}

/// Packs a (rows, k) into rows N * block_stride elements apart, k padded with zeros to a multiple of 32.
template <class Compute, int N, class T>
void pack_a_split(const void* source, extent row_stride, extent k_stride, extent rows, extent k, void* block,
                  extent block_stride) {
    const auto* from = static_cast<const T*>(source);
    auto* to = static_cast<std::uint16_t*>(block);
    if (k_stride == 1) {
        for (extent i = 0; i < rows; ++i) {
            const T* row = from + i * row_stride;
            for (extent p = 0; p < k; p += 32) {
                store_pieces<N>(to + i * N * block_stride + p * N, load_first_as<Compute>(row + p, k - p),
                                load_first_as<Compute>(row + p + 16, k - p - 16));
            }
        }
        return;
    }
    for (extent i = 0; i < rows; i += 16) {
        const extent high = rows - i < 16 ? rows - i : 16;
        for (extent p = 0; p < k; p += 32) {
            f32 squares[2][16];  // (k, rows), transposed to (rows, k)
            for (extent r = 0; r < 32; ++r)
                squares[r / 16][r % 16] = load_first_as<Compute>(from + (p + r) * k_stride + i, p + r < k ? high : 0);
            transpose(squares[0]);
            transpose(squares[1]);
            for (extent r = 0; r < high; ++r)
                store_pieces<N>(to + (i + r) * N * block_stride + p * N, squares[0][r], squares[1][r]);
        }
    }
}

/// Packs b (k, columns) into panels that begin panel_step_bytes apart; missing columns and missing k are zeros.
template <class Compute, int N, class T>
void pack_b_split(const void* source, extent k_stride, extent column_stride, extent k, extent columns, void* panels,
                  std::size_t panel_step_bytes) {
    const auto* from = static_cast<const T*>(source);
    const extent padded = round_up(k, 32);
    const auto panel_step = static_cast<extent>(panel_step_bytes / sizeof(std::uint32_t));
    const extent padded_columns = round_up(columns, 32);
    for (extent j = 0; j < padded_columns; j += 16) {
        const extent wide = columns - j;
        std::uint32_t* const to = static_cast<std::uint32_t*>(panels) + j / 32 * panel_step + j % 32;
        if (column_stride == 1) {
            for (extent p = 0; p < padded; p += 2) {
                f32 even[N], odd[N];
                split_bfloat16<N>(load_first_as<Compute>(from + p * k_stride + j, p < k ? wide : 0), even);
                split_bfloat16<N>(load_first_as<Compute>(from + (p + 1) * k_stride + j, p + 1 < k ? wide : 0), odd);
                std::uint32_t* pairs = to + p / 32 * (N * 512) + p % 32 / 2 * 32;
                for (int q = 0; q < N; ++q) {
                    _mm512_storeu_si512(pairs + q * 512,
                                        _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even[q].v), 16),
                                                        _mm512_castps_si512(odd[q].v)));
                }
            }
            continue;
        }
        for (extent p = 0; p < k; p += 32) {
            f32 squares[N][16];  // (pieces, columns, k / 2) pairs, transposed to (pieces, k / 2, columns)
            for (extent r = 0; r < 16; ++r) {
                const T* column = from + (j + r) * column_stride + p;
                f32 low[N], high[N];
                split_bfloat16<N>(load_first_as<Compute>(column, r < wide ? k - p : 0), low);
                split_bfloat16<N>(load_first_as<Compute>(column + 16, r < wide ? k - p - 16 : 0), high);
                for (int q = 0; q < N; ++q) squares[q][r].v = _mm512_castsi512_ps(upper_halves(low[q], high[q]));
            }
            for (int q = 0; q < N; ++q) {
                transpose(squares[q]);
                for (int r = 0; r < 16; ++r)
                    _mm512_storeu_ps(to + (p / 32 * N + q) * 512 + r * 32, squares[q][r].v);
            }
        }
    }
}

/// The numbers whose N packed pieces these are: 16 of a row of a; of pairs of b the first or the second ones.
template <int N>
HALFTONE_INLINE f32 joined(const bfloat16* pieces) {
    f32 sum = load(pieces + (N - 1) * 32);
    for (int q = N - 2; q >= 0; --q) sum = load(pieces + q * 32) + sum;
    return sum;
}
template <int N, bool Second>
HALFTONE_INLINE f32 joined_of_pairs(const bfloat16* pairs) {
    f32 sum = splat(0.0f);
    for (int q = N - 1; q >= 0; --q) {
        const __m512i words = _mm512_loadu_si512(pairs + q * 1024);
        const __m512i bits =
            Second ? _mm512_and_si512(words, _mm512_set1_epi32(-0x10000)) : _mm512_slli_epi32(words, 16);
        sum = f32{_mm512_castsi512_ps(bits)} + sum;
    }
    return sum;
}

/// Sums the elements of c (rows, 32) whose bits are set in `wrong` again, by multiply-adds of floats: on top of c if `add`,
/// else of zero. a and b are packed pieces, k is at most split_depth.
template <int N>
void multiply_joined(extent rows, extent k, const bfloat16* a, const bfloat16* b, const std::uint32_t* wrong, float* c,
                     extent c_stride, bool add) {
    float row[split_depth], panel[split_depth * 32];
    for (extent p = 0; p < k; p += 2) {
        const bfloat16* pairs = b + p / 32 * (N * 1024) + p % 32 * 32;
        for (int j = 0; j < 32; j += 16) {
            store(panel + p * 32 + j, joined_of_pairs<N, false>(pairs + 2 * j));
            store(panel + (p + 1) * 32 + j, joined_of_pairs<N, true>(pairs + 2 * j));
        }
    }
    for (extent i = 0; i < rows; ++i) {
        if (wrong[i] == 0) continue;
        const bfloat16* pieces = a + i * N * panel_stride;
        for (extent p = 0; p < k; p += 16) store(row + p, joined<N>(pieces + p / 32 * (N * 32) + p % 32));
        float* to = c + i * c_stride;
        f32 low = add ? load(to) : splat(0.0f), high = add ? load(to + 16) : splat(0.0f);
        for (extent p = 0; p < k; ++p) {
            const f32 ai = splat(row[p]);
            low = fma(ai, load(panel + p * 32), low);
            high = fma(ai, load(panel + p * 32 + 16), high);
        }
        _mm512_mask_storeu_ps(to, static_cast<__mmask16>(wrong[i] & 0xffff), low.v);
        _mm512_mask_storeu_ps(to + 16, static_cast<__mmask16>(wrong[i] >> 16), high.v);
    }
}

/// c (rows, 32) = or += sums of products of pieces. Sums that are not finite are formed again from the numbers themselves: an
/// infinity times a piece that is zero gives NaN, where times the number it may give an infinity.
template <int N>
void add_split_sums(const float* sums, extent rows, extent k, const bfloat16* a, const bfloat16* b, float* c,
                    extent c_stride, bool add) {
    std::uint32_t wrong[32], any_wrong = 0;
    for (extent i = 0; i < rows; ++i) {
        const f32 low = load(sums + i * 32), high = load(sums + i * 32 + 16);
        float* to = c + i * c_stride;
        const __mmask16 wrong_low = not_finite(low).m, wrong_high = not_finite(high).m;
        wrong[i] = wrong_low | static_cast<std::uint32_t>(wrong_high) << 16;
        any_wrong |= wrong[i];
        _mm512_mask_storeu_ps(to, static_cast<__mmask16>(~wrong_low), add ? (load(to) + low).v : low.v);
        _mm512_mask_storeu_ps(to + 16, static_cast<__mmask16>(~wrong_high), add ? (load(to + 16) + high).v : high.v);
    }
    if (any_wrong != 0) multiply_joined<N>(rows, k, a, b, wrong, c, c_stride, add);
}

}  // namespace avx512
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
