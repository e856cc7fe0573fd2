// SPDX-License-Identifier: MIT
/// \file
/// Pooling of images (batch, channels, height, width): the largest element of each window, or the mean, and their
/// gradients.
///
///     ht::max_pool2d(device, x, {.kernel_size = 3, .stride = 2, .padding = 1}, y, index);
///     ht::avg_pool2d(device, x, {.kernel_size = 2}, y);
///     ht::adaptive_avg_pool2d(device, x, y);      // the windows follow from y's shape; (N, C, 1, 1): one window per channel
///
/// Numeric contract: the largest element is exact, and NaN counts as the largest. If several elements of a window are
/// equally large, the first in row-major order is taken; of several NaNs, the last, as in PyTorch. Only that element
/// gets the gradient. A mean sums each column of its window from the top, then these sums from the left, in float,
/// divides once and rounds once to the result's type. The gradient of an element is a sum over the windows that contain
/// it: for means in the same order as above, for the largest in the order of the windows. It is rounded once, after it
/// has been added to the previous value if the mode asks for that. So the bits are the same at any number of threads,
/// and there are no atomic additions. If a view has doubles, everything is computed in double. All views are
/// contiguous.
#pragma once

#include <cstdint>

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/kernel/pooling/windows/windows.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The arguments of the forward passes: from images to one value per window.
template <class X, class Y>
struct pool_forward {
    pool_layout layout;
    const X* x;
    Y* y;
    std::int32_t* index = nullptr;  ///< of the largest in its plane, or -1 if there is none; not stored if nullptr
};
/// The arguments of the gradients: from one value per window to images.
template <class X, class Y>
struct pool_backward {
    pool_layout layout;
    const Y* dy;
    X* dx;
    const std::int32_t* index = nullptr;      ///< from the forward pass; not read for means
    write_mode mode = write_mode::overwrite;  ///< of dx
};

/// Specialised for each device: largest(device, pool_forward), largest_gradient(device, pool_backward), mean(device,
/// pool_forward), mean_gradient(device, pool_backward); chosen(device, layout, x, index, y): y = the elements of x at
/// the indices, or 0 for an index of -1.
template <class Device>
struct pooling;

}  // namespace kernel

namespace detail {

template <class X, class Y>
consteval bool check_images() {
    static_assert(view_of<X>::rank == 4 && view_of<Y>::rank == 4,
                  "halftone: pooling takes images with four axes, (batch, channels, height, width)");
    return true;
}
/// The layout of pooling x to y with options, or, for adaptive pooling, with the extents of the output.
template <class T, class Y, class Options>
kernel::pool_layout checked_pooling(const char* operation, const view<T, 4>& x, const view<Y, 4>& y,
                                    const char* name_of_y, const char* name_of_x, const Options& options) {
    const kernel::pool_layout l = kernel::pool_layout_of(operation, x.shape(), options);
    kernel::expect(operation, name_of_x, x, x.shape());
    kernel::expect(operation, name_of_y, y, kernel::pooled_shape(x.shape(), l));
    return l;
}
template <class T>
height_width extents_of(const view<T, 4>& y) {
    return {y.extent_of(2), y.extent_of(3)};
}
template <class Device, class X, class Y, class Options>
void mean_of_windows(Device& device, const char* operation, const view<X, 4>& x, const Options& options,
                     const view<Y, 4>& y) {
    const kernel::pool_layout l = checked_pooling(operation, x, y, "y", "x", options);
    expect_apart(device, operation, "x", x, "y", y);
    kernel::pooling<Device>::mean(device, kernel::pool_forward<std::remove_const_t<X>, Y>{l, x.data(), y.data()});
}
template <class Device, class Y, class X, class Options>
void mean_of_windows_gradient(Device& device, const char* operation, const view<Y, 4>& dy, const Options& options,
                              const view<X, 4>& dx, write_mode mode) {
    const kernel::pool_layout l = checked_pooling(operation, dx, dy, "dy", "dx", options);
    expect_apart(device, operation, "dy", dy, "dx", dx);
    kernel::pooling<Device>::mean_gradient(
        device, kernel::pool_backward<X, std::remove_const_t<Y>>{l, dy.data(), dx.data(), nullptr, mode});
}

}  // namespace detail

