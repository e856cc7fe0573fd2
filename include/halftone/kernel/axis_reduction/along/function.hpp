// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes as functions of a device and views:
///
///     ht::mean(device, x, ht::axes<0, 2>, y);                       // x: (4, 5, 6), y: (5), or (1, 5, 1)
///     ht::var(device, x, ht::axes<-1>, y, {.correction = 0});
///     ht::argmax(device, x, ht::axes<1>, indices);                  // indices of std::int32_t
///
/// Views of inputs may have any strides. Results are contiguous and have x's axes; the reduced ones are left out or
/// have an extent of 1. The functions take no policy, because the element types determine the arithmetic
/// (axis_reduction.hpp has the contract). All throw shape_error.
#pragma once

#include <limits>

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/map/map.hpp>
#include <halftone/kernel/overlap.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The divisor of var and std.
struct var_options {
    double correction = 1;  ///< the sum of squares is divided by n - correction, or by 0 if that is negative: then a
                            ///< variance is infinite, and NaN of equal elements
};

namespace detail {

/// The factor of a sum of squares: 1 / max(n - correction, 0).
inline double variance_factor(extent size, const var_options& options) {
    const double left = static_cast<double>(size) - options.correction;
    return 1.0 / (left > 0 ? left : 0.0);
}

/// The layout of x for a reduction along these axes. Throws shape_error if y does not have the shape of the result.
template <class T, int Rank, int... Axes, class Y, int Out>
kernel::axis_layout checked_layout(const char* operation, const view<T, Rank>& x, axis_list<Axes...> along,
                                   const view<Y, Out>& y) {
    constexpr int kept = Rank - static_cast<int>(sizeof...(Axes));
    static_assert(
        Out == kept || Out == Rank,
        "halftone: the result of a reduction has the axes that are kept, or all of them, those that are reduced "
        "with an extent of 1");
    if constexpr (Out == kept) {
        kernel::expect(operation, "y", y, without_axes(x.shape(), along));
    } else if constexpr (Out == Rank) {
        kernel::expect(operation, "y", y, with_ones(x.shape(), along));
    }
    return kernel::axis_layout_of(x, along);
}

template <class Device, class T, int Rank, int... Axes, class Y, int Out>
void reduce_view(Device& device, const char* name, kernel::axis_operation operation, const view<T, Rank>& x,
                 axis_list<Axes...> along, const view<Y, Out>& y, double factor) {
    expect_apart(device, name, "x", x, "y", y);
    kernel::axis_reduction<Device>::run(
        device, kernel::reduction<std::remove_const_t<T>, Y>{.x = x.data(),
                                                             .layout = checked_layout(name, x, along, y),
                                                             .y = y.data(),
                                                             .operation = operation,
                                                             .factor = factor});
}

/// Throws shape_error if `size` elements cannot be indexed by a std::int32_t.
inline void expect_indices(const char* operation, const kernel::axis_layout& l) {
    kernel::expect_elements(operation, l);
    if (l.reduced_size > std::numeric_limits<std::int32_t>::max()) {
        fail<shape_error>(operation, ": ", l.reduced_size,
                          " elements along the axis that is reduced; indices are 32-bit integers");
    }
}
template <class Device, class T, int Rank, int... Axes, int Out>
void index_view(Device& device, const char* name, kernel::axis_operation operation, const view<T, Rank>& x,
                axis_list<Axes...> along, const view<std::int32_t, Out>& y) {
    static_assert(only_axis<Rank>(axis_list<Axes...>{}) >= 0);
    const kernel::axis_layout layout = checked_layout(name, x, along, y);
    expect_indices(name, layout);
    expect_apart(device, name, "x", x, "y", y);
    kernel::axis_reduction<Device>::index(
        device, kernel::reduction_index<std::remove_const_t<T>>{x.data(), layout, y.data(), operation});
}

/// The shape (product of the extents before an axis, the axis's extent, product of the extents after it).
template <int Axis, int Rank>
shape<3> around_axis(const shape<Rank>& s) {
    shape<3> around{1, s[Axis], 1};
    for (int axis = 0; axis < Rank; ++axis) {
        if (axis != Axis) around[axis < Axis ? 0 : 2] *= s[axis];
    }
    return around;
}

}  // namespace detail

