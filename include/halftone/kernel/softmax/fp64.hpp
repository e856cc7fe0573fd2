// SPDX-License-Identifier: MIT
/// \file
/// Softmax and log_softmax in double, one thread a row: what reference.hpp defines; softmax.hpp has the rules,
/// common/fp64/each.hpp the contract.
#pragma once

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/softmax/reference.hpp>
#include <halftone/kernel/softmax/softmax.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

template <softmax_form Form, class X, class Y>
struct softmax_row {
    rows_of<X> x;
    rows_of<Y> y;
    extent width;
    double scale;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const auto value = [&](extent j) { return x.load(thread, row, j); };
        const auto store = [&](extent j, double v) { y.store(thread, row, j, v); };
        if constexpr (Form == softmax_form::plain) {
            reference::softmax_row(width, value, scale, store);
        } else {
            reference::log_softmax_row(width, value, scale, store);
        }
    }
};

template <softmax_form Form, class X, class Y>
struct softmax_backward_row {
    rows_of<Y> y, dy;
    rows_of<X> dx;
    extent width;
    double scale;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        const auto value = [&](extent j) { return y.load(thread, row, j); };
        const auto slope = [&](extent j) { return dy.load(thread, row, j); };
        const auto store = [&](extent j, double v) { dx.store(thread, row, j, v, mode); };
        if constexpr (Form == softmax_form::plain) {
            reference::softmax_backward_row(width, value, slope, scale, store);
        } else {
            reference::log_softmax_backward_row(width, value, slope, scale, store);
        }
    }
};

template <softmax_form Form, class Device, class X, class Y>
void softmax_rows(Device& device, const softmax_forward<X, Y>& a) {
    check(a);
    const extent width = a.x.extent_of(1);
    using work = softmax_row<Form, const X, Y>;
    for_each(device, a.x.extent_of(0), width,
             work{rows_of<const X>(a.x), rows_of<Y>(a.y), width, static_cast<double>(a.scale)});
}

template <softmax_form Form, class Device, class X, class Y>
void softmax_rows(Device& device, const softmax_backward<X, Y>& a) {
    check(a);
    const extent width = a.y.extent_of(1);
    using work = softmax_backward_row<Form, X, const Y>;
    for_each(device, a.y.extent_of(0), width,
             work{rows_of<const Y>(a.y), rows_of<const Y>(a.dy), rows_of<X>(a.dx), width, static_cast<double>(a.scale),
                  a.mode});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
