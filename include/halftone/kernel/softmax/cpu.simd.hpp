// SPDX-License-Identifier: MIT
/// \file
/// Softmax of some rows. A pass over a row prefetches the next row, whose maximum the last pass computes. If
/// `non_temporal` is true, results are written with non-temporal stores.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <type_traits>

#include <halftone/kernel/common/rows/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// R rows at a time, as for_row_groups calls it.
template <int R, class X, class Y>
HALFTONE_INLINE void softmax_rows_of(extent rows, extent width, bool distinct, const X* x, float scale, Y* y,
                                     float* exponentials, bool non_temporal) {
    const extent stride = distinct ? width : 0;
    const bool are_in_y = std::is_same_v<Y, float> && !non_temporal;
    const extent lag = pipeline_lag<R>(width);
    const float sign = scale < 0.0f ? -1.0f : 1.0f;
    const auto floats_of = [&](extent i) __attribute__((always_inline)) {
        float* const row = are_in_y ? reinterpret_cast<float*>(y + i * width) : exponentials + i % (R + lag) * width;
        return rows_from<R>(row, stride);
    };
    row_numbers<R> maxima, inverses;
    for (extent i = 0; i < rows && i <= 2 * lag; i += R) {
        largest_of<R, X> largest(sign);
        const auto from = rows_from<R>(x + i * width, stride);
        for_vectors_of_rows<R>(width, [&](extent j, auto n) __attribute__((always_inline)) { largest.take(from + j, n); });
        maxima.put(i, largest.numbers());
    }
    const auto exponentiate = [&](extent i) __attribute__((always_inline)) {
        const auto from = rows_from<R>(x + i * width, stride);
        const auto to = floats_of(i);
        const auto subtracted = maxima[i] * sign;
        const auto exponentials_of = [&](extent first, extent count) __attribute__((always_inline)) {
            const auto some = from + first;
            const auto some_to = to + first;
            four_vectors sums = broadcast_four(0.0f);
            for_vectors_of_rows<R, X, Y>(count, [&](extent j, auto n) __attribute__((always_inline)) {
                prefetch_ahead(some, (1 + 2 * lag) * width, j, n);
                const auto e = exp_below_zero_for<Y>((load(some + j, n) - subtracted) * scale);
                store(some_to + j, e, n);
                add(sums, keep(e, n, splat(0.0f)), n);
            });
            return sum_of<R>(sums);
        };
        if constexpr (R == 1) {
            inverses.put(i, 1.0f / sum_of_segments(width, exponentials_of));
        } else {
            inverses.put(i, 1.0f / exponentials_of(0, width));
        }
    };
    const auto finish = [&](extent i) __attribute__((always_inline)) {
        const auto from = floats_of(i);
        const auto inverse = inverses[i];
        const auto to = rows_from<R>(y + i * width, stride);
        // y may be x, so memory after the last row is not prefetched.
        const extent sought = i + R + 2 * lag;
        const bool is_there = sought < rows;
        const auto next = rows_from<R>(x + (is_there ? sought : i) * width, stride);
        largest_of<R, X> largest(sign);
        for_vectors_of_rows<R, X, Y>(width, [&](extent j, auto n) __attribute__((always_inline)) {
            if (is_there) largest.take(next + j, n);
            store_or_stream(to + j, load(from + j, n) * inverse, n, non_temporal);
        });
        maxima.put(sought, largest.numbers());
    };
    for_rows_pipelined<R>(rows, lag, exponentiate, finish);
    if (non_temporal) end_non_temporal();
}
/// `exponentials` has room for held_rows(width) rows of `width` floats; if y is float, y itself holds them.
template <class X, class Y>
void softmax_rows(extent rows, extent width, const X* x, float scale, Y* y, float* exponentials, bool non_temporal) {
    if (!side_by_side(width)) return softmax_rows_of<1>(rows, width, true, x, scale, y, exponentials, non_temporal);
    for_row_groups(rows, [&](extent i, extent count, bool distinct) __attribute__((always_inline)) {
        softmax_rows_of<4>(count, width, distinct, x + i * width, scale, y + i * width, exponentials, non_temporal);
    });
}

