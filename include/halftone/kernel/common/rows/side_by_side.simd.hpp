// SPDX-License-Identifier: MIT
/// \file
/// Several rows side by side. A body is written for R rows at a time, 1 or 4. For one row, a vector block is N vectors
/// of that row; for four, it is one vector of each: the fixed cost of a short row is then paid once for four rows, and
/// their sums are reduced together.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <type_traits>

#include <halftone/kernel/common/rows/walk.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Whether rows are processed four at a time: all short rows are, so that a row's bits do not depend on the other
/// rows; longer rows have enough independent work on their own.
constexpr bool side_by_side(extent width) { return width <= f32::lanes * f32::lanes; }

/// Calls some(first, count, distinct) for groups of four rows, from `first` on, `count` rows in all; each of the last
/// rows, fewer than four, is processed as a group of four copies, which are not distinct.
template <class Some>
HALFTONE_INLINE void for_row_groups(extent rows, const Some& some) {
    const extent whole = rows - rows % 4;
    for (extent i = 0; i < rows; i = i < whole ? whole : i + 1) some(i, i < whole ? whole : 4, i < whole);
}

/// Four rows that are `stride` apart, whose vectors in the same columns are loaded and stored together.
template <class T>
struct four_rows {
    T* p;
    extent stride;

    HALFTONE_INLINE four_rows operator+(extent j) const { return {p + j, stride}; }
};
template <int R, class T>
HALFTONE_INLINE auto rows_from(T* p, extent stride) {
    if constexpr (R == 1) {
        return p;
    } else {
        return four_rows<T>{p, stride};
    }
}
template <class T, class N>
HALFTONE_INLINE four_vectors load(const four_rows<T>& rows, N n) {
    return each_part<4>([&](int i) __attribute__((always_inline)) { return load(rows.p + i * rows.stride, n); });
}
template <class T, class N>
HALFTONE_INLINE void store(const four_rows<T>& rows, const four_vectors& v, N n) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store(rows.p + i * rows.stride, v.v[i], n);
}
template <class T>
HALFTONE_INLINE void store_or_stream(const four_rows<T>& rows, const four_vectors& v, whole, bool non_temporal) {
    store_rows(rows.p, rows.stride, v.v, non_temporal);
}
template <class T>
HALFTONE_INLINE void store_or_stream(const four_rows<T>& rows, const four_vectors& v, int n, bool) {
    store(rows, v, n);
}
/// Prefetches the memory `ahead` elements after column j of a row; for four rows, the same amount in memory order.
template <class T, class N>
HALFTONE_INLINE void prefetch_ahead(const T* row, extent distance, extent j, N n) {
    prefetch_vectors(row + distance + j, n);
}
template <class T>
HALFTONE_INLINE void prefetch_ahead(const four_rows<T>& rows, extent distance, extent j, whole) {
    prefetch_vectors(static_cast<const T*>(rows.p) + distance + 4 * j, whole_vectors<4>{});
}
template <class T>
HALFTONE_INLINE void prefetch_ahead(const four_rows<T>&, extent, extent, int) {}

HALFTONE_INLINE four_vectors keep(const four_vectors& v, whole, f32) { return v; }
HALFTONE_INLINE four_vectors keep(const four_vectors& v, int n, f32 other) {
    return each_part<4>([&](int i) __attribute__((always_inline)) { return keep(v.v[i], n, other); });
}
template <class N>
HALFTONE_INLINE void add(four_vectors& sums, const four_vectors& v, N) {
    sums = sums + v;
}
template <class N>
HALFTONE_INLINE void add_product(four_vectors& sums, const four_vectors& a, const four_vectors& b, N) {
    sums = fma(a, b, sums);
}

/// for_vector_blocks for one row; for four rows, one vector of each at a time.
template <int R, class... Operands, class Step>
HALFTONE_INLINE void for_vectors_of_rows(extent width, const Step& step) {
    if constexpr (R == 1) {
        for_vector_blocks<Operands...>(width, step);
    } else {
        for_vectors(width, [&](extent j, int, auto n) __attribute__((always_inline)) { step(j, n); });
    }
}

/// The sum of one row, or a vector with the sum of each of four rows in a quarter of its lanes.
template <int R>
HALFTONE_INLINE auto sum_of(const four_vectors& a) {
    if constexpr (R == 1) {
        return sum(a);
    } else {
        return fold_four(a.v, [](f32 x, f32 y) __attribute__((always_inline)) { return x + y; });
    }
}
HALFTONE_INLINE f32 rsqrt_of(float x) { return 1.0f / sqrt(splat(x)); }
HALFTONE_INLINE f32 rsqrt_of(f32 x) { return 1.0f / sqrt(x); }

/// largest_of_row for R rows.
template <int R, class X>
struct largest_of : largest_of_row<X> {
    HALFTONE_INLINE explicit largest_of(float by) : largest_of_row<X>(by) {}
    HALFTONE_INLINE float numbers() const { return this->value(); }
};
template <class X>
struct largest_of<4, X> {
    float scale;
    four_vectors found = broadcast_four(-__builtin_inff());

    HALFTONE_INLINE explicit largest_of(float by) : scale(by) {}
    template <class N>
    HALFTONE_INLINE void take(const four_rows<const X>& x, N n) {
        found = max(keep(load(x, n) * scale, n, splat(-__builtin_inff())), found);
    }
    HALFTONE_INLINE f32 numbers() const {
        return fold_four(found.v, [](f32 x, f32 y) __attribute__((always_inline)) { return max(x, y); });
    }
};

/// The pipeline lag: how many rows later a row is finished, so that nothing waits for the sum or maximum of the latest
/// rows.
template <int R>
constexpr extent pipeline_lag(extent width) {
    return R == 4 ? 4 : width <= 2048 ? 1 : 0;
}

/// Calls begin(i) for every R-th row i, and finish(i) that many rows later.
template <int R, class Begin, class Finish>
HALFTONE_INLINE void for_rows_pipelined(extent rows, extent lag, const Begin& begin, const Finish& finish) {
    for (extent i = -lag; i < rows; i += R) {
        if (i + lag < rows) begin(i + lag);
        if (i >= 0) finish(i);
    }
}

/// A number for each of the rows in flight: stored as sum_of returns it, read in all lanes or as stored.
template <int R>
struct row_numbers {
    static constexpr extent size = 4;
    static_assert(R + 2 * pipeline_lag<R>(0) < size * R);
    using number = std::conditional_t<R == 1, float, f32>;
    number numbers[size];

    HALFTONE_INLINE number& at(extent row) { return numbers[row / R % size]; }
    HALFTONE_INLINE void put(extent row, number v) { at(row) = v; }
    HALFTONE_INLINE void put(extent row, f32 v)
        requires(R == 1)
    {
        at(row) = first_lane(v);
    }
    HALFTONE_INLINE auto operator[](extent row) {
        if constexpr (R == 1) {
            return splat(at(row));
        } else {
            four_vectors each;
            spread_quarters(at(row), each.v);
            return each;
        }
    }
};

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