/// y = the sums of x along some axes; a sum of no elements is 0. Throws shape_error.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void sum(Device& device, const X& x, axis_list<Axes...> along, const Y& y) {
    detail::reduce_view(device, "sum", kernel::axis_operation::sum, as_view(x), along, as_view(y), 1.0);
}
/// y = the products of x along some axes; a product of no elements is 1. Throws shape_error.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void prod(Device& device, const X& x, axis_list<Axes...> along, const Y& y) {
    detail::reduce_view(device, "prod", kernel::axis_operation::prod, as_view(x), along, as_view(y), 1.0);
}
/// y = the means of x along some axes; a mean of no elements is NaN. Throws shape_error.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void mean(Device& device, const X& x, axis_list<Axes...> along, const Y& y) {
    const auto size = kernel::axis_layout_of(as_view(x), along).reduced_size;
    detail::reduce_view(device, "mean", kernel::axis_operation::sum, as_view(x), along, as_view(y),
                        1.0 / static_cast<double>(size));
}
/// y = the variances of x along some axes: sum (x - mean)^2 / (n - correction), by default the unbiased estimate, which
/// is NaN for one element or none. Right also where a sum or a square leaves float's range. Throws shape_error.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void var(Device& device, const X& x, axis_list<Axes...> along, const Y& y, const var_options& options = {}) {
    const auto size = kernel::axis_layout_of(as_view(x), along).reduced_size;
    detail::reduce_view(device, "var", kernel::axis_operation::var, as_view(x), along, as_view(y),
                        detail::variance_factor(size, options));
}
/// y = the standard deviations of x along some axes: the square roots of var, also where var is beyond float's range.
/// Throws shape_error.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void std(Device& device, const X& x, axis_list<Axes...> along, const Y& y, const var_options& options = {}) {
    const auto size = kernel::axis_layout_of(as_view(x), along).reduced_size;
    detail::reduce_view(device, "std", kernel::axis_operation::std_dev, as_view(x), along, as_view(y),
                        detail::variance_factor(size, options));
}
/// y = log(the sum of exp(x) along some axes); -infinity for no elements, or if all are -infinity. Throws shape_error.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void logsumexp(Device& device, const X& x, axis_list<Axes...> along, const Y& y) {
    detail::reduce_view(device, "logsumexp", kernel::axis_operation::logsumexp, as_view(x), along, as_view(y), 1.0);
}
/// y = the largest elements of x along some axes; NaN if one of them is NaN. Throws shape_error, also if there are no
/// elements along these axes.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void amax(Device& device, const X& x, axis_list<Axes...> along, const Y& y) {
    kernel::expect_elements("amax", kernel::axis_layout_of(as_view(x), along));
    detail::reduce_view(device, "amax", kernel::axis_operation::amax, as_view(x), along, as_view(y), 1.0);
}
/// y = the smallest elements of x along some axes; NaN if one of them is NaN. Throws shape_error, also if there are no
/// elements along these axes.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void amin(Device& device, const X& x, axis_list<Axes...> along, const Y& y) {
    kernel::expect_elements("amin", kernel::axis_layout_of(as_view(x), along));
    detail::reduce_view(device, "amin", kernel::axis_operation::amin, as_view(x), along, as_view(y), 1.0);
}
/// y = the index of the first largest element of x along one axis; NaN counts as larger than any number. y is of
/// std::int32_t, like all indices of the library. Throws shape_error, also if there are no elements along the axis.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void argmax(Device& device, const X& x, axis_list<Axes...> along, const Y& y) {
    detail::index_view(device, "argmax", kernel::axis_operation::amax, as_view(x), along, as_view(y));
}
/// y = the index of the first smallest element of x along one axis; NaN counts as smaller than any number. Throws as argmax
/// does.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void argmin(Device& device, const X& x, axis_list<Axes...> along, const Y& y) {
    detail::index_view(device, "argmin", kernel::axis_operation::amin, as_view(x), along, as_view(y));
}
/// y = the cumulative sums of x along one axis: the sum of all elements up to and including each. They are computed in
/// double and rounded when they are stored. x and y are contiguous and have the same shape; y may be x if their types
/// are equal. Throws shape_error.
template <class Device, class X, int... Axes, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void cumsum(Device& device, const X& x, axis_list<Axes...>, const Y& y) {
    const auto from = as_view(x);
    const auto to = as_view(y);
    constexpr int axis = detail::only_axis<std::remove_const_t<decltype(from)>::rank>(axis_list<Axes...>{});
    kernel::expect("cumsum", "x", from, from.shape());
    kernel::expect("cumsum", "y", to, from.shape());
    detail::expect_apart_or_same(device, "cumsum", "x", from, "y", to);
    kernel::axis_reduction<Device>::accumulate(
        device, kernel::running_sum<detail::element_in<X>, detail::element_in<Y>>{
                    from.data(), detail::around_axis<axis>(from.shape()), to.data()});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
