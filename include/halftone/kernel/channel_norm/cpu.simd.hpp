// SPDX-License-Identifier: MIT
/// \file
/// Blocks of floats of one segment: the normalisation, the sums for the gradients, and the gradients themselves.
/// Conversions from and to other element types are part of axis_reduction.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/channel_norm/each/tables.hpp>
#include <halftone/kernel/common/rows/walk.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// to = (x - mean) scale + shift.
inline void apply_line(const float* x, extent count, const kernel::channel_each::segment_line<float>& with, float* to) {
    const f32 mean = splat(with.mean), scale = splat(with.scale), shift = splat(with.shift);
    for_vectors(
        count, [&](extent j, int, auto n)
                   __attribute__((always_inline)) { store(to + j, fma(load(x + j, n) - mean, scale, shift), n); });
}
/// The sums of dy and of dy (x - mean), of at most axis_block elements.
inline kernel::channel_each::segment_sums<float> sum_slopes(const float* x, const float* dy, extent count, float mean) {
    const f32 average = splat(mean);
    four_vectors of_dy = broadcast_four(0.0f), of_dy_x = broadcast_four(0.0f);
    for_vectors_unrolled(
        count, [&](extent j, int k, auto n) __attribute__((always_inline)) {
            const f32 d = load(dy + j, n);  // 0 after the last element
            of_dy.v[k] = of_dy.v[k] + d;
            of_dy_x.v[k] = fma(d, keep(load(x + j, n) - average, n, splat(0.0f)), of_dy_x.v[k]);
        });
    return {sum(of_dy), sum(of_dy_x)};
}
/// to = by_dy dy + by_x (x - mean) + rest.
inline void apply_slope(const float* x, const float* dy, extent count,
                        const kernel::channel_each::segment_slope<float>& with, float* to) {
    const f32 mean = splat(with.mean), by_dy = splat(with.by_dy), by_x = splat(with.by_x), rest = splat(with.rest);
    for_vectors(
        count, [&](extent j, int, auto n) __attribute__((always_inline)) {
            store(to + j, fma(load(dy + j, n), by_dy, fma(load(x + j, n) - mean, by_x, rest)), n);
        });
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
