// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation of some rows. While a row is finished another one is read for the first time, and what follows there
/// asked for: so memory never rests. The other pass is over so soon that it would wait for what it asked for. Short rows
/// go through three passes some rows apart, so that no pass waits for a sum of the last one. What `past` names is written
/// past the caches.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <algorithm>
#include <type_traits>

#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/layer_norm/layer_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// R rows at a time, as for_usual_fours has them. Those that need care (rows/care.hpp) are finished by themselves where they
/// are checked; single rows always are.
template <int R, bool Checks, class X, class W, class Y>
HALFTONE_INLINE bool layer_norm_rows_of(extent rows, extent width, bool distinct, kernel::spaced_rows<const X> x, const W* gain,
                                        const W* bias, float epsilon, kernel::spaced_rows<Y> y, float* mean, float* rstd,
                                        bool past) {
    const extent x_stride = distinct ? x.stride : 0, y_stride = distinct ? y.stride : 0;
    const float count = static_cast<float>(width);
    const extent late = rows_late<R>(width), ahead = R + 2 * late;
    const kernel::row_limits<float> limits(kernel::sum_depth(width), epsilon);
    row_numbers<R> averages, scales, lefts;
    [[maybe_unused]] usual_so_far usual;
    const auto average_of = [&](extent i) __attribute__((always_inline)) {
        four sums = four_of(0.0f);
        const auto row = rows_from<R>(x[i], x_stride);
        for_parts<R, X>(width, [&](extent j, auto n) __attribute__((always_inline)) { add(sums, load(row + j, n), n); });
        averages.put(i, sum_of<R>(sums) / count);
    };
    const auto scale_of = [&](extent i) __attribute__((always_inline)) {
        const auto average = averages[i];
        const auto row = rows_from<R>(x[i], x_stride);
        four squares = four_of(0.0f);
        for_parts<R, X>(width, [&](extent j, auto n) __attribute__((always_inline)) {
            const auto deviation = keep(load(row + j, n) - average, n, splat(0.0f));
            add_product(squares, deviation, deviation, n);
        });
        const auto variance = sum_of<R>(squares) / count, held = averages.at(i);
        const auto left = (variance - limits.least) - held * held * limits.ratio;
        if constexpr (Checks) lefts.put(i, left);
        else usual.take(left);
        scales.put(i, rsqrt_of(variance + epsilon));
    };
    const auto with_care = [=](extent i, Y* to) __attribute__((always_inline)) {
        return kernel::layer_norm_with_care(x[i], width, gain, bias, static_cast<double>(epsilon), to);
    };
    const auto put_statistics = [=](extent i, const kernel::careful_row& of) __attribute__((always_inline)) {
        if (mean != nullptr) mean[i] = static_cast<float>(of.average);
        if (rstd != nullptr) rstd[i] = static_cast<float>(of.scale);
    };
    const auto finish = [&](extent i) __attribute__((always_inline)) {
        const auto read = rows_from<R>(x[i + ahead < rows ? i + ahead : i], x_stride);
        const bool is_usual = !Checks || all_usual(lefts.at(i));
        four sums = four_of(0.0f);
        if constexpr (R == 1) {
            if (!is_usual) {
                for_parts<R>(width, [&](extent j, auto n) __attribute__((always_inline)) { add(sums, load(read + j, n), n); });
                averages.put(i + ahead, sum_of<R>(sums) / count);
                return put_statistics(i, with_care(i, y[i]));
            }
        }
        [[maybe_unused]] std::conditional_t<R == 4 && Checks, kept_rows<Y>, whole> kept;
        if constexpr (R == 4 && Checks) {
            const auto take = [&](int r, Y* to) __attribute__((always_inline)) { return with_care(i + r, to); };
            if (!is_usual) kept.take_from(lefts.at(i), distinct, take);
        }
        const auto average = averages[i], scale = scales[i];
        const auto row = rows_from<R>(x[i], x_stride);
        const auto to = rows_from<R>(y[i], y_stride);
        for_parts<R>(width, [&](extent j, auto n) __attribute__((always_inline)) {
            ask_ahead(row, ahead * x.stride + (R == 1 ? asked_before : width), j, n);
            add(sums, load(read + j, n), n);
            auto v = (load(row + j, n) - average) * scale * load(gain + j, n);
            if (bias != nullptr) v = v + load(bias + j, n);
            store_or_stream(to + j, v, n, past);
        });
        averages.put(i + ahead, sum_of<R>(sums) / count);
        if (mean != nullptr) put_numbers(mean + i, distinct, average);
        if (rstd != nullptr) put_numbers(rstd + i, distinct, scale);
        if constexpr (R == 4 && Checks) {
            if (!is_usual) {
                if (past) end_streams();
                kept.give([&](int r, const Y* from, const kernel::careful_row& of) __attribute__((always_inline)) {
                    std::copy_n(from, width, y[i + r]);
                    put_statistics(i + r, of);
                });
            }
        }
    };
    for (extent i = 0; i < rows && i < ahead; i += R) average_of(i);
    for_rows<R>(rows, late, scale_of, finish);
    if (past) end_streams();
    return Checks || usual.value();
}
template <class X, class W, class Y>
void layer_norm_rows(extent rows, extent width, kernel::spaced_rows<const X> x, const W* gain, const W* bias, float epsilon,
                     kernel::spaced_rows<Y> y, float* mean, float* rstd, bool past) {
    if (!side_by_side(width)) {
        layer_norm_rows_of<1, true>(rows, width, true, x, gain, bias, epsilon, y, mean, rstd, past);
        return;
    }
    for_usual_fours(rows, x.p, y.p, [&](extent i, extent count, bool distinct, auto checks) __attribute__((always_inline)) {
        return layer_norm_rows_of<4, checks.value>(count, width, distinct, x.from(i), gain, bias, epsilon, y.from(i),
                                                   mean == nullptr ? nullptr : mean + i,
                                                   rstd == nullptr ? nullptr : rstd + i, past);
    });
}

