// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation and root mean square normalisation of some rows, in one text; `Centred` says which. Centred rows
/// (layer norm) have a mean, which is subtracted, and a bias, which is added; the others (RMS norm) have neither.
///
/// The last pass over a row prefetches another. While a centred row is being finished, another row is read for the
/// first time, for its mean, and the memory after that is prefetched, so that memory is never idle; the pass that sums
/// squares is too short to wait for prefetches of its own. Short rows are pipelined: each pass works on a row that is
/// some rows behind that of the pass before, so that no pass waits for a sum of the one before it. If `non_temporal` is
/// true, results are written with non-temporal stores.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/norm/care/cpu.hpp>
#include <halftone/kernel/norm/norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// The number of row `row` of four, as row_numbers holds them.
HALFTONE_INLINE float number_of(f32 numbers, int row) {
    f32 each[4];
    spread_quarters(numbers, each);
    return first_lane(each[row]);
}
/// Whether none of R rows needs care, by the margins of their variances (care/limits.hpp).
HALFTONE_INLINE bool all_within_limits(float left) { return kernel::row_limits<float>::is_within_limits(left); }
HALFTONE_INLINE bool all_within_limits(f32 left) {
    return !any(either(less(left, splat(0.0f)), not_finite(left)));
}
/// Whether none of many groups of rows needs care, decided after all are done.
struct within_limits_so_far {
    f32 least, sum;  // of the margins; the sum is scaled so that finite numbers do not overflow it

    HALFTONE_INLINE within_limits_so_far() : least(splat(0.0f)), sum(splat(0.0f)) {}
    HALFTONE_INLINE void take(f32 left) {
        least = min(left, least);
        sum = fma(left, 0x1p-100f, sum);
    }
    HALFTONE_INLINE bool value() const { return !any(either(less(least, splat(0.0f)), not_finite(sum))); }
};
/// Buffers for rows that are normalised with care, until all four rows of their group are written: y may be x.
template <class Y>
struct kept_rows {
    Y rows[4][f32::lanes * f32::lanes];  // the widest rows of side_by_side
    kernel::careful_row of[4];
    bool are_kept[4];

    /// Calls take(row, to) for each row that needs care.
    template <class Take>
    HALFTONE_INLINE void take_from(f32 left, bool distinct, const Take& take) {
        for (int r = 0; r < 4; ++r) {
            are_kept[r] = (distinct || r == 0) && !all_within_limits(splat(number_of(left, r)));
            if (are_kept[r]) of[r] = take(r, rows[r]);
        }
    }
    /// Calls put(row, from, statistics) for each row in the buffers.
    template <class Put>
    HALFTONE_INLINE void give(const Put& put) const {
        for (int r = 0; r < 4; ++r) {
            if (are_kept[r]) put(r, rows[r], of[r]);
        }
    }
};

/// for_row_groups for rows of which few need care: some(first, count, distinct, checks) returns whether none did; if
/// rows were written unchecked and one needed care, it is called again with checks. If y is x, rows are checked at
/// once.
template <class X, class Y, class Some>
HALFTONE_INLINE void for_row_groups_within_limits(extent rows, const X* x, const Y* y, const Some& some) {
    const bool in_place = static_cast<const void*>(x) == static_cast<const void*>(y);
    for_row_groups(rows, [&](extent i, extent count, bool distinct) __attribute__((always_inline)) {
        if (in_place || !some(i, count, distinct, std::false_type{})) some(i, count, distinct, std::true_type{});
    });
}
/// Stores R numbers one after the other; for four rows that are not `distinct`, only the first.
HALFTONE_INLINE void put_numbers(float* p, bool, f32 v) { *p = first_lane(v); }
HALFTONE_INLINE void put_numbers(float* p, bool distinct, const four_vectors& v) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) p[distinct ? i : 0] = first_lane(v.v[i]);
}

