// SPDX-License-Identifier: MIT
/// \file
/// Products of few rows with the rows of a coded matrix as columns of b, in bfloat16 on multiply-adds of 16 floats: codes are
/// decoded in registers, where they are transposed and multiplied, with the bits of fma_multiply_small_m. Codes that are
/// decoded to memory first cost another half of the time at one row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/matmul/cpu/unit/decode.hpp>
#include <halftone/kernel/matmul/cpu/unit/fma.hpp>
#include <halftone/number/nf4.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Few rows of a, floats, and the part of a coded matrix that they are multiplied by: elements [first, first + k) of `columns`
/// of its rows, from `row` on. c (rows, columns) += their product.
struct coded_small_m_product {
    coded_source from;
    extent rows, k, row, first, columns;
    const float* a;
    extent a_stride;
    float* c;
    extent c_stride;

    /// The row of a that a tile's row i reads: where a tile has more rows than a, the last one again.
    extent row_for(int i) const { return i < rows ? i : rows - 1; }
};
/// Multiplies by whole sixteens of columns.
using multiply_coded_small_m = void(const coded_small_m_product& product);

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if HALFTONE_AVX512
#include <halftone/exec/cpu/set/avx512.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512 {

/// Whether rounding products of codes by the instruction has the bits of rounding by words: of none of these sixteen scales
/// are products subnormal, which the instruction takes for zero. The least magnitude of a code but 0 is more than 2^-4.
inline bool rounds_by_instruction(__m512 scales) {
    const __m512 magnitudes = _mm512_abs_ps(scales);
    const auto small = _mm512_cmp_ps_mask(magnitudes, _mm512_set1_ps(0x1p-122f), _CMP_NGE_UQ);
    const auto zero = _mm512_cmp_ps_mask(scales, _mm512_setzero_ps(), _CMP_EQ_OQ);
    return (small & ~static_cast<unsigned>(zero)) == 0 && has_bfloat16_instruction();
}
inline __m512i narrow_pair(f32 a, f32 b, bool by_instruction) {
    return by_instruction ? narrow_bfloat16_by_instruction(a, b) : narrow_bfloat16_by_words(a, b);
}

/// Sixteen rows of nf4, over a piece of k.
class nf4_rows {
  public:
    static constexpr extent square_depth = 128;  ///< k that are multiplied at a time where there are as many

    /// Goes to elements [first, first + k) of rows [row, row + 16): computes the scales of their blocks.
    void begin_piece(const halftone::detail::coded_source& source, extent row, extent first, extent k) {
        data_ = source.data;
        width_ = source.width;
        const auto total = static_cast<std::size_t>(source.rows * source.width);
        codes_ = data_ + nf4::codes_position(total);
        float offset;
        std::memcpy(&offset, data_ + nf4::offset_position(), sizeof offset);
        alignas(64) std::int32_t codes[blocks][16];
        alignas(64) float nested[blocks][16];
        const std::byte* const absmax = data_ + nf4::absmax_position(total);
        first_block_ = first / block;
        const extent count = (first + k - 1) / block + 1 - first_block_;
        for (int r = 0; r < 16; ++r) {
            const extent begin = (row + r) * (width_ / block) + first_block_;
            for (extent b = 0; b < count; ++b) {
                const auto at = static_cast<std::size_t>(begin + b);
                codes[b][r] = std::to_integer<std::int32_t>(absmax[at]);
                std::memcpy(&nested[b][r], data_ + nf4::nested_position() + at / nf4::nested_block * sizeof(float),
                            sizeof(float));
            }
        }
        // With a rounding of their own, so that no compiler makes a fused multiply-add of the two.
        constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        by_instruction_ = true;
        for (extent b = 0; b < count; ++b) {
            const __m512 values =
                _mm512_i32gather_ps(_mm512_load_si512(codes[b]), halftone::detail::signed_dynamic_values.of, 4);
            const __m512 products = _mm512_mul_round_ps(values, _mm512_load_ps(nested[b]), nearest);
            const __m512 scales = _mm512_add_round_ps(products, _mm512_set1_ps(offset), nearest);
            by_instruction_ = by_instruction_ && rounds_by_instruction(scales);
            _mm512_store_ps(scales_[b], scales);
        }
    }
    const std::byte* at(extent row, extent first) const { return codes_ + (row * width_ + first) / 2; }
    extent row_bytes() const { return width_ / 2; }
    /// 32 elements of row r of the sixteen from `first` on, as bfloat16.
    __m512i elements(int r, extent first, const std::byte* codes) const {
        const f32 values = values_of(r, first / block - first_block_);
        const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
        return _mm512_permutexvar_epi16(_mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16)),
                                        narrow_pair(values, values, by_instruction_));
    }
    /// 128 elements of row r, two blocks, as four squares have them: lane i of square q has the element
    /// whose code is nibble q of word i.
    void elements_of_two_blocks(int r, extent first, const std::byte* codes, f32 (*squares)[16]) const {
        const extent b = first / block - first_block_;
        const __m512i values = narrow_pair(values_of(r, b), values_of(r, b + 1), by_instruction_);  // by five bits
        const __m512i words = _mm512_loadu_si512(codes), mask = _mm512_set1_epi16(15),
                      is_second = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
        constexpr int and_or = 0xea;  // (x & mask) | is_second
        const auto look_up = [&](__m512i x) __attribute__((always_inline)) {
            return f32{_mm512_castsi512_ps(
                _mm512_permutexvar_epi16(_mm512_ternarylogic_epi64(x, mask, is_second, and_or), values))};
        };
        squares[0][r] = look_up(words);
        squares[1][r] = look_up(_mm512_srli_epi16(words, 4));
        squares[2][r] = look_up(_mm512_srli_epi16(words, 8));
        squares[3][r] = look_up(_mm512_srli_epi16(words, 12));
    }

  private:
    static constexpr extent block = nf4::block, blocks = 2 * halftone::detail::panel_depth / block + 1;

    f32 values_of(int r, extent b) const {
        return {_mm512_mul_ps(_mm512_loadu_ps(halftone::detail::nf4_values), _mm512_set1_ps(scales_[b][r]))};
    }

    const std::byte *data_ = nullptr, *codes_ = nullptr;
    extent width_ = 0, first_block_ = 0;
    bool by_instruction_ = false;
    alignas(64) float scales_[blocks][16];
};

