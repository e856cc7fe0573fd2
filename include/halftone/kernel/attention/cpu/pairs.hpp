// SPDX-License-Identifier: MIT
/// \file
/// The operand format of products that multiply pairs of bfloat16 (kernel/matmul/cpu/unit/bf16.hpp), for attention's
/// tiles.
#pragma once

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/matmul/cpu/unit/bf16_packing.hpp>
#include <halftone/tensor/shape.hpp>

#if HALFTONE_AVX512_BF16
#include <halftone/exec/cpu/set/avx512_bf16.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512_bf16 {

struct pair_operands {
    using element = bfloat16;

    static HALFTONE_INLINE __m512i round(const avx512::f32* x) { return (__m512i)_mm512_cvtne2ps_pbh(x[1].v, x[0].v); }

    /// Stores two vectors of one row of an a block.
    static HALFTONE_INLINE void store_row(bfloat16* to, const avx512::f32* x) { _mm512_storeu_si512(to, round(x)); }
    /// Stores rows k and k + 1, for even k, of a panel of b: (k / 2, bf16_columns, 2).
    static HALFTONE_INLINE void store_rows(bfloat16* panel, extent k, const avx512::f32* x, const avx512::f32* y) {
        // 16-bit lane 2i takes element i of x; lane 2i + 1 takes that of y, whose lanes the permutation numbers from 32
        // on.
        const __m512i first = _mm512_add_epi32(
            _mm512_set1_epi32(0x00200000),
            _mm512_mullo_epi32(_mm512_set1_epi32(0x00010001),
                               _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
        const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(0x00100010));
        const __m512i even = round(x), odd = round(y);
        bfloat16* const to = panel + k * bf16_columns;
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, first, odd));
        _mm512_storeu_si512(to + bf16_columns, _mm512_permutex2var_epi16(even, second, odd));
    }
    /// Whether one of the elements is an infinity or a NaN.
    static HALFTONE_INLINE bool any_not_finite(const bfloat16* x, extent count) {
        const __m512i exponent = _mm512_set1_epi16(0x7f80);
        __mmask32 found = 0;
        for (extent i = 0; i < count; i += 32) {
            const __mmask32 there = count - i < 32 ? (__mmask32{1} << (count - i)) - 1 : ~__mmask32{0};
            const __m512i bits = _mm512_and_si512(_mm512_maskz_loadu_epi16(there, x + i), exponent);
            found |= _mm512_cmpeq_epi16_mask(bits, exponent);
        }
        return found != 0;
    }
};

}  // namespace avx512_bf16
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
