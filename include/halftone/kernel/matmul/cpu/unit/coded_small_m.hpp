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

/// Sixteen rows of nf4.
class nf4_rows {
  public:
    static constexpr extent block = nf4::block;

    explicit nf4_rows(const halftone::detail::coded_source& from)
        : data_(from.data), total_(static_cast<std::size_t>(from.rows * from.width)), width_(from.width) {
        std::memcpy(&offset_, data_ + nf4::offset_position(), sizeof offset_);
    }
    /// Goes to rows [row, row + 16) and the block that has element `first` of each.
    void begin_block(extent row, extent first) {
        alignas(64) std::int32_t codes[16];
        alignas(64) float nested[16];
        const std::byte* const absmax = data_ + nf4::absmax_position(total_);
        for (int r = 0; r < 16; ++r) {
            const auto b = static_cast<std::size_t>((row + r) * width_ + first) / nf4::block;
            codes[r] = std::to_integer<std::int32_t>(absmax[b]);
            std::memcpy(&nested[r], data_ + nf4::nested_position() + b / nf4::nested_block * sizeof(float), sizeof(float));
        }
        const __m512 values = _mm512_i32gather_ps(_mm512_load_si512(codes), halftone::detail::signed_dynamic_values.of, 4);
        // With a rounding of their own, so that no compiler makes a fused multiply-add of the two.
        constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        const __m512 products = _mm512_mul_round_ps(values, _mm512_load_ps(nested), nearest);
        const __m512 scales = _mm512_add_round_ps(products, _mm512_set1_ps(offset_), nearest);
        alignas(64) float each[16];
        _mm512_store_ps(each, scales);
        const bool by_instruction = rounds_by_instruction(scales);
        const __m512 unscaled = _mm512_loadu_ps(halftone::detail::nf4_values);
        for (int r = 0; r < 16; ++r) {
            const f32 scaled{_mm512_mul_ps(unscaled, _mm512_set1_ps(each[r]))};
            values_[r] = narrow_pair(scaled, scaled, by_instruction);
        }
    }
    const std::byte* at(extent row, extent first) const {
        return data_ + nf4::codes_position(total_) + (row * width_ + first) / 2;
    }
    extent row_bytes() const { return width_ / 2; }
    /// 32 elements of row r of the sixteen, as bfloat16.
    __m512i elements(int r, const std::byte* codes) const {
        const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
        return _mm512_permutexvar_epi16(_mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16)), values_[r]);
    }

  private:
    const std::byte* data_;
    std::size_t total_;
    extent width_;
    float offset_;
    __m512i values_[16];  ///< of each row's block the sixteen values twice, since a look-up takes five bits
};

/// Sixteen rows of q8_0.
class q8_0_rows {
  public:
    static constexpr extent block = q8_0::block;

    explicit q8_0_rows(const halftone::detail::coded_source& from) : data_(from.data), width_(from.width) {}
    void begin_block(extent row, extent first) {
        for (int r = 0; r < 16; ++r) scales_[r] = q8_0::scale_of(at(row + r, first) - 2);
        by_instruction_ = rounds_by_instruction(_mm512_loadu_ps(scales_));
    }
    const std::byte* at(extent row, extent first) const {
        return data_ + q8_0::bytes(static_cast<std::size_t>(row * width_ + first)) + 2;
    }
    extent row_bytes() const { return static_cast<extent>(q8_0::bytes(static_cast<std::size_t>(width_))); }
    __m512i elements(int r, const std::byte* quants) const {
        return narrow_pair(q8_0_values(quants, scales_[r]), q8_0_values(quants + 16, scales_[r]), by_instruction_);
    }

  private:
    const std::byte* data_;
    extent width_;
    float scales_[16];
    bool by_instruction_ = false;
};

/// sums (Rows, 16) += a (Rows, 32) times 32 of k of the sixteen rows of codes, each in a lane.
template <int Rows, class Codes>
HALFTONE_INLINE void multiply_coded_square(const float* const* a, extent p, const Codes& codes, const std::byte* from,
                                           f32* sums) {
    f32 square[16];  // (columns, k / 2), transposed to (k / 2, columns)
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) square[r].v = _mm512_castsi512_ps(codes.elements(r, from + r * codes.row_bytes()));
    transpose(square);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
        const __m512i pair = _mm512_castps_si512(square[r].v);
        multiply_row<Rows>(a, p + 2 * r, f32{_mm512_castsi512_ps(_mm512_slli_epi32(pair, 16))}, sums);
        multiply_row<Rows>(a, p + 2 * r + 1, f32{_mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32(-0x10000)))}, sums);
    }
}

template <int Rows, class Codes>
void coded_small_m_by_columns(const halftone::detail::coded_small_m_product& product) {
    constexpr extent lookahead = 512;  // in k; what is beyond it is of the next columns
    const float* a[Rows];
    for (int i = 0; i < Rows; ++i) a[i] = product.a + product.row_for(i) * product.a_stride;
    Codes codes(product.from);
    for (extent j = 0; j < product.columns; j += 16) {
        const auto to = [&](int i) { return product.c + product.row_for(i) * product.c_stride + j; };
        f32 sums[Rows];
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) sums[i] = load(to(i));
        for (extent p = 0; p < product.k; p += 32) {
            const extent first = product.first + p, row = product.row + j;
            if (p == 0 || first % Codes::block == 0) codes.begin_block(row, first);
            const std::byte* const from = codes.at(row, first);
            if (first % 64 == 0) {
                const bool is_in_row = first + lookahead < product.from.width;
                const std::byte* const ahead =
                    codes.at(is_in_row ? row : row + product.columns, first + lookahead - (is_in_row ? 0 : product.from.width));
                for (int r = 0; r < 16; ++r) __builtin_prefetch(ahead + r * codes.row_bytes());
            }
            multiply_coded_square<Rows>(a, p, codes, from, sums);
        }
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) store(to(i), sums[i]);
    }
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