/// Sixteen rows of q8_0.
class q8_0_rows {
  public:
    static constexpr extent square_depth = 32;

    void begin_piece(const halftone::detail::coded_source& source, extent, extent, extent) {
        data_ = source.data;
        width_ = source.width;
    }
    const std::byte* at(extent row, extent first) const {
        return data_ + q8_0::bytes(static_cast<std::size_t>(row * width_ + first)) + 2;
    }
    extent row_bytes() const { return static_cast<extent>(q8_0::bytes(static_cast<std::size_t>(width_))); }
    __m512i elements(int, extent, const std::byte* quants) const {
        const float scale = q8_0::scale_of(quants - 2);
        // Of the products of such a scale none is subnormal, and no other than 0 times it is less than it.
        const bool is_normal = scale >= 0x1p-24f || scale <= -0x1p-24f;
        return narrow_pair(q8_0_values(quants, scale), q8_0_values(quants + 16, scale),
                           is_normal && has_bfloat16_instruction());
    }

  private:
    const std::byte* data_ = nullptr;
    extent width_ = 0;
};

/// sums (Rows, 16) += a (Rows, 2) times a pair of k: (16 columns, 2), the lower half first.
template <int Rows>
HALFTONE_INLINE void multiply_lower(const float* const* a, extent p, f32 pair, f32* sums) {
    multiply_row<Rows>(a, p, f32{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pair.v), 16))}, sums);
}
template <int Rows>
HALFTONE_INLINE void multiply_upper(const float* const* a, extent p, f32 pair, f32* sums) {
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(pair.v), _mm512_set1_epi32(-0x10000));
    multiply_row<Rows>(a, p, f32{_mm512_castsi512_ps(bits)}, sums);
}

/// Sums of groups of sixteen columns: (Groups, Rows, 16).
template <int Rows, int Groups>
struct coded_sums {
    f32 of[Groups][Rows];
};

/// c (Groups, Rows, 16) += a (Rows, 32) times 32 of k of groups of sixteen rows of codes, each row in a lane. Groups take
/// turns, since a sum waits for the one before it.
template <int Rows, int Groups, class Codes>
void multiply_coded_square(const float* const* a, extent p, const Codes* codes, extent row, extent first,
                           coded_sums<Rows, Groups>& c) {
    f32 squares[Groups][16];  // (columns, k / 2), transposed to (k / 2, columns)
    for (int g = 0; g < Groups; ++g) {
        const std::byte* const from = codes[g].at(row + 16 * g, first);
        f32 square[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r)
            square[r].v = _mm512_castsi512_ps(codes[g].elements(r, first, from + r * codes[g].row_bytes()));
        transpose(square);
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) squares[g][r] = square[r];
    }
    coded_sums<Rows, Groups> sums = c;  // in registers
