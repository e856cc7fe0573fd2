// SPDX-License-Identifier: MIT
/// \file
/// Iterating over a row in vectors. A step is called as step(j, k, n): on n lanes from element j on, with accumulator k
/// of four. The last vector of a row may be partial: n is then an int, otherwise `whole`, so that a step is written
/// once.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/exec/cpu/stream.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

struct whole {};

template <class T>
HALFTONE_INLINE f32 load(const T* p, whole) {
    return load(p);
}
template <class T>
HALFTONE_INLINE void store(T* p, f32 v, whole) {
    store(p, v);
}

/// N whole vectors.
template <int N>
struct whole_vectors {};
template <int N, class T>
HALFTONE_INLINE vector_block<N> load(const T* p, whole_vectors<N>) {
    return each_part<N>([&](int i) __attribute__((always_inline)) { return load(p + i * f32::lanes); });
}
template <int N, class T>
HALFTONE_INLINE void store(T* p, const vector_block<N>& v, whole_vectors<N>) {
    store_or_stream(p, v, false);
}

/// N whole vectors whose elements may be in another order than in memory, the same for all operands of one type, where
/// that makes loads and stores cheaper.
template <int N>
struct reordered_vectors : whole_vectors<N> {};
template <int N, class T>
HALFTONE_INLINE vector_block<N> load(const T* p, reordered_vectors<N>) {
    static_assert(N % 2 == 0);
    vector_block<N> r;
#pragma GCC unroll 4
    for (int i = 0; i < N; i += 2) load_reordered(p + i * f32::lanes, r.v[i], r.v[i + 1]);
    return r;
}
template <int N, class T>
HALFTONE_INLINE void store_or_stream(T* p, const vector_block<N>& v, reordered_vectors<N>, bool non_temporal) {
    store_reordered<N>(p, v.v, non_temporal);
}
/// Whether the operands' types are given, and all the same.
template <class... T>
inline constexpr bool all_same_type = false;
template <class T, class... Others>
inline constexpr bool all_same_type<T, Others...> = (std::is_same_v<T, Others> && ...);

// Non-temporal stores if `non_temporal` is true and vectors are whole.
template <int N, class T>
HALFTONE_INLINE void store_or_stream(T* p, const vector_block<N>& v, whole_vectors<N>, bool non_temporal) {
    store_or_stream(p, v, non_temporal);
}
template <class T>
HALFTONE_INLINE void store_or_stream(T* p, f32 v, whole, bool non_temporal) {
    store_or_stream(p, v, non_temporal);
}
template <class T>
HALFTONE_INLINE void store_or_stream(T* p, f32 v, int n, bool) {
    store(p, v, n);
}

/// How many elements before a pass reads them for the first time they may be prefetched: early enough to have arrived,
/// and late enough not to be evicted again.
inline constexpr extent prefetch_distance = 512;

/// Prefetches elements that will be read later. Only for whole vectors: the last elements of a row rarely begin a cache
/// line.
template <int N, class T>
HALFTONE_INLINE void prefetch_vectors(const T* p, whole_vectors<N>) {
    constexpr int bytes = N * f32::lanes * static_cast<int>(sizeof(T));
#pragma GCC unroll 8
    for (int i = 0; i < bytes; i += 64) prefetch(reinterpret_cast<const std::byte*>(p) + i, 64);
}
template <class T>
HALFTONE_INLINE void prefetch_vectors(const T*, whole) {}
template <class T>
HALFTONE_INLINE void prefetch_vectors(const T*, int) {}

/// v in the first n lanes, `other` in the remaining ones.
template <int N>
HALFTONE_INLINE vector_block<N> keep(const vector_block<N>& v, whole_vectors<N>, f32) {
    return v;
}
HALFTONE_INLINE f32 keep(f32 v, whole, f32) { return v; }
HALFTONE_INLINE f32 keep(f32 v, int n, f32 other) {
    return select(less(load(halftone::detail::lane_numbers), splat(static_cast<float>(n))), v, other);
}

