// SPDX-License-Identifier: MIT
/// \file
/// Products on AMX tiles (tile.simd.hpp), and stores of their sums as results.
#pragma once

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/exec/cpu/simd/tile_amx.hpp>
#include <halftone/exec/cpu/simd/tile_software.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/tensor/shape.hpp>

#if HALFTONE_AMX
// The body in the region, not in the order of the alphabet.
// clang-format off
#include <halftone/exec/cpu/set/amx.hpp>
#include <halftone/kernel/matmul/cpu/unit/tile.simd.hpp>
#include <halftone/exec/cpu/set/end.hpp>
// clang-format on

#include <halftone/exec/cpu/set/avx512_bf16.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512_bf16 {

/// to = sums (rows, 32), by non-temporal stores where the rows of `to` are whole cache lines.
inline void store_rows(extent rows, const float* sums, extent sums_stride, float* to, extent to_stride, bool non_temporal) {
    for (extent i = 0; i < rows; ++i, sums += sums_stride, to += to_stride) {
        const __m512 low = _mm512_loadu_ps(sums), high = _mm512_loadu_ps(sums + 16);
        if (non_temporal) {
            _mm512_stream_ps(to, low);
            _mm512_stream_ps(to + 16, high);
        } else {
            _mm512_storeu_ps(to, low);
            _mm512_storeu_ps(to + 16, high);
        }
    }
}
/// to = sums (rows, 32), rounded as store_sums (bf16.hpp) rounds, by non-temporal stores where the rows of `to` are
/// whole cache lines.
inline void store_rows(extent rows, const float* sums, extent sums_stride, bfloat16* to, extent to_stride, bool non_temporal) {
    for (extent i = 0; i < rows; ++i, sums += sums_stride, to += to_stride) {
        const auto both = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(sums + 16), _mm512_loadu_ps(sums));
        if (non_temporal) {
            _mm512_stream_si512(reinterpret_cast<__m512i*>(to), both);
        } else {
            _mm512_storeu_si512(to, both);
        }
    }
}

}  // namespace avx512_bf16
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