#pragma GCC unroll 4
    for (int r = 0; r < 16; ++r) {
#pragma GCC unroll 2
        for (int g = 0; g < Groups; ++g) multiply_lower<Rows>(a, p + 2 * r, squares[g][r], sums.of[g]);
#pragma GCC unroll 2
        for (int g = 0; g < Groups; ++g) multiply_upper<Rows>(a, p + 2 * r + 1, squares[g][r], sums.of[g]);
    }
    c = sums;
}
/// c (Groups, Rows, 16) += a (Rows, 128) times 128 of k, two blocks, of rows of nf4: codes are looked up by words, each of
/// which has four elements, so that none is widened before.
template <int Rows, int Groups>
void multiply_nf4_squares(const float* const* a, extent p, const nf4_rows* codes, extent row, extent first,
                          coded_sums<Rows, Groups>& c) {
    f32 squares[Groups][4][16];  // of each nibble of words: (columns, words), transposed to (words / 2, columns, 2)
    for (int g = 0; g < Groups; ++g) {
        const std::byte* const from = codes[g].at(row + 16 * g, first);
#pragma GCC unroll 4
        for (int r = 0; r < 16; ++r)
            codes[g].elements_of_two_blocks(r, first, from + r * codes[g].row_bytes(), squares[g]);
        for (int q = 0; q < 4; ++q) {
            f32 square[16];
#pragma GCC unroll 16
            for (int r = 0; r < 16; ++r) square[r] = squares[g][q][r];
            transpose(square);
#pragma GCC unroll 16
            for (int r = 0; r < 16; ++r) squares[g][q][r] = square[r];
        }
    }
    constexpr int nibbles[4] = {1, 0, 3, 2};  // of a word's four elements: the upper one of a byte is the first
    coded_sums<Rows, Groups> sums = c;        // in registers
#pragma GCC unroll 2
    for (int d = 0; d < 16; ++d) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 2
            for (int g = 0; g < Groups; ++g)
                multiply_lower<Rows>(a, p + 8 * d + i, squares[g][nibbles[i]][d], sums.of[g]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 2
            for (int g = 0; g < Groups; ++g)
                multiply_upper<Rows>(a, p + 8 * d + 4 + i, squares[g][nibbles[i]][d], sums.of[g]);
        }
    }
    c = sums;
}

/// c (Rows, 16 Groups) += a (Rows, k) times as many rows of codes, from column j of the product on.
template <int Rows, int Groups, class Codes>
void coded_small_m_columns(const halftone::detail::coded_small_m_product& product, const float* const* a, extent j) {
    constexpr extent lookahead = 512;  // in k; what is beyond it is of the next columns
    const auto to = [&](int g, int i) { return product.c + product.row_for(i) * product.c_stride + j + 16 * g; };
    const extent row = product.row + j, width = product.from.width;
    coded_sums<Rows, Groups> sums;
    Codes codes[Groups];
    for (int g = 0; g < Groups; ++g) {
        codes[g].begin_piece(product.from, row + 16 * g, product.first, product.k);
        for (int i = 0; i < Rows; ++i) sums.of[g][i] = load(to(g, i));
    }
    for (extent p = 0, depth = 0; p < product.k; p += depth) {
        const extent first = product.first + p;
        if (first % 64 == 0) {
            const bool is_in_row = first + lookahead < width;
            const std::byte* const ahead =
                codes[0].at(is_in_row ? row : row + product.columns, first + lookahead - (is_in_row ? 0 : width));
            for (int r = 0; r < 16 * Groups; ++r) __builtin_prefetch(ahead + r * codes[0].row_bytes());
        }
        if constexpr (Codes::square_depth == 128) {
            if (first % 64 == 0 && product.k - p >= 128) {
                multiply_nf4_squares<Rows, Groups>(a, p, codes, row, first, sums);
                depth = 128;
                continue;
            }
        }
        multiply_coded_square<Rows, Groups>(a, p, codes, row, first, sums);
        depth = 32;
    }
    for (int g = 0; g < Groups; ++g) {
        for (int i = 0; i < Rows; ++i) store(to(g, i), sums.of[g][i]);
    }
}

template <int Rows, class Codes>
void coded_small_m_by_columns(const halftone::detail::coded_small_m_product& product) {
    const float* a[Rows];
    for (int i = 0; i < Rows; ++i) a[i] = product.a + product.row_for(i) * product.a_stride;
    extent j = 0;
    for (; j + 32 <= product.columns; j += 32) coded_small_m_columns<Rows, 2, Codes>(product, a, j);
    if (j < product.columns) coded_small_m_columns<Rows, 1, Codes>(product, a, j);
}

template <class Codes>
void coded_small_m(const halftone::detail::coded_small_m_product& product) {
    constexpr decltype(&coded_small_m_by_columns<1, Codes>) by_rows[] = {
        &coded_small_m_by_columns<1, Codes>, &coded_small_m_by_columns<2, Codes>, &coded_small_m_by_columns<3, Codes>,
        &coded_small_m_by_columns<4, Codes>};
    if (product.rows > small_m) return coded_small_m_by_columns<8, Codes>(product);
    by_rows[product.rows - 1](product);
}

inline halftone::detail::multiply_coded_small_m* coded_small_m_of(const nf4&) { return &coded_small_m<nf4_rows>; }
inline halftone::detail::multiply_coded_small_m* coded_small_m_of(const q8_0&) { return &coded_small_m<q8_0_rows>; }

}  // namespace avx512
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