template <class Step>
HALFTONE_INLINE void for_vectors(extent width, const Step& step) {
    extent j = 0;
    for (; j + f32::lanes <= width; j += f32::lanes) step(j, 0, whole{});
    if (j < width) step(j, 0, static_cast<int>(width - j));
}

/// Calls step(j, k, n) for the vectors of a row with four accumulators in turn, which hides the latency of an addition
/// and shortens the chains.
template <class Step>
HALFTONE_INLINE void for_vectors_unrolled(extent width, const Step& step) {
    extent j = 0;
    for (; j + 4 * f32::lanes <= width; j += 4 * f32::lanes) {
        step(j, 0, whole{});
        step(j + f32::lanes, 1, whole{});
        step(j + 2 * f32::lanes, 2, whole{});
        step(j + 3 * f32::lanes, 3, whole{});
    }
    for (; j + f32::lanes <= width; j += f32::lanes) step(j, 0, whole{});
    if (j < width) step(j, 1, static_cast<int>(width - j));
}

/// Goes through a row with four vectors at a time, side by side: a step is called as step(j, n), with n
/// `whole_vectors<4>`, `whole` or the number of lanes. If the types of all operands (except a kernel's own floats) are
/// given as template arguments and are one type, n is `reordered_vectors<4>` in place of `whole_vectors<4>`.
template <class... Operands, class Step>
HALFTONE_INLINE void for_vector_blocks(extent width, const Step& step) {
    extent j = 0;
    using whole_block = std::conditional_t<all_same_type<Operands...>, reordered_vectors<4>, whole_vectors<4>>;
    for (; j + 4 * f32::lanes <= width; j += 4 * f32::lanes) step(j, whole_block{});
    for (; j + f32::lanes <= width; j += f32::lanes) step(j, whole{});
    if (j < width) step(j, static_cast<int>(width - j));
}

using four_vectors = vector_block<4>;

HALFTONE_INLINE four_vectors broadcast_four(float x) { return {{splat(x), splat(x), splat(x), splat(x)}}; }

// Into four accumulators: the four vectors of a block each into its own, the vectors after the last block into the
// first, the last partial one into the second.
HALFTONE_INLINE void add(four_vectors& sums, const four_vectors& v, whole_vectors<4>) { sums = sums + v; }
HALFTONE_INLINE void add(four_vectors& sums, f32 v, whole) { sums.v[0] = sums.v[0] + v; }
HALFTONE_INLINE void add(four_vectors& sums, f32 v, int) { sums.v[1] = sums.v[1] + v; }
HALFTONE_INLINE void add_product(four_vectors& sums, const four_vectors& a, const four_vectors& b, whole_vectors<4>) {
    sums = fma(a, b, sums);
}
HALFTONE_INLINE void add_product(four_vectors& sums, f32 a, f32 b, whole) { sums.v[0] = fma(a, b, sums.v[0]); }
HALFTONE_INLINE void add_product(four_vectors& sums, f32 a, f32 b, int) { sums.v[1] = fma(a, b, sums.v[1]); }
// NaNs in v are ignored.
HALFTONE_INLINE void accumulate_maximum(four_vectors& largest, const four_vectors& v, whole_vectors<4>) {
    largest = max(v, largest);
}
HALFTONE_INLINE void accumulate_maximum(four_vectors& largest, f32 v, whole) { largest.v[0] = max(v, largest.v[0]); }
HALFTONE_INLINE void accumulate_maximum(four_vectors& largest, f32 v, int) { largest.v[1] = max(v, largest.v[1]); }

HALFTONE_INLINE float sum(const four_vectors& a) { return sum((a.v[0] + a.v[1]) + (a.v[2] + a.v[3])); }
/// A float sum that is 2^24 times its terms does not grow any more. So a row is summed in segments, each with its own
/// accumulators; almost all rows have only one segment.
inline constexpr extent segment_elements = extent{1} << 20;

/// The sum of some(first, count) over all segments of a row.
template <class Some>
HALFTONE_INLINE float sum_of_segments(extent width, const Some& some) {
    float total = 0.0f;
    extent first = 0;
    do {
        const extent left = width - first, count = left < segment_elements ? left : segment_elements;
        total += some(first, count);
        first += count;
    } while (first < width);
    return total;
}

