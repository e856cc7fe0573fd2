// SPDX-License-Identifier: MIT
/// \file
/// Vectors of words taken from several places of memory, for each instruction set: by two loads and a permutation on AVX-512,
/// else one by one.
#pragma once

#include <cstdint>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/conv2d/implicit/planes.hpp>

#define HALFTONE_BODY <halftone/kernel/conv2d/implicit/pick.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
#if HALFTONE_PORTABLE
namespace portable {
using even_picker = even_one_by_one;
using word_picker = word_by_word;
using tap_picker = lane_by_lane;
}  // namespace portable
#endif
#if HALFTONE_AVX2
namespace avx2 {
using even_picker = even_one_by_one;
using word_picker = word_by_word;
using tap_picker = lane_by_lane;
}  // namespace avx2
#endif
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if HALFTONE_AVX512
#include <halftone/exec/cpu/set/avx512.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512 {

/// The first of each two of n pairs, of which the last may have only one.
struct even_picker {
    static HALFTONE_INLINE f32 take(const float* from, int n) {
        const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const int elements = 2 * n - 1;
        const __m512 first = elements < 16 ? _mm512_maskz_loadu_ps(first_lanes(elements), from) : _mm512_loadu_ps(from),
                     second = _mm512_maskz_loadu_ps(first_lanes(elements < 16 ? 0 : elements - 16), from + 16);
        return {_mm512_permutex2var_ps(first, order, second)};
    }
};
/// The words of a column_vector. Reads two vectors from its base on.
class word_picker {
  public:
    HALFTONE_INLINE explicit word_picker(const kernel::implicit_cpu::column_vector& v)
        : of_(&v), order_(_mm512_loadu_si512(v.at)) {}
    HALFTONE_INLINE bool is_adjacent() const { return of_->is == kernel::implicit_cpu::column_vector::form::adjacent; }
    HALFTONE_INLINE f32 take(const float* from) const {
        from += of_->base;
        if (of_->is == kernel::implicit_cpu::column_vector::form::far) return {_mm512_i32gather_ps(order_, from, 4)};
        return {_mm512_permutex2var_ps(_mm512_loadu_ps(from), order_, _mm512_loadu_ps(from + 16))};
    }

  private:
    const kernel::implicit_cpu::column_vector* of_;
    __m512i order_;
};

/// The lanes of a vector in another order.
class tap_picker {
  public:
    HALFTONE_INLINE tap_picker(const std::int32_t* number, extent taps)
        : order_(_mm512_maskz_loadu_epi32(first_lanes(static_cast<int>(taps)), number)) {}
    HALFTONE_INLINE f32 take(f32 all) const { return {_mm512_permutexvar_ps(order_, all.v)}; }

  private:
    __m512i order_;
};

}  // namespace avx512
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
