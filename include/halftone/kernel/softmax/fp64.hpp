// SPDX-License-Identifier: MIT
/// \file
/// Softmax and its logarithm in double, a row a thread: softmax.hpp has the rules, fp64/each.hpp the contract.
#pragma once

#include <cmath>

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/softmax/softmax.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

/// What is subtracted from a row's values, the largest, or the smallest of a negative factor, and the sum of
/// exp(factor (x - subtracted)). NaN where the row holds one.
struct row_exponentials {
    double subtracted, sum;

    HALFTONE_KERNEL template <class Thread, class X>
    HALFTONE_HD static row_exponentials of(Thread thread, const rows_of<X>& x, extent row, extent width,
                                           double factor) {
        const double sign = factor < 0 ? -1 : 1;
        double largest = -HUGE_VAL, sum = 0;
        for (extent j = 0; j < width; ++j) {
            const double value = sign * x.load(thread, row, j);
            if (largest < value) largest = value;
        }
        const double subtracted = sign * largest;
        for (extent j = 0; j < width; ++j) sum += std::exp(factor * (x.load(thread, row, j) - subtracted));
        return {subtracted, sum};
    }
};

enum class softmax_kind { plain, logarithm };

template <softmax_kind Kind, class X, class Y>
struct softmax_row {
    rows_of<X> x;
    rows_of<Y> y;
    extent width;
    double scale;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const row_exponentials all = row_exponentials::of(thread, x, row, width, scale);
        const double logarithm = std::log(all.sum);
        for (extent j = 0; j < width; ++j) {
            const double above = scale * (x.load(thread, row, j) - all.subtracted);
            y.store(thread, row, j, Kind == softmax_kind::plain ? std::exp(above) / all.sum : above - logarithm);
        }
    }
};

template <softmax_kind Kind, class X, class Y>
struct softmax_backward_row {
    rows_of<Y> y, dy;
    rows_of<X> dx;
    extent width;
    double scale;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        double sum = 0;
        for (extent j = 0; j < width; ++j) {
            const double d = dy.load(thread, row, j);
            sum += Kind == softmax_kind::plain ? d * y.load(thread, row, j) : d;
        }
        for (extent j = 0; j < width; ++j) {
            const double v = y.load(thread, row, j), d = dy.load(thread, row, j);
            dx.store(thread, row, j, scale * (Kind == softmax_kind::plain ? v * (d - sum) : d - std::exp(v) * sum),
                     mode);
        }
    }
};

template <softmax_kind Kind, class Device, class X, class Y>
void softmax_rows(Device& device, const softmax_forward<X, Y>& a) {
    check(a);
    const extent width = a.x.extent_of(1);
    using work = softmax_row<Kind, const X, Y>;
    for_each(device, a.x.extent_of(0), width,
             work{rows_of<const X>(a.x), rows_of<Y>(a.y), width, static_cast<double>(a.scale)});
}

template <softmax_kind Kind, class Device, class X, class Y>
void softmax_rows(Device& device, const softmax_backward<X, Y>& a) {
    check(a);
    const extent width = a.y.extent_of(1);
    using work = softmax_backward_row<Kind, X, const Y>;
    for_each(device, a.y.extent_of(0), width,
             work{rows_of<const Y>(a.y), rows_of<const Y>(a.dy), rows_of<X>(a.dx), width, static_cast<double>(a.scale),
                  a.mode});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
