// SPDX-License-Identifier: MIT
/// \file
/// One chunk: the largest magnitude, and whether all values are finite.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/count_nonfinite/count_nonfinite.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class T>
void chunk_magnitude(extent count, const T* x, detail::chunk_magnitude& found) {
    four_vectors largest = broadcast_four(0.0f);
    mask nonfinite = less(splat(1.0f), splat(0.0f));
    for_vectors_unrolled(count, [&](extent j, int k, auto n) __attribute__((always_inline)) {
        const f32 v = load(x + j, n);
        nonfinite = either(nonfinite, not_finite(v));
        largest.v[k] = max(abs(v), largest.v[k]);
    });
    found = {maximum(largest), any(nonfinite) ? 1 : 0};
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
