// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes in double, with one thread per output, as reference.hpp defines them; axis_reduction.hpp has
/// the contract, common/fp64/each.hpp that of kernels in double.
#pragma once

#include <halftone/kernel/axis_reduction/reference.hpp>
#include <halftone/kernel/common/fp64/each.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

/// The memory from the first to the last element of a layout.
template <class X>
global_span<X> span_of_layout(X* x, const axis_layout& l) {
    extent last = 0;
    for (int i = 0; i < l.kept_count; ++i) last += (l.kept[i].count - 1) * l.kept[i].stride;
    for (int i = 0; i < l.reduced_count; ++i) last += (l.reduced[i].count - 1) * l.reduced[i].stride;
    return {x, l.outputs == 0 || l.reduced_size == 0 ? 0 : last + 1};
}

template <class Thread, class X>
struct axis_elements {
    Thread thread;
    const global_span<const X>& x;
    const axis_layout& l;
    extent first;

    HALFTONE_KERNEL
    HALFTONE_HD double operator()(extent i) const {
        return static_cast<double>(thread.load(x, first + l.reduced_offset(i)));
    }
};
template <class Thread, class X>
HALFTONE_HD axis_elements<Thread, X> axis_elements_of(Thread thread, const global_span<const X>& x,
                                                      const axis_layout& l, extent output) {
    return {thread, x, l, l.output_offset(output)};
}

template <class X, class Y>
struct reduce_output {
    global_span<const X> x;
    axis_layout layout;
    global_span<Y> y;
    global_span<double> kept;
    axis_operation operation;
    double factor;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent o) const {
        const reference::reduced r =
            reference::reduce_elements(operation, layout.reduced_size, axis_elements_of(thread, x, layout, o), factor);
        const double old = mode == write_mode::add ? static_cast<double>(thread.load(y, o)) : 0.0;
        thread.store(y, o, static_cast<Y>(old + r.value));
        if (!kept.is_there()) return;
        thread.store(kept, o, r.kept);
        if (operation == axis_operation::std_dev) thread.store(kept, layout.outputs + o, r.value);
    }
};
template <class Device, class X, class Y>
void reduce(Device& device, const reduction<X, Y>& a) {
    for_each(device, a.layout.outputs, a.layout.reduced_size,
             reduce_output<X, Y>{span_of_layout(a.x, a.layout),
                                 a.layout,
                                 {a.y, a.layout.outputs},
                                 {a.kept, kept_values(a.operation, a.layout)},
                                 a.operation,
                                 a.factor,
                                 a.mode});
}

/// The end of a variance or a standard deviation that was computed in float: what is not to be trusted is computed
/// again, and results are written to y.
template <class X, class Y>
struct deviation_output {
    global_span<const X> x;
    axis_layout layout;
    global_span<float> results, means;  // means are optional
    global_span<Y> y;
    axis_operation operation;
    double factor;
    deviation_range range;
    write_mode mode;