/// In place of the means of rows that are not centred: nothing is subtracted. Not a friend that is defined in the struct,
/// for which g++ forgets the instruction set: without optimisation it would return vectors in another way than its callers
/// expect.
struct no_mean {};
template <class V>
HALFTONE_INLINE V operator-(const V& v, no_mean) {
    return v;
}
struct no_means {
    template <class V>
    HALFTONE_INLINE void put(extent, const V&) {}
    HALFTONE_INLINE no_mean operator[](extent) const { return {}; }
};
template <bool Centred, int R>
using row_means = std::conditional_t<Centred, row_numbers<R>, no_means>;

/// Normalises R rows at a time, as for_row_groups_within_limits calls it. Rows that need care (care/limits.hpp) are
/// finished separately if they are checked; single rows always are.
template <bool Centred, int R, bool Checks, class X, class W, class Y>
HALFTONE_INLINE bool norm_rows_of(extent rows, extent width, bool distinct, kernel::strided_rows<const X> x,
                                  const W* gain, const W* bias, float epsilon, kernel::strided_rows<Y> y, float* mean,
                                  float* rstd, bool non_temporal) {
    const extent x_stride = distinct ? x.stride : 0, y_stride = distinct ? y.stride : 0;
    const float count = static_cast<float>(width);
    const extent lag = pipeline_lag<R>(width);
    // The distance from the row being finished to the row being read for the first time; prefetches go as far again.
    const extent rows_ahead = Centred ? R + 2 * lag : 1 + 2 * lag;
    const kernel::row_limits<float> limits(kernel::sum_depth(width), epsilon);
    row_means<Centred, R> averages;
    row_numbers<R> scales, lefts;
    [[maybe_unused]] within_limits_so_far within_limits;
    [[maybe_unused]] const auto average_of = [&](extent i) __attribute__((always_inline)) {
        four_vectors sums = broadcast_four(0.0f);
        const auto row = rows_from<R>(x[i], x_stride);
        for_vectors_of_rows<R, X>(
            width, [&](extent j, auto n) __attribute__((always_inline)) { add(sums, load(row + j, n), n); });
        averages.put(i, sum_of<R>(sums) / count);
    };
    const auto scale_of = [&](extent i) __attribute__((always_inline)) {
        const auto average = averages[i];
        const auto row = rows_from<R>(x[i], x_stride);
        four_vectors squares = broadcast_four(0.0f);
        for_vectors_of_rows<R, X>(width, [&](extent j, auto n) __attribute__((always_inline)) {
            auto deviation = load(row + j, n) - average;
            if constexpr (Centred) deviation = keep(deviation, n, splat(0.0f));
            add_product(squares, deviation, deviation, n);
        });
        const auto variance = sum_of<R>(squares) / count;
        auto left = variance - limits.least;
        if constexpr (Centred) left = left - averages.at(i) * averages.at(i) * limits.ratio;
        if constexpr (Checks) lefts.put(i, left);
        else within_limits.take(left);
        scales.put(i, rsqrt_of(variance + epsilon));
    };
    const auto with_care = [=](extent i, Y* to) __attribute__((always_inline)) {
        return kernel::norm_with_care<Centred>(x[i], width, gain, bias, static_cast<double>(epsilon), to);
    };
    const auto put_statistics = [=](extent i, const kernel::careful_row& of) __attribute__((always_inline)) {
        if (Centred && mean != nullptr) mean[i] = static_cast<float>(of.average);
        if (rstd != nullptr) rstd[i] = static_cast<float>(of.scale);
    };
    const auto finish = [&](extent i) __attribute__((always_inline)) {
        [[maybe_unused]] const auto read = rows_from<R>(x[i + rows_ahead < rows ? i + rows_ahead : i], x_stride);
        const bool is_within_limits = !Checks || all_within_limits(lefts.at(i));
        [[maybe_unused]] four_vectors sums = broadcast_four(0.0f);
        if constexpr (R == 1) {
            if (!is_within_limits) {
                if constexpr (Centred) {
                    for_vectors_of_rows<R>(width,
                                 [&](extent j, auto n) __attribute__((always_inline)) { add(sums, load(read + j, n), n); });
                    averages.put(i + rows_ahead, sum_of<R>(sums) / count);
                }
                return put_statistics(i, with_care(i, y[i]));
            }
        }
        [[maybe_unused]] std::conditional_t<R == 4 && Checks, kept_rows<Y>, whole> kept;
        if constexpr (R == 4 && Checks) {
            const auto take = [&](int r, Y* to) __attribute__((always_inline)) { return with_care(i + r, to); };
            if (!is_within_limits) kept.take_from(lefts.at(i), distinct, take);
        }
        const auto average = averages[i];
        const auto scale = scales[i];
        const auto row = rows_from<R>(x[i], x_stride);
        const auto to = rows_from<R>(y[i], y_stride);
        const extent further = !Centred ? 0 : R == 1 ? prefetch_distance : width;
        for_vectors_of_rows<R>(width, [&](extent j, auto n) __attribute__((always_inline)) {
            prefetch_ahead(row, rows_ahead * x.stride + further, j, n);
            if constexpr (Centred) add(sums, load(read + j, n), n);
            auto v = (load(row + j, n) - average) * scale * load(gain + j, n);
            if constexpr (Centred) {
                if (bias != nullptr) v = v + load(bias + j, n);
            }
            store_or_stream(to + j, v, n, non_temporal);
        });
        if constexpr (Centred) {
            averages.put(i + rows_ahead, sum_of<R>(sums) / count);
            if (mean != nullptr) put_numbers(mean + i, distinct, average);
        }
        if (rstd != nullptr) put_numbers(rstd + i, distinct, scale);
        if constexpr (R == 4 && Checks) {
            if (!is_within_limits) {
                if (non_temporal) end_non_temporal();
                kept.give([&](int r, const Y* from, const kernel::careful_row& of) __attribute__((always_inline)) {
                    std::copy_n(from, width, y[i + r]);
                    put_statistics(i + r, of);
                });
            }
        }
    };
    if constexpr (Centred) {
        for (extent i = 0; i < rows && i < rows_ahead; i += R) average_of(i);
    }
    for_rows_pipelined<R>(rows, lag, scale_of, finish);
    if (non_temporal) end_non_temporal();
    return Checks || within_limits.value();
}
template <bool Centred, class X, class W, class Y>
void norm_rows(extent rows, extent width, kernel::strided_rows<const X> x, const W* gain, const W* bias, float epsilon,
               kernel::strided_rows<Y> y, float* mean, float* rstd, bool non_temporal) {
    if (!side_by_side(width)) {
        norm_rows_of<Centred, 1, true>(rows, width, true, x, gain, bias, epsilon, y, mean, rstd, non_temporal);
        return;
    }
    for_row_groups_within_limits(
        rows, x.p, y.p, [&](extent i, extent count, bool distinct, auto checks) __attribute__((always_inline)) {
            return norm_rows_of<Centred, 4, checks.value>(count, width, distinct, x.from(i), gain, bias, epsilon,
                                                          y.from(i), mean == nullptr ? nullptr : mean + i,
                                                          rstd == nullptr ? nullptr : rstd + i, non_temporal);
        });
}

