// SPDX-License-Identifier: MIT
/// \file
/// Pooling with one thread per strip of elements: for GPUs, with sums in float, and for doubles on all devices, with sums in
/// double. Additions are made in the same order as by the rows of the CPU; pooling.hpp has the contract.
#pragma once

#include <limits>

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/pooling/pooling.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/in_float.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace pool_each {

using simt::global_span;

/// What one thread computes: elements of one column, at most four rows of it, so that the divisions that find them are
/// made once for four. Adjacent threads have adjacent columns.
struct strip {
    static constexpr extent height_of_strip = 4;

    extent plane, row, bottom, column;  // rows `row` to `bottom` - 1

    HALFTONE_HD static constexpr extent in_column(extent height) { return detail::ceil_div(height, height_of_strip); }
    /// The number of strips of planes of `height` * `width` elements.
    HALFTONE_HD static constexpr extent count(extent planes, extent height, extent width) {
        return planes * in_column(height) * width;
    }
    HALFTONE_HD static constexpr strip of(extent i, extent height, extent width) {
        const extent above = i / width, plane = above / in_column(height);
        const extent row = (above - plane * in_column(height)) * height_of_strip;
        return {plane, row, row + height_of_strip < height ? row + height_of_strip : height, i - above * width};
    }
};

template <class S, class X, class Y>
struct largest {
    pool_layout l;
    global_span<const X> x;
    global_span<Y> y;
    global_span<std::int32_t> index;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent number) const {
        const strip at = strip::of(number, l.height.out, l.width.out);
        const extent first = l.width.begin(at.column), last = l.width.end(at.column);
        const global_span<const X> plane = x.from(at.plane * l.plane_in());
        for (extent row = at.row; row < at.bottom; ++row) {
            const extent o = at.plane * l.plane_out() + row * l.width.out + at.column, end = l.height.end(row);
            S found = -std::numeric_limits<S>::infinity();
            extent chosen = -1;
            for (extent h = l.height.begin(row); h < end; h += l.height.dilation) {
                for (extent w = first; w < last; w += l.width.dilation) {
                    const extent i = h * l.width.in + w;
                    const S v = detail::in_type<S>(thread.load(plane, i));
                    if (chosen >= 0 && !(v > found) && !is_nan(v)) continue;
                    found = v;
                    chosen = i;
                }
            }
            thread.store(y, o, static_cast<Y>(found));
            if (index.is_there()) thread.store(index, o, static_cast<std::int32_t>(chosen));
        }
    }
};

/// dx[i] = (or +=) the sum of dy of the windows whose index is i.
template <class S, class X, class Y>
struct largest_gradient {
    pool_layout l;
    global_span<const Y> dy;
    global_span<const std::int32_t> index;
    global_span<X> dx;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent number) const {
        const strip at = strip::of(number, l.height.in, l.width.in);
        const extent first = l.width.first_window(at.column), last = l.width.end_window(at.column);
        for (extent r = at.row; r < at.bottom; ++r) {
            const extent own = r * l.width.in + at.column, i = at.plane * l.plane_in() + own;
            const extent below = l.height.end_window(r);
            S sum = 0;
            for (extent row = l.height.first_window(r); row < below; ++row) {
                for (extent column = first; column < last; ++column) {
                    const extent o = at.plane * l.plane_out() + row * l.width.out + column;
                    if (thread.load(index, o) == own) sum += detail::in_type<S>(thread.load(dy, o));
                }
            }
            if (mode == write_mode::add) sum = detail::in_type<S>(thread.load(dx, i)) + sum;
            thread.store(dx, i, static_cast<X>(sum));
        }
    }
};

/// y[o] = x at the index of window o.
template <class S, class X, class Y>
struct chosen {
    pool_layout l;
    global_span<const X> x;
    global_span<const std::int32_t> index;
    global_span<Y> y;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent o) const {
        const extent at = thread.load(index, o);
        S value = 0;
        if (at >= 0) value = detail::in_type<S>(thread.load(x, o / l.plane_out() * l.plane_in() + at));
        thread.store(y, o, static_cast<Y>(value));
    }
};