/// dx = scale y (dy - sum(dy y)).
template <class X, class Y>
void softmax_backward_rows(extent rows, extent width, const Y* y, const Y* dy, float scale, X* dx, write_mode mode,
                           bool non_temporal) {
    const extent lag = non_temporal ? 0 : pipeline_lag<1>(width);
    row_numbers<1> dots;
    const auto multiply = [&](extent i) __attribute__((always_inline)) {
        dots.put(i, sum_of_segments(width, [&](extent first, extent count) __attribute__((always_inline)) {
            const Y *const y_row = y + i * width + first, *const dy_row = dy + i * width + first;
            four_vectors products = broadcast_four(0.0f);
            for_vector_blocks<X, Y>(count, [&](extent j, auto n) __attribute__((always_inline)) {
                add_product(products, load(dy_row + j, n), load(y_row + j, n), n);
            });
            return sum(products);
        }));
    };
    const auto finish = [&](extent i) __attribute__((always_inline)) {
        const f32 dot = dots[i];
        const Y *const y_row = y + i * width, *const dy_row = dy + i * width;
        X* const to = dx + i * width;
        for_vector_blocks<X, Y>(width, [&](extent j, auto n) __attribute__((always_inline)) {
            prefetch_vectors(y_row + (1 + 2 * lag) * width + j, n);
            prefetch_vectors(dy_row + (1 + 2 * lag) * width + j, n);
            auto v = load(y_row + j, n) * scale * (load(dy_row + j, n) - dot);
            if (mode == write_mode::add) v = load(to + j, n) + v;
            store_or_stream(to + j, v, n, non_temporal);
        });
    };
    for_rows_pipelined<1>(rows, lag, multiply, finish);
    if (non_temporal) end_non_temporal();
}

template <class X, class Y>
void log_softmax_rows(extent rows, extent width, const X* x, float scale, Y* y, float*, bool non_temporal) {
    const float sign = scale < 0.0f ? -1.0f : 1.0f;
    for (extent i = 0; i < rows; ++i, x += width, y += width) {
        const f32 subtracted = splat(row_maximum(x, width, sign) * sign);
        const auto exponentials_of = [&](extent first, extent count) __attribute__((always_inline)) {
            const X* const some = x + first;
            four_vectors sums = broadcast_four(0.0f);
            for_vector_blocks<X, Y>(count, [&](extent j, auto n) __attribute__((always_inline)) {
                add(sums, keep(exp_below_zero((load(some + j, n) - subtracted) * scale), n, splat(0.0f)), n);
            });
            return sum(sums);
        };
        const f32 normaliser = log(splat(sum_of_segments(width, exponentials_of)));
        for_vector_blocks<X, Y>(width, [&](extent j, auto n) __attribute__((always_inline)) {
            prefetch_vectors(x + width + j, n);
            store_or_stream(y + j, (load(x + j, n) - subtracted) * scale - normaliser, n, non_temporal);
        });
    }
    if (non_temporal) end_non_temporal();
}

/// dx = scale (dy - exp(y) sum(dy)).
template <class X, class Y>
void log_softmax_backward_rows(extent rows, extent width, const Y* y, const Y* dy, float scale, X* dx, write_mode mode,
                               bool non_temporal) {
    for (extent i = 0; i < rows; ++i, y += width, dy += width, dx += width) {
        const auto sum_of_dy = [&](extent first, extent count) __attribute__((always_inline)) {
            const Y* const some = dy + first;
            four_vectors sums = broadcast_four(0.0f);
            for_vector_blocks<X, Y>(
                count, [&](extent j, auto n) __attribute__((always_inline)) { add(sums, load(some + j, n), n); });
            return sum(sums);
        };
        const f32 total = splat(sum_of_segments(width, sum_of_dy));
        for_vector_blocks<X, Y>(width, [&](extent j, auto n) __attribute__((always_inline)) {
            prefetch_vectors(y + width + j, n);
            prefetch_vectors(dy + width + j, n);
            auto v = (load(dy + j, n) - exp(load(y + j, n)) * total) * scale;
            if (mode == write_mode::add) v = load(dx + j, n) + v;
            store_or_stream(dx + j, v, n, non_temporal);
        });
    }
    if (non_temporal) end_non_temporal();
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
