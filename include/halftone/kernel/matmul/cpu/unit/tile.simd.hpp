// SPDX-License-Identifier: MIT
/// \file
/// Products on matrix tiles: 32 x 32 sums in four tiles, two tiles of a's rows, two of b's columns. Written on `tile_block`,
/// which is AMX's tile registers in one namespace and plain memory in another, so that the body is tested on any machine.
///
///                    b (32 k, 32 columns)
///                    [b0 b1]
///     a (32 rows,    +-----+
///        32 k)  [a0] |c0 c1|  16 x 16 sums each; four products a step of 32 k, of four tile loads
///               [a1] |c2 c3|
///                    +-----+
// A body without a guard (exec/cpu/each_set.hpp): for AMX tiles, and in tests for tiles in memory.

#include <cstddef>

#include <halftone/exec/cpu/simd/tile_software.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// c (rows, 32) = or += a (rows, k) times one panel of b (k / 2, 32, 2). a and c have room for a multiple of 32 rows.
inline void tile_multiply(extent rows, extent k, const void* a_block, const void* b_panel, float* c, extent c_stride,
                          bool add, lookahead* ahead) {
    const auto* a = static_cast<const bfloat16*>(a_block);
    const auto* b = static_cast<const bfloat16*>(b_panel);
    for (extent i = 0; i < rows; i += 32) {
        tile_block sums;
        if (add) {
            sums.load(c + i * c_stride, c_stride);
        } else {
            sums.zero();
        }
        for (extent p = 0; p < k; p += 32) {
            for (extent prefetched = 0; prefetched < 32 && ahead != nullptr; prefetched += lookahead_depth) ahead->prefetch();
            sums.multiply<tile_reuse::both>(a + i * panel_stride + p, panel_stride, b + p * 32);
        }
        sums.store(c + i * c_stride, c_stride);
    }
}

/// sums (32, 32) += a (32, k) times a panel of b (k / 2, 32, 2): one piece of k.
template <tile_reuse Reuse>
HALFTONE_INLINE void add_products(tile_block& sums, extent k, const bfloat16* a, extent a_stride, const bfloat16* b,
                                  lookahead* ahead) {
    for (extent p = 0; p < k; p += 32) {
        if (ahead != nullptr) ahead->prefetch();
        sums.multiply<Reuse>(a + p, a_stride, b + p * 32);
    }
}
/// to (32, 32) = from + 32 rows of a times a panel of b over pieces of k (multiply_pieces). The first l1_resident_depth of the
/// panel stays in L1 for the next rows, whose a is loaded so that it does not displace it.
inline void tile_multiply_pieces(extent k, const deep_operands& operands, const float* from, extent from_stride,
                                  float* to, extent to_stride, lookahead* ahead) {
    const auto* a = static_cast<const std::byte*>(operands.a);
    const auto* b = static_cast<const std::byte*>(operands.b);
    tile_block sums;
    if (from != nullptr) {
        sums.load(from, from_stride);
    } else {
        sums.zero();
    }
    for (extent p = 0; p < k; p += panel_depth, a += operands.a_step_bytes, b += operands.b_step_bytes) {
        const auto* const rows = reinterpret_cast<const bfloat16*>(a);
        const auto* const panel = reinterpret_cast<const bfloat16*>(b);
        const extent depth = k - p < panel_depth ? k - p : panel_depth;
        if (p < l1_resident_depth) {
            add_products<tile_reuse::columns>(sums, depth, rows, operands.a_stride, panel, ahead);
        } else {
            add_products<tile_reuse::neither>(sums, depth, rows, operands.a_stride, panel, ahead);
        }
        if (p + panel_depth < k) sums.stay_ready_to_store();
    }
    sums.store(to, to_stride);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