template <class S, class X, class Y>
struct mean {
    pool_layout l;
    global_span<const X> x;
    global_span<Y> y;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent number) const {
        const strip at = strip::of(number, l.height.out, l.width.out);
        const extent left = l.width.begin(at.column), right = l.width.end(at.column);
        const extent across = l.width.count(at.column), plane = at.plane * l.plane_in();
        for (extent row = at.row; row < at.bottom; ++row) {
            const extent top = l.height.begin(row), bottom = l.height.end(row);
            S sum = 0;
            for (extent w = left; w < right; ++w) {
                S column = 0;
                for (extent h = top; h < bottom; ++h)
                    column += detail::in_type<S>(thread.load(x, plane + h * l.width.in + w));
                sum += column;
            }
            const S divisor = static_cast<S>(across) * static_cast<S>(l.height.count(row));
            thread.store(y, at.plane * l.plane_out() + row * l.width.out + at.column, static_cast<Y>(sum / divisor));
        }
    }
};

/// dx[i] = (or +=) the sum, over the windows that contain element i, of dy divided by the window's divisor.
template <class S, class X, class Y>
struct mean_gradient {
    pool_layout l;
    global_span<const Y> dy;
    global_span<X> dx;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent number) const {
        const strip at = strip::of(number, l.height.in, l.width.in);
        const extent first = l.width.first_window(at.column), last = l.width.end_window(at.column);
        for (extent r = at.row; r < at.bottom; ++r) {
            const extent i = at.plane * l.plane_in() + r * l.width.in + at.column;
            S sum = sum_of(thread, at.plane * l.plane_out(), r, first, last);
            if (mode == write_mode::add) sum = detail::in_type<S>(thread.load(dx, i)) + sum;
            thread.store(dx, i, static_cast<X>(sum));
        }
    }

  private:
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD S sum_of(Thread thread, extent plane, extent r, extent first, extent last) const {
        const extent top = l.height.first_window(r), below = l.height.end_window(r);
        S sum = 0;
        for (extent column = first; column < last; ++column) {
            const S width = static_cast<S>(l.width.count(column));
            S windows = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // several at a time take registers that spill on sm_90
#endif
            for (extent row = top; row < below; ++row) {
                windows += detail::in_type<S>(thread.load(dy, plane + row * l.width.out + column)) /
                           (width * static_cast<S>(l.height.count(row)));
            }
            sum += windows;
        }
        return sum;
    }
};

inline extent output_strips(const pool_layout& l) { return strip::count(l.planes, l.height.out, l.width.out); }
inline extent input_strips(const pool_layout& l) { return strip::count(l.planes, l.height.in, l.width.in); }

/// All operations of pooling, with one thread per strip.
template <class Device, class X, class Y>
void run_largest(Device& device, const pool_forward<X, Y>& a) {
    const pool_layout& l = a.layout;
    if (l.outputs() == 0) return;
    fp64::for_each(device, output_strips(l), strip::height_of_strip * (l.plane_in() / l.plane_out() + 1),
                   largest<statistic<X, Y>, X, Y>{
                       l, {a.x, l.inputs()}, {a.y, l.outputs()}, {a.index, a.index == nullptr ? 0 : l.outputs()}});
}
template <class Device, class X, class Y>
void run_largest_gradient(Device& device, const pool_backward<X, Y>& a) {
    const pool_layout& l = a.layout;
    if (l.inputs() == 0) return;
    fp64::for_each(device, input_strips(l), strip::height_of_strip * 4,
                   largest_gradient<statistic<X, Y>, X, Y>{
                       l, {a.dy, l.outputs()}, {a.index, l.outputs()}, {a.dx, l.inputs()}, a.mode});
}
template <class Device, class X, class Y>
void run_chosen(Device& device, const pool_layout& l, const X* x, const std::int32_t* index, Y* y) {
    if (l.outputs() == 0) return;
    fp64::for_each(device, l.outputs(), 4,
                   chosen<statistic<X, Y>, X, Y>{l, {x, l.inputs()}, {index, l.outputs()}, {y, l.outputs()}});
}
template <class Device, class X, class Y>
void run_mean(Device& device, const pool_forward<X, Y>& a) {
    const pool_layout& l = a.layout;
    if (l.outputs() == 0) return;
    fp64::for_each(device, output_strips(l), strip::height_of_strip * (l.plane_in() / l.plane_out() + 1),
                   mean<statistic<X, Y>, X, Y>{l, {a.x, l.inputs()}, {a.y, l.outputs()}});
}
template <class Device, class X, class Y>
void run_mean_gradient(Device& device, const pool_backward<X, Y>& a) {
    const pool_layout& l = a.layout;
    if (l.inputs() == 0) return;
    fp64::for_each(device, input_strips(l), strip::height_of_strip * 4,
                   mean_gradient<statistic<X, Y>, X, Y>{l, {a.dy, l.outputs()}, {a.dx, l.inputs()}, a.mode});
}

}  // namespace pool_each

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