    deviation_output(const reduction<X, Y>& a, float* found)
        : x(span_of_layout(a.x, a.layout)),
          layout(a.layout),
          results{found, a.layout.outputs},
          means{a.kept, a.layout.outputs},
          y{a.y, a.layout.outputs},
          operation(a.operation),
          factor(a.factor),
          range(deviation_range::of(a.operation, a.layout.reduced_size, a.factor)),
          mode(a.mode) {}

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent o) const {
        const float found = thread.load(results, o);
        if (!range.is_left_by(found)) return put(thread, o, found);
        replace(thread, o,
                reference::reduce_elements(operation, layout.reduced_size, axis_elements_of(thread, x, layout, o), factor));
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void put(Thread thread, extent o, float value) const {
        if (mode == write_mode::add) value += static_cast<float>(thread.load(y, o));
        thread.store(y, o, static_cast<Y>(value));
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void replace(Thread thread, extent o, const reference::reduced& by) const {
        if (means.is_there()) thread.store(means, o, static_cast<float>(by.kept));
        thread.store(results, o, static_cast<float>(by.value));
        put(thread, o, static_cast<float>(by.value));
    }
};

struct every_output {
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD bool operator()(Thread, extent) const {
        return true;
    }
};
/// Outputs whose product of all elements that are not zero is beyond float's range.
struct products_beyond_float {
    global_span<const float> others;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD bool operator()(Thread thread, extent o) const {
        return is_product_beyond_range(thread.load(others, o));
    }
};
/// Outputs whose gradients of a standard deviation have a factor beyond float's range.
template <class Y>
struct slopes_beyond_float {
    global_span<const float> kept;  // means, then deviations
    global_span<const Y> dy;
    deviation_range range;
    float factor;

    template <class X>
    explicit slopes_beyond_float(const reduction_gradient<X, Y>& a)
        : kept{a.kept, 2 * a.layout.outputs},
          dy{a.dy, a.layout.outputs},
          range(deviation_range::of(a.operation, a.layout.reduced_size, a.factor)),
          factor(static_cast<float>(a.factor)) {}

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD deviation_slope slope(Thread thread, extent o) const {
        return deviation_slope::of(range, thread.load(kept, dy.count + o), static_cast<float>(thread.load(dy, o)),
                                   factor);
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD bool operator()(Thread thread, extent o) const {
        return slope(thread, o).is_beyond;
    }
};

template <class X, class Y, class Which = every_output>
struct reduce_output_gradient {
    global_span<const X> x;
    axis_layout layout;
    global_span<const double> kept;
    global_span<const Y> dy;
    global_span<X> dx;
    axis_operation operation;
    double factor;
    write_mode mode;
    Which is_wanted{};

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent o) const {
        if (!is_wanted(thread, o)) return;
        const extent first = layout.output_offset(o);
        const auto give = [&](extent i, double share) {
            const extent at = first + layout.reduced_offset(i);
            if (mode == write_mode::add) share = static_cast<double>(thread.load(dx, at)) + share;
            thread.store(dx, at, static_cast<X>(share));
        };
        const double slope = static_cast<double>(thread.load(dy, o));
        if (operation == axis_operation::sum) {
            for (extent i = 0; i < layout.reduced_size; ++i) give(i, factor * slope);
        } else {
            reference::reduce_gradient(operation, layout.reduced_size, axis_elements_of(thread, x, layout, o),
                                       kept.is_there() ? thread.load(kept, o) : 0.0, slope, factor, give);
        }
    }
};
template <class Device, class X, class Y>
void reduce_gradient(Device& device, const reduction_gradient<X, Y>& a) {
    for_each(device, a.layout.outputs, a.layout.reduced_size,
             reduce_output_gradient<X, Y>{span_of_layout(a.x, a.layout),
                                          a.layout,
                                          {a.kept, kept_values(a.operation, a.layout)},
                                          {a.dy, a.layout.outputs},
                                          span_of_layout(a.dx, a.layout),
                                          a.operation,
                                          a.factor,
                                          a.mode});
}

/// The gradients of some outputs, from their elements alone; x and dx of any type.
template <class Device, class X, class Y, class Which>
void gradient_of_some(Device& device, const reduction_gradient<X, Y>& a, const Which& which) {
    for_each(device, a.layout.outputs, 1,
             reduce_output_gradient<X, Y, Which>{span_of_layout(a.x, a.layout),
                                                 a.layout,
                                                 {},
                                                 {a.dy, a.layout.outputs},
                                                 span_of_layout(a.dx, a.layout),
                                                 a.operation,
                                                 a.factor,
                                                 a.mode,
                                                 which});
}

template <class X>
struct index_of_output {
    global_span<const X> x;
    axis_layout layout;
    global_span<std::int32_t> y;
    bool largest;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent o) const {
        thread.store(y, o,
                     static_cast<std::int32_t>(reference::index_of_most(
                         layout.reduced_size, axis_elements_of(thread, x, layout, o), largest)));
    }
};
/// The index of each output's largest or smallest element, for any element type, since comparisons need no higher
/// precision.
template <class Device, class X>
void index(Device& device, const reduction_index<X>& a) {
    for_each(
        device, a.layout.outputs, a.layout.reduced_size,
        index_of_output<X>{
            span_of_layout(a.x, a.layout), a.layout, {a.y, a.layout.outputs}, a.operation == axis_operation::amax});
}

template <class X, class Y>
struct running_sums {
    global_span<const X> x;
    global_span<Y> y;
    extent count, inner;
    bool is_reversed;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent o) const {
        const extent first = o / inner * count * inner + o % inner;
        double sum = 0;
        for (extent k = 0; k < count; ++k) {
            const extent at = first + (is_reversed ? count - 1 - k : k) * inner;
            sum += static_cast<double>(thread.load(x, at));
            const double old = mode == write_mode::add ? static_cast<double>(thread.load(y, at)) : 0.0;
            thread.store(y, at, static_cast<Y>(old + sum));
        }
    }
};
/// Cumulative sums of any element types: they are computed in order, and therefore in double.
template <class Device, class X, class Y>
void accumulate(Device& device, const running_sum<X, Y>& a) {
    const extent size = a.extents.size(), columns = a.extents[0] * a.extents[2];
    for_each(device, columns, a.extents[1],
             running_sums<X, Y>{{a.x, size}, {a.y, size}, a.extents[1], a.extents[2], a.is_reversed, a.mode});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
