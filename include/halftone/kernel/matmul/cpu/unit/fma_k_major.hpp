// SPDX-License-Identifier: MIT
/// \file
/// k-major packing of a column-major a, as gradients of weights have, for multiply-adds on vectors of 16 floats: no transpose.
/// Zen 4: 0.4 cycles a float where a is in the caches, 1.1 from memory; with a transpose 0.5 and 2.4.
#pragma once

#include <halftone/kernel/matmul/cpu/unit/fma_packing.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>

#if HALFTONE_AVX512
#include <halftone/exec/cpu/set/avx512.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512 {

/// to (4, k_major_rows) = the first k_major_rows lanes of each of four vectors.
HALFTONE_INLINE void store_k_major(float* to, const f32 (&rows)[4]) {
    static_assert(k_major_rows == 12);
    const __m512i line[3] = {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19),
                             _mm512_setr_epi32(4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23),
                             _mm512_setr_epi32(8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27)};
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i)
        _mm512_storeu_ps(to + 16 * i, _mm512_permutex2var_ps(rows[i].v, line[i], rows[i + 1].v));
}

/// Packs a (rows, k) k-major (block_of_a). Four k are packed at a time, missing ones as zeros.
template <class Compute, class T>
void pack_a_k_major(const void* source, extent k_stride, extent rows, extent k, void* block, extent stride) {
    const auto* from = static_cast<const T*>(source);
    auto* to = static_cast<float*>(block);
    for (extent p = 0; p < k; p += 4, from += 4 * k_stride, to += 4 * k_major_rows) {
        for (extent i = 0; i < rows; i += k_major_rows) {
            f32 columns[4];  // (4 k, 16 rows)
#pragma GCC unroll 4
            for (int q = 0; q < 4; ++q)
                columns[q] = load_first_as<Compute>(from + q * k_stride + i, p + q < k ? rows - i : 0);
            store_k_major(to + i / k_major_rows * stride, columns);
        }
    }
}

}  // namespace avx512
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
