// SPDX-License-Identifier: MIT
/// \file
/// The rows of floats that all windows of a row share: the largest value so far, or the sum, of each column.
/// Conversions from and to other element types are part of axis_reduction.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/common/rows/walk.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Where x is larger than `largest`, or is NaN: replaces it, and writes the number of the row.
inline void pool_largest_rows(const float* x, extent width, float row, float* largest, float* rows) {
    for_vectors(
        width, [&](extent j, int, auto n) __attribute__((always_inline)) {
            const f32 v = load(x + j, n), old = load(largest + j, n);
            const mask is_taken = either(less(old, v), complement(equal(v, v)));
            store(largest + j, select(is_taken, v, old), n);
            store(rows + j, select(is_taken, splat(row), load(rows + j, n)), n);
        });
}
/// sums += x.
inline void pool_add_row(const float* x, extent width, float* sums) {
    for_vectors(
        width, [&](extent j, int, auto n)
                   __attribute__((always_inline)) { store(sums + j, load(sums + j, n) + load(x + j, n), n); });
}
/// sums += x / (counts * count).
inline void pool_add_quotients(const float* x, const float* counts, float count, extent width, float* sums) {
    for_vectors(
        width, [&](extent j, int, auto n) __attribute__((always_inline)) {
            const f32 divisor = load(counts + j, n) * splat(count);
            // Lanes after the row's end have quotients 0 / 0, which are not stored.
            store(sums + j, load(sums + j, n) + load(x + j, n) / divisor, n);
        });
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