/// y = the largest element of each window of x; index, of std::int32_t and with y's shape: its position in its plane,
/// row * width + column. x: (batch, channels, height, width); y: (batch, channels, rows of windows, columns of
/// windows). An index without data is not stored. Throws shape_error, and argument_error for options that do not
/// describe a valid window. Source: F.max_pool2d(x, ..., return_indices=True).
template <class Device, class X, class Y, class Index>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y, Index>)
void max_pool2d(Device& device, const X& x, const max_pool_options& options, const Y& y, const Index& index) {
    static_assert(detail::check_images<X, Y>());
    const const_view<detail::element_in<X>, 4> from = as_view(x);
    const view<detail::element_in<Y>, 4> to = as_view(y);
    const view<std::int32_t, 4> chosen = as_view(index);
    const kernel::pool_layout l = detail::checked_pooling("max_pool2d", from, to, "y", "x", options);
    kernel::expect_optional("max_pool2d", "index", chosen, to.shape());
    detail::expect_apart(device, "max_pool2d", "x", from, "y", to);
    detail::expect_apart(device, "max_pool2d", "x", from, "index", chosen);
    kernel::pooling<Device>::largest(device, kernel::pool_forward<detail::element_in<X>, detail::element_in<Y>>{
                                                 l, from.data(), to.data(), chosen.data()});
}
/// max_pool2d without indices.
template <class Device, class X, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void max_pool2d(Device& device, const X& x, const max_pool_options& options, const Y& y) {
    halftone::max_pool2d(device, x, options, y, view<std::int32_t, 4>{});
}
/// dx = (or +=, depending on mode) dy, the gradient of max_pool2d's result, at the positions in `index`, and 0
/// elsewhere. Throws as max_pool2d does.
template <class Device, class Dy, class Dx>
    requires(detail::kernel_device<Device>&& detail::viewables<Dy, Dx>)
void max_pool2d_gradient(Device& device, const Dy& dy, const max_pool_options& options,
                         const const_view<std::int32_t, 4>& index, const Dx& dx,
                         write_mode mode = write_mode::overwrite) {
    static_assert(detail::check_images<Dy, Dx>());
    const const_view<detail::element_in<Dy>, 4> from = as_view(dy);
    const view<detail::element_in<Dx>, 4> to = as_view(dx);
    const kernel::pool_layout l = detail::checked_pooling("max_pool2d gradient", to, from, "dy", "dx", options);
    kernel::expect("max_pool2d gradient", "index", index, from.shape());
    detail::expect_apart(device, "max_pool2d gradient", "dy", from, "dx", to);
    kernel::pooling<Device>::largest_gradient(
        device, kernel::pool_backward<detail::element_in<Dx>, detail::element_in<Dy>>{l, from.data(), to.data(),
                                                                                      index.data(), mode});
}

/// y = the mean of each window of x. x: (batch, channels, height, width); y: (batch, channels, rows of windows, columns
/// of windows). Throws shape_error, and argument_error for options that do not describe a valid window. Source:
/// F.avg_pool2d.
template <class Device, class X, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void avg_pool2d(Device& device, const X& x, const avg_pool_options& options, const Y& y) {
    static_assert(detail::check_images<X, Y>());
    const const_view<detail::element_in<X>, 4> from = as_view(x);
    detail::mean_of_windows(device, "avg_pool2d", from, options, view<detail::element_in<Y>, 4>(as_view(y)));
}
/// dx = (or +=, depending on mode) the gradient of x, from dy, the gradient of avg_pool2d's result. Throws as
/// avg_pool2d does.
template <class Device, class Dy, class Dx>
    requires(detail::kernel_device<Device>&& detail::viewables<Dy, Dx>)
void avg_pool2d_gradient(Device& device, const Dy& dy, const avg_pool_options& options, const Dx& dx,
                         write_mode mode = write_mode::overwrite) {
    static_assert(detail::check_images<Dy, Dx>());
    const const_view<detail::element_in<Dy>, 4> from = as_view(dy);
    detail::mean_of_windows_gradient(device, "avg_pool2d gradient", from, options,
                                     view<detail::element_in<Dx>, 4>(as_view(dx)), mode);
}

/// y = the means of as many windows as y has elements per plane. They divide x evenly, and overlap if its extents are
/// not multiples of y's: F.adaptive_avg_pool2d(x, (y.height, y.width)). Throws shape_error, and argument_error if y has
/// no windows.
template <class Device, class X, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void adaptive_avg_pool2d(Device& device, const X& x, const Y& y) {
    static_assert(detail::check_images<X, Y>());
    const const_view<detail::element_in<X>, 4> from = as_view(x);
    const view<detail::element_in<Y>, 4> to = as_view(y);
    detail::mean_of_windows(device, "adaptive_avg_pool2d", from, detail::extents_of(to), to);
}
/// dx = (or +=, depending on mode) the gradient of x, from dy, the gradient of adaptive_avg_pool2d's result. Throws as
/// adaptive_avg_pool2d does.
template <class Device, class Dy, class Dx>
    requires(detail::kernel_device<Device>&& detail::viewables<Dy, Dx>)
void adaptive_avg_pool2d_gradient(Device& device, const Dy& dy, const Dx& dx, write_mode mode = write_mode::overwrite) {
    static_assert(detail::check_images<Dy, Dx>());
    const const_view<detail::element_in<Dy>, 4> from = as_view(dy);
    detail::mean_of_windows_gradient(device, "adaptive_avg_pool2d gradient", from, detail::extents_of(from),
                                     view<detail::element_in<Dx>, 4>(as_view(dx)), mode);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
