// SPDX-License-Identifier: MIT
/// \file
/// Column sums of some rows, as floats.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/rows/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Overwrites `sums`. Eight rows are added as a tree before they are added to the sums: fewer passes over the sums, and
/// shorter chains of dependent additions.
template <class X>
void column_sum_rows(extent rows, extent width, const X* x, extent stride, float* sums) {
    fill(sums, width, 0.0f);
    const auto add_eight = [&](extent j, int, auto n) __attribute__((always_inline)) {
        const X* const p = x + j;
        const f32 a = load(p, n) + load(p + stride, n), b = load(p + 2 * stride, n) + load(p + 3 * stride, n);
        const f32 c = load(p + 4 * stride, n) + load(p + 5 * stride, n);
        const f32 d = load(p + 6 * stride, n) + load(p + 7 * stride, n);
        store(sums + j, load(sums + j, n) + ((a + b) + (c + d)), n);
    };
    const auto add_one = [&](extent j, int, auto n) __attribute__((always_inline)) {
        store(sums + j, load(sums + j, n) + load(x + j, n), n);
    };
    extent i = 0;
    for (; i + 8 <= rows; i += 8, x += 8 * stride) for_vectors(width, add_eight);
    for (; i < rows; ++i, x += stride) for_vectors(width, add_one);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
