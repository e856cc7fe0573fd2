// SPDX-License-Identifier: MIT
/// \file
/// Tiles with the interface of exec/cpu/simd/tile_amx.hpp, multiplied by VDPBF16PS, to test products of pieces with a
/// processor's arithmetic.
#pragma once

#include <halftone/kernel/matmul/cpu/unit/split.hpp>

#if defined(__x86_64__)
#include <halftone/exec/cpu/set/avx512_bf16.hpp>
#undef HALFTONE_SET
#define HALFTONE_SET pair_tiles
namespace halftone {
inline namespace HALFTONE_ABI {
namespace pair_tiles {

using namespace detail;

struct tile_block {
    float sums[32][32];
    const bfloat16 *rows, *columns;
    extent rows_stride;

    void zero() { std::memset(sums, 0, sizeof sums); }
    void store(float* c, extent stride) const {
        for (int i = 0; i < 32; ++i) std::memcpy(c + i * stride, sums[i], sizeof sums[i]);
    }
    void load_rows(const bfloat16* a, extent stride) { rows = a, rows_stride = stride; }
    void load_columns(const bfloat16* b) { columns = b; }
    void multiply() {
        for (int i = 0; i < 32; ++i) {
            __m512 low = _mm512_loadu_ps(sums[i]), high = _mm512_loadu_ps(sums[i] + 16);
            for (int p = 0; p < 32; p += 2) {
                std::int32_t pair;
                std::memcpy(&pair, rows + i * rows_stride + p, sizeof pair);
                const auto a = (__m512bh)_mm512_set1_epi32(pair);
                low = _mm512_dpbf16_ps(low, a, (__m512bh)_mm512_loadu_si512(columns + p * 32));
                high = _mm512_dpbf16_ps(high, a, (__m512bh)_mm512_loadu_si512(columns + p * 32 + 32));
            }
            _mm512_storeu_ps(sums[i], low);
            _mm512_storeu_ps(sums[i] + 16, high);
        }
    }
};

}  // namespace pair_tiles
}  // namespace HALFTONE_ABI
}  // namespace halftone
// The body must be included inside of the region, whatever the alphabetical order.
// clang-format off
#include <halftone/kernel/matmul/cpu/unit/split_tile.simd.hpp>
#include <halftone/exec/cpu/set/end.hpp>
// clang-format on

namespace support::pair_tiles {

using namespace halftone;
using namespace halftone::detail;

template <int Pieces>
product_unit split_unit() {
    return {.rows = 32,
            .columns = 32,
            .k_step = 32,
            .element = 2 * Pieces,
            .multiply = &halftone::pair_tiles::split_tile_multiply<Pieces>,
            .tiles = product_unit::tile_functions{.multiply = &halftone::pair_tiles::split_tile_multiply_pieces<Pieces>}};
}

}  // namespace support::pair_tiles
#endif