/// (x - mean) rstd; in halves if differences may overflow float.
template <bool Centred, bool Halves>
struct standard_row {
    std::conditional_t<Centred, f32, no_mean> average{};
    f32 scale;

    HALFTONE_INLINE standard_row(const float* mean, const float* rstd, extent i)
        : scale(splat(Halves ? 2 * rstd[i] : rstd[i])) {
        if constexpr (Centred) average = splat(Halves ? 0.5f * mean[i] : mean[i]);
    }
    template <class V>
    HALFTONE_INLINE V operator()(const V& v) const {
        return ((Halves ? v * 0.5f : v) - average) * scale;
    }
};

/// Overwrites dgain and dbias, the sums over these rows, if wanted. With n the normalised x and h = dy gain,
/// dx = rstd (h - mean(h) - n mean(h n)), without mean(h) if rows are not centred.
template <bool Centred, bool Halves, class X, class W, class Y>
void norm_backward_rows_of(extent rows, extent width, kernel::strided_rows<const X> x, const W* gain,
                           kernel::strided_rows<const Y> dy, const float* mean, const float* rstd, kernel::strided_rows<X> dx,
                           write_mode mode, float* dgain, float* dbias, bool non_temporal) {
    const float count = static_cast<float>(width);
    const extent lag = non_temporal ? 0 : pipeline_lag<1>(width);
    row_means<Centred, 1> means_h;
    row_numbers<1> means_hn;
    if (dgain != nullptr) fill(dgain, width, 0.0f);
    if (Centred && dbias != nullptr) fill(dbias, width, 0.0f);
    const auto take_means = [&](extent i) __attribute__((always_inline)) {
        const X* const row = x[i];
        const Y* const dy_row = dy[i];
        [[maybe_unused]] four_vectors sums = broadcast_four(0.0f);
        four_vectors products = broadcast_four(0.0f);
        const standard_row<Centred, Halves> standard(mean, rstd, i);
        for_vector_blocks(width, [&](extent j, auto m) __attribute__((always_inline)) {
            const auto d = load(dy_row + j, m);
            auto n = standard(load(row + j, m));
            // Beyond the row's end h is 0, but n, 0 minus a large mean, may be infinite.
            if constexpr (Centred) n = keep(n, m, splat(0.0f));
            const auto h = d * load(gain + j, m);
            if constexpr (Centred) add(sums, h, m);
            add_product(products, h, n, m);
            if (dgain != nullptr) store(dgain + j, fma(d, n, load(dgain + j, m)), m);
            if (Centred && dbias != nullptr) store(dbias + j, d + load(dbias + j, m), m);
        });
        if constexpr (Centred) means_h.put(i, sum_of<1>(sums) / count);
        means_hn.put(i, sum_of<1>(products) / count);
    };
    const auto finish = [&](extent i) __attribute__((always_inline)) {
        const X* const row = x[i];
        const Y* const dy_row = dy[i];
        X* const to = dx[i];
        const extent x_distance = (1 + 2 * lag) * x.stride, dy_distance = (1 + 2 * lag) * dy.stride;
        const auto mean_h = means_h[i];
        const f32 mean_hn = means_hn[i], scale = splat(rstd[i]);
        const standard_row<Centred, Halves> standard(mean, rstd, i);
        for_vector_blocks(width, [&](extent j, auto m) __attribute__((always_inline)) {
            prefetch_vectors(row + x_distance + j, m);
            prefetch_vectors(dy_row + dy_distance + j, m);
            const auto n = standard(load(row + j, m));
            // dy gain is not given a name: with one, g++ contracts another product of the RMS norm's difference, which
            // changes bits.
            auto v = scale * (load(dy_row + j, m) * load(gain + j, m) - mean_h - n * mean_hn);
            if (mode == write_mode::add) v = load(to + j, m) + v;
            store_or_stream(to + j, v, m, non_temporal);
        });
    };
    for_rows_pipelined<1>(rows, lag, take_means, finish);
    if (non_temporal) end_non_temporal();
}
template <bool Centred, class X, class W, class Y>
void norm_backward_rows(extent rows, extent width, kernel::strided_rows<const X> x, const W* gain,
                        kernel::strided_rows<const Y> dy, const float* mean, const float* rstd, kernel::strided_rows<X> dx,
                        write_mode mode, float* dgain, float* dbias, bool non_temporal) {
    bool halves = false;
    if constexpr (Centred) {
        float least = kernel::least_rstd;
        for (extent i = 0; i < rows; ++i) least = rstd[i] < least ? rstd[i] : least;
        halves = least < kernel::least_rstd;
    }
    const auto body = halves ? &norm_backward_rows_of<Centred, Centred, X, W, Y>  // in halves only if rows are centred
                             : &norm_backward_rows_of<Centred, false, X, W, Y>;
    body(rows, width, x, gain, dy, mean, rstd, dx, mode, dgain, dbias, non_temporal);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
