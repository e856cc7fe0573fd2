// SPDX-License-Identifier: MIT
/// \file
/// One piece of a tensor: its largest magnitude, and its quantised values.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/rows/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Infinity if a number is not finite.
template <class X>
float largest_magnitude(extent count, const X* x) {
    four_vectors largest = broadcast_four(0.0f);
    mask nonfinite = less(splat(1.0f), splat(0.0f));
    for_vectors_unrolled(count, [&](extent j, int k, auto n) __attribute__((always_inline)) {
        const f32 v = load(x + j, n);
        nonfinite = either(nonfinite, not_finite(v));
        largest.v[k] = max(abs(v), largest.v[k]);
    });
    return any(nonfinite) ? __builtin_inff() : maximum(largest);
}

/// y = scale x, and the largest magnitude of x.
template <class X, class Y>
float quantize_piece(extent count, const X* x, float by, Y* y) {
    const f32 scale = splat(by), most = splat(static_cast<float>(number_traits<Y>::max)), least = -most;
    four_vectors largest = broadcast_four(0.0f);
    mask nonfinite = less(splat(1.0f), splat(0.0f));
    for_vectors_unrolled(count, [&](extent j, int k, auto n) __attribute__((always_inline)) {
        const f32 v = load(x + j, n);
        const mask is_nonfinite = not_finite(v);
        nonfinite = either(nonfinite, is_nonfinite);
        largest.v[k] = max(abs(v), largest.v[k]);
        store(y + j, select(is_nonfinite, v, min(max(v * scale, least), most)), n);
    });
    return any(nonfinite) ? __builtin_inff() : maximum(largest);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