HALFTONE_INLINE float maximum(const four_vectors& a) { return maximum(max(max(a.v[0], a.v[1]), max(a.v[2], a.v[3]))); }

template <class T>
HALFTONE_INLINE void fill(T* p, extent width, float x) {
    const auto step = [&](extent j, int, auto n) __attribute__((always_inline)) { store(p + j, splat(x), n); };
    for_vectors(width, step);
}

/// The largest of a row's numbers times `scale`, several vectors at a time; NaNs propagate or are ignored.
template <class X>
struct largest_of_row {
    float scale;
    four_vectors found = broadcast_four(-__builtin_inff());

    HALFTONE_INLINE explicit largest_of_row(float by) : scale(by) {}
    template <class N>
    HALFTONE_INLINE void take(const X* x, N n) {
        accumulate_maximum(found, keep(load(x, n) * scale, n, splat(-__builtin_inff())), n);
    }
    HALFTONE_INLINE float value() const { return maximum(found); }
};
/// 16-bit floating-point numbers are compared as integers, two vectors of them in two instructions: positive ones are
/// ordered as signed integers; negative ones, which are in reverse order, as unsigned ones, all of which are larger.
template <class X>
    requires(std::is_same_v<X, bfloat16> || std::is_same_v<X, float16>)
struct largest_of_row<X> {
    static constexpr std::int16_t sign = -0x8000, minus_infinity = std::is_same_v<X, bfloat16> ? -0x80 : -0x400;

    float scale;
    halves flipped, above[2], below[2];
    f32 rest = splat(-__builtin_inff());

    HALFTONE_INLINE explicit largest_of_row(float by) : scale(by) {
        const std::int16_t flip = by < 0 ? sign : 0;
        flipped = halves{} + flip;
        above[0] = above[1] = halves{} + sign;
        below[0] = below[1] = halves{} + minus_infinity;
    }
    template <class N>
    HALFTONE_INLINE void take(const X* x, N n) {
        if constexpr (std::is_base_of_v<whole_vectors<4>, N>) {
#pragma GCC unroll 2
            for (int i = 0; i < 2; ++i) {
                halves bits;
                std::memcpy(&bits, x + 2 * i * f32::lanes, sizeof bits);
                bits ^= flipped;
                above[i] = larger(above[i], bits);
                below[i] = smaller_unsigned(below[i], bits);
            }
        } else {
            rest = max(keep(load(x, n) * scale, n, splat(-__builtin_inff())), rest);
        }
    }
    HALFTONE_INLINE float value() const {
        const halves high = larger(above[0], above[1]), low = smaller_unsigned(below[0], below[1]);
        const halves negative = high >> 15, bits = (high & ~negative) | (low & negative);
        X numbers[2 * f32::lanes];
        std::memcpy(static_cast<void*>(numbers), &bits, sizeof bits);
        const f32 found = max(load(numbers), load(numbers + f32::lanes)) * splat(scale < 0 ? -scale : scale);
        return maximum(max(found, rest));
    }
};

template <class X>
HALFTONE_INLINE float row_maximum(const X* x, extent width, float scale) {
    largest_of_row<X> largest(scale);
    for_vector_blocks(
        width, [&](extent j, auto n) __attribute__((always_inline)) { largest.take(x + j, n); });
    return largest.value();
}

/// out[j] = (or +=) the sum of partials[piece * stride + j], in the order of the pieces.
template <class G>
void add_partials(extent pieces, const float* partials, extent stride, extent width, G* out, write_mode mode) {
    const auto add = [&](extent j, int, auto n) __attribute__((always_inline)) {
        f32 total = splat(0.0f);
        for (extent piece = 0; piece < pieces; ++piece) total = total + load(partials + piece * stride + j, n);
        if (mode == write_mode::add) total = load(out + j, n) + total;
        store(out + j, total, n);
    };
    for_vectors(width, add);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
