// SPDX-License-Identifier: MIT
/// \file
/// Root mean square normalisation of some rows. The last pass over a row asks for another; short rows are finished some
/// rows late. What `past` names is written past the caches.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <algorithm>
#include <type_traits>

#include <halftone/kernel/common/rows/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// R rows at a time, as for_usual_fours has them. Those that need care (rows/care.hpp) are finished by themselves where they
/// are checked; single rows always are.
template <int R, bool Checks, class X, class W, class Y>
HALFTONE_INLINE bool rms_norm_rows_of(extent rows, extent width, bool distinct, kernel::spaced_rows<const X> x, const W* gain,
                                      float epsilon, kernel::spaced_rows<Y> y, float* rstd, bool past) {
    const extent x_stride = distinct ? x.stride : 0, y_stride = distinct ? y.stride : 0;
    const extent late = rows_late<R>(width);
    const kernel::row_limits<float> limits(kernel::sum_depth(width), epsilon);
    row_numbers<R> scales, lefts;
    [[maybe_unused]] usual_so_far usual;
    const auto scale_of = [&](extent i) __attribute__((always_inline)) {
        const auto row = rows_from<R>(x[i], x_stride);
        four squares = four_of(0.0f);
        for_parts<R, X>(width, [&](extent j, auto n) __attribute__((always_inline)) {
            const auto v = load(row + j, n);
            add_product(squares, v, v, n);
        });
        const auto mean_square = sum_of<R>(squares) / static_cast<float>(width);
        const auto left = mean_square - limits.least;
        if constexpr (Checks) lefts.put(i, left);
        else usual.take(left);
        scales.put(i, rsqrt_of(mean_square + epsilon));
    };
    const auto with_care = [=](extent i, Y* to) __attribute__((always_inline)) {
        return kernel::rms_norm_with_care(x[i], width, gain, static_cast<double>(epsilon), to);
    };
    const auto put_statistics = [=](extent i, const kernel::careful_row& of) __attribute__((always_inline)) {
        if (rstd != nullptr) rstd[i] = static_cast<float>(of.scale);
    };
    const auto finish = [&](extent i) __attribute__((always_inline)) {
        const bool is_usual = !Checks || all_usual(lefts.at(i));
        if constexpr (R == 1) {
            if (!is_usual) return put_statistics(i, with_care(i, y[i]));
        }
        [[maybe_unused]] std::conditional_t<R == 4 && Checks, kept_rows<Y>, whole> kept;
        if constexpr (R == 4 && Checks) {
            const auto take = [&](int r, Y* to) __attribute__((always_inline)) { return with_care(i + r, to); };
            if (!is_usual) kept.take_from(lefts.at(i), distinct, take);
        }
        const auto scale = scales[i];
        const auto row = rows_from<R>(x[i], x_stride);
        const auto to = rows_from<R>(y[i], y_stride);
        for_parts<R>(width, [&](extent j, auto n) __attribute__((always_inline)) {
            ask_ahead(row, (1 + 2 * late) * x.stride, j, n);
            store_or_stream(to + j, load(row + j, n) * scale * load(gain + j, n), n, past);
        });
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
    for_rows<R>(rows, late, scale_of, finish);
    if (past) end_streams();
    return Checks || usual.value();
}
template <class X, class W, class Y>
void rms_norm_rows(extent rows, extent width, kernel::spaced_rows<const X> x, const W* gain, float epsilon,
                   kernel::spaced_rows<Y> y, float* rstd, bool past) {
    if (!side_by_side(width)) {
        rms_norm_rows_of<1, true>(rows, width, true, x, gain, epsilon, y, rstd, past);
        return;
    }
    for_usual_fours(rows, x.p, y.p, [&](extent i, extent count, bool distinct, auto checks) __attribute__((always_inline)) {
        return rms_norm_rows_of<4, checks.value>(count, width, distinct, x.from(i), gain, epsilon, y.from(i),
                                                 rstd == nullptr ? nullptr : rstd + i, past);
    });
}

/// Overwrites dgain, the sum of these rows, where it is wanted. With n = x rstd and h = dy gain,
/// dx = rstd (h - n mean(h n)).
template <class X, class W, class Y>
void rms_norm_backward_rows(extent rows, extent width, kernel::spaced_rows<const X> x, const W* gain,
                            kernel::spaced_rows<const Y> dy, const float* rstd, kernel::spaced_rows<X> dx, write_mode mode,
                            float* dgain, bool past) {
    const extent late = past ? 0 : rows_late<1>(width);
    row_numbers<1> means;  // of h n
    if (dgain != nullptr) fill(dgain, width, 0.0f);
    const auto take_mean = [&](extent i) __attribute__((always_inline)) {
        const X* const row = x[i];
        const Y* const dy_row = dy[i];
        const f32 scale = splat(rstd[i]);
        four products = four_of(0.0f);
        for_lots(width, [&](extent j, auto m) __attribute__((always_inline)) {
            const auto d = load(dy_row + j, m);
            const auto n = load(row + j, m) * scale;
            add_product(products, d * load(gain + j, m), n, m);
            if (dgain != nullptr) store(dgain + j, fma(d, n, load(dgain + j, m)), m);
        });
        means.put(i, sum_of<1>(products) / static_cast<float>(width));
    };
    const auto finish = [&](extent i) __attribute__((always_inline)) {
        const X* const row = x[i];
        const Y* const dy_row = dy[i];
        X* const to = dx[i];
        const extent x_ahead = (1 + 2 * late) * x.stride, dy_ahead = (1 + 2 * late) * dy.stride;
        const f32 scale = splat(rstd[i]), mean_hn = means[i];
        for_lots(width, [&](extent j, auto m) __attribute__((always_inline)) {
            ask_for(row + x_ahead + j, m);
            ask_for(dy_row + dy_ahead + j, m);
            const auto n = load(row + j, m) * scale;
            auto v = scale * (load(dy_row + j, m) * load(gain + j, m) - n * mean_hn);
            if (mode == write_mode::add) v = load(to + j, m) + v;
            store_or_stream(to + j, v, m, past);
        });
    };
    for_rows<1>(rows, late, take_mean, finish);
    if (past) end_streams();
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
