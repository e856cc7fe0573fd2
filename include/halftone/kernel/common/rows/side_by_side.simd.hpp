// SPDX-License-Identifier: MIT
/// \file
/// Rows side by side. A body is written for R rows at once, 1 or 4. Lots go along one row. Of four rows they are a vector of
/// each: what a short row costs besides its own vectors is paid once for four, and their sums are folded together.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <type_traits>

#include <halftone/kernel/common/rows/walk.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Short rows go four at a time, all of them, so that a row has the same bits whichever rows are with it; longer ones have
/// enough to do with themselves.
constexpr bool side_by_side(extent width) { return width <= f32::lanes * f32::lanes; }

/// some(first, count, distinct): groups of four rows, `count` rows in all, from `first` on; the last ones go each in place of
/// four that are not distinct.
template <class Some>
HALFTONE_INLINE void for_row_groups(extent rows, const Some& some) {
    const extent whole = rows - rows % 4;
    for (extent i = 0; i < rows; i = i < whole ? whole : i + 1) some(i, i < whole ? whole : 4, i < whole);
}

/// The same column of four rows that begin `stride` apart.
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
/// Asks for what is `ahead` of column j of a row, or for as much of what is ahead of four, in the order in which it lies.
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

/// for_vector_blocks, or a vector of each of four rows at a time.
template <int R, class... Operands, class Step>
HALFTONE_INLINE void for_vectors_of_rows(extent width, const Step& step) {
    if constexpr (R == 1) {
        for_vector_blocks<Operands...>(width, step);
    } else {
        for_vectors(width, [&](extent j, int, auto n) __attribute__((always_inline)) { step(j, n); });
    }
}

/// The sum of one row, or a vector with a quarter for each of four.
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

/// largest_of_row, of R rows.
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

/// How many rows later rows are finished, so that nothing waits for a sum or a maximum of the last ones.
template <int R>
constexpr extent pipeline_lag(extent width) {
    return R == 4 ? 4 : width <= 2048 ? 1 : 0;
}

/// begin(i) of every R-th row i, and finish(i) so many rows later.
template <int R, class Begin, class Finish>
HALFTONE_INLINE void for_rows_pipelined(extent rows, extent lag, const Begin& begin, const Finish& finish) {
    for (extent i = -lag; i < rows; i += R) {
        if (i + lag < rows) begin(i + lag);
        if (i >= 0) finish(i);
    }
}

/// A number of each of the last rows: put as sum_of gives them, read each in all lanes, or as they are held.
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
