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
HALFTONE_INLINE void turn_halves(extent pairs, const T* x, const float* cosines, float sign, T* y, write_mode mode) {
    const float* const sines = cosines + pairs;
    for_vectors(pairs, [&](extent j, int, auto n) __attribute__((always_inline)) {
        const f32 c = load(cosines + j, n), s = load(sines + j, n) * splat(sign);
        const f32 p = load(x + j, n), q = load(x + pairs + j, n);
        f32 first = fma(p, c, -(q * s)), second = fma(q, c, p * s);
        if (mode == write_mode::add) {
            first = load(y + j, n) + first;
            second = load(y + pairs + j, n) + second;
        }
        store(y + j, first, n);
        store(y + pairs + j, second, n);
    });
}

/// Rotates pairs (2 i, 2 i + 1), which are deinterleaved and interleaved in a buffer on the stack.
template <class T>
HALFTONE_INLINE void turn_neighbours(extent pairs, const T* x, const float* cosines, float sign, T* y, write_mode mode) {
    constexpr extent some = 2 * f32::lanes;  // pairs at a time
    const float* const sines = cosines + pairs;
    for (extent begin = 0; begin < pairs; begin += some) {
        const extent count = pairs - begin < some ? pairs - begin : some;
        float in[2 * some], out[2 * some];
        for_vectors(2 * count, [&](extent j, int, auto n) __attribute__((always_inline)) {
            store(in + j, load(x + 2 * begin + j, n), n);
        });
        for (extent i = 0; i < count; ++i) {
            const float c = cosines[begin + i], s = sines[begin + i] * sign;
            out[2 * i] = in[2 * i] * c - in[2 * i + 1] * s;
            out[2 * i + 1] = in[2 * i + 1] * c + in[2 * i] * s;
        }
        for_vectors(2 * count, [&](extent j, int, auto n) __attribute__((always_inline)) {
            f32 v = load(out + j, n);
            if (mode == write_mode::add) v = load(y + 2 * begin + j, n) + v;
            store(y + 2 * begin + j, v, n);
        });
    }
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
            turn_halves(a.pairs, x, cosines, a.sign, y, a.mode);
        } else {
            turn_neighbours(a.pairs, x, cosines, a.sign, y, a.mode);
        }
        copy_numbers(a.head_size - 2 * a.pairs, x + 2 * a.pairs, y + 2 * a.pairs, a.mode);
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
