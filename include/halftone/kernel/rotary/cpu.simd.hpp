// SPDX-License-Identifier: MIT
/// \file
/// Rotates the heads of a token by the angles of its position.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/rows/walk.hpp>
#include <halftone/kernel/rotary/cpu/token.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// y = (or +=) x, `count` elements.
template <class T>
HALFTONE_INLINE void copy_numbers(extent count, const T* x, T* y, write_mode mode) {
    if (count == 0 || (x == y && mode == write_mode::overwrite)) return;
    for_vectors(count, [&](extent j, int, auto n) __attribute__((always_inline)) {
        f32 v = load(x + j, n);
        if (mode == write_mode::add) v = load(y + j, n) + v;
        store(y + j, v, n);
    });
}

/// Rotates pairs (i, i + pairs): of two vectors, one holds the first elements of the pairs, the other the second ones.
template <class T>
HALFTONE_INLINE void turn_halves(const kernel::rotary_token& a, const T* x, const float* cosines, T* y) {
    const extent pairs = a.pairs;
    const float* const sines = cosines + pairs;
    for_vectors(pairs, [&](extent j, int, auto n) __attribute__((always_inline)) {
        const f32 c = load(cosines + j, n), s = load(sines + j, n) * splat(a.sign);
        const f32 p = load(x + j, n), q = load(x + pairs + j, n);
        f32 first = fma(p, c, -(q * s)), second = fma(q, c, p * s);
        if (a.mode == write_mode::add) {
            first = load(y + j, n) + first;
            second = load(y + pairs + j, n) + second;
        }
        store_or_stream(y + j, first, n, a.non_temporal);
        store_or_stream(y + pairs + j, second, n, a.non_temporal);
    });
}

HALFTONE_INLINE f32 load_twice(const float* p, whole) { return load_twice(p); }
/// -x, x, -x, x, ...
HALFTONE_INLINE f32 alternating(float x) {
    float lanes[f32::lanes];
    for (int i = 0; i < f32::lanes; ++i) lanes[i] = i % 2 == 0 ? -x : x;
    return load(lanes);
}

/// Rotates pairs (2 i, 2 i + 1): p c - q s and q c + p s, so that each lane is multiplied by the cosine and its neighbour by the
/// sine.
template <class T>
HALFTONE_INLINE void turn_neighbours(const kernel::rotary_token& a, const T* x, const float* cosines, T* y) {
    const float* const sines = cosines + a.pairs;
    const f32 signs = alternating(a.sign);
    for_vectors(2 * a.pairs, [&](extent j, int, auto n) __attribute__((always_inline)) {
        const f32 v = load(x + j, n), s = load_twice(sines + j / 2, n) * signs;
        f32 turned = fma(v, load_twice(cosines + j / 2, n), swap_neighbours(v) * s);
        if (a.mode == write_mode::add) turned = load(y + j, n) + turned;
        store_or_stream(y + j, turned, n, a.non_temporal);
    });
}

/// Rotates the heads of one token of x into y. cosines: the cosines of its position, followed by the sines.
template <class T>
void turn_token(const kernel::rotary_token& a, const T* x, const float* cosines, T* y) {
    for (extent h = 0; h < a.heads; ++h, x += a.x_stride, y += a.y_stride) {
        if (h >= a.turned) {
            copy_numbers(a.head_size, x, y, a.mode);
            continue;
        }
        if (a.layout == rotary_layout::half_split) {
            turn_halves(a, x, cosines, y);
        } else {
            turn_neighbours(a, x, cosines, y);
        }
        copy_numbers(a.head_size - 2 * a.pairs, x + 2 * a.pairs, y + 2 * a.pairs, a.mode);
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