/// What a row's numbers are less its mean, over its deviation. By halves where their differences may leave float's range.
template <bool Halves>
struct standard_row {
    f32 average, scale;

    HALFTONE_INLINE standard_row(float mean, float rstd)
        : average(splat(Halves ? 0.5f * mean : mean)), scale(splat(Halves ? 2 * rstd : rstd)) {}
    template <class V>
    HALFTONE_INLINE V operator()(const V& v) const {
        return ((Halves ? v * 0.5f : v) - average) * scale;
    }
};

/// Overwrites dgain and dbias, sums of these rows, where they are wanted. With n the normalised x and h = dy gain,
/// dx = rstd (h - mean(h) - n mean(h n)).
template <bool Halves, class X, class W, class Y>
void layer_norm_backward_rows_of(extent rows, extent width, kernel::spaced_rows<const X> x, const W* gain,
                                 kernel::spaced_rows<const Y> dy, const float* mean, const float* rstd,
                                 kernel::spaced_rows<X> dx, write_mode mode, float* dgain, float* dbias, bool past) {
    const float count = static_cast<float>(width);
    const extent late = past ? 0 : rows_late<1>(width);
    row_numbers<1> means_h, means_hn;
    if (dgain != nullptr) fill(dgain, width, 0.0f);
    if (dbias != nullptr) fill(dbias, width, 0.0f);
    const auto take_means = [&](extent i) __attribute__((always_inline)) {
        const X* const row = x[i];
        const Y* const dy_row = dy[i];
        four sums = four_of(0.0f), products = four_of(0.0f);
        const standard_row<Halves> standard(mean[i], rstd[i]);
        for_lots(width, [&](extent j, auto m) __attribute__((always_inline)) {
            const auto d = load(dy_row + j, m);
            // Beyond the row h is 0, and 0 less a large mean may be infinite.
            const auto n = keep(standard(load(row + j, m)), m, splat(0.0f));
            const auto h = d * load(gain + j, m);
            add(sums, h, m);
            add_product(products, h, n, m);
            if (dgain != nullptr) store(dgain + j, fma(d, n, load(dgain + j, m)), m);
            if (dbias != nullptr) store(dbias + j, d + load(dbias + j, m), m);
        });
        means_h.put(i, sum_of<1>(sums) / count);
        means_hn.put(i, sum_of<1>(products) / count);
    };
    const auto finish = [&](extent i) __attribute__((always_inline)) {
        const X* const row = x[i];
        const Y* const dy_row = dy[i];
        X* const to = dx[i];
        const extent x_ahead = (1 + 2 * late) * x.stride, dy_ahead = (1 + 2 * late) * dy.stride;
        const f32 mean_h = means_h[i], mean_hn = means_hn[i], scale = splat(rstd[i]);
        const standard_row<Halves> standard(mean[i], rstd[i]);
        for_lots(width, [&](extent j, auto m) __attribute__((always_inline)) {
            ask_for(row + x_ahead + j, m);
            ask_for(dy_row + dy_ahead + j, m);
            const auto n = standard(load(row + j, m));
            const auto h = load(dy_row + j, m) * load(gain + j, m);
            auto v = scale * (h - mean_h - n * mean_hn);
            if (mode == write_mode::add) v = load(to + j, m) + v;
            store_or_stream(to + j, v, m, past);
        });
    };
    for_rows<1>(rows, late, take_means, finish);
    if (past) end_streams();
}
template <class X, class W, class Y>
void layer_norm_backward_rows(extent rows, extent width, kernel::spaced_rows<const X> x, const W* gain,
                              kernel::spaced_rows<const Y> dy, const float* mean, const float* rstd, kernel::spaced_rows<X> dx,
                              write_mode mode, float* dgain, float* dbias, bool past) {
    float least = kernel::least_rstd;
    for (extent i = 0; i < rows; ++i) least = rstd[i] < least ? rstd[i] : least;
    const auto body = least < kernel::least_rstd ? &layer_norm_backward_rows_of<true, X, W, Y>
                                                 : &layer_norm_backward_rows_of<false, X, W, Y>;
    body(rows, width, x, gain, dy, mean, rstd, dx, mode, dgain, dbias, past);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
