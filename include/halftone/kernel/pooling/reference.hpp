// SPDX-License-Identifier: MIT
/// \file
/// The definition of pooling and of its gradients, in double: a loop over the elements of each window.
///
///     reference::max_pool2d(x, {.kernel_size = 3, .padding = 1}, y, index);
///     reference::avg_pool2d(x, {.kernel_size = 2}, y);
///
/// Gradients are added to dx.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <halftone/kernel/pooling/windows/windows.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Calls window(n, c, row, column) for each element of y.
template <class Y, class F>
void for_each_window(const view<Y, 4>& y, const F& window) {
    const shape<4> s = y.shape();
    for (extent n = 0; n < s[0]; ++n)
        for (extent c = 0; c < s[1]; ++c)
            for (extent row = 0; row < s[2]; ++row)
                for (extent column = 0; column < s[3]; ++column) window(n, c, row, column);
}
/// Calls element(h, w) for those elements of the window beginning at (top, left) that are inside the image.
template <class F>
void for_each_in_window(const height_width& image, extent top, extent left, const height_width& size,
                        const height_width& dilation, const F& element) {
    for (extent a = 0; a < size.height; ++a) {
        for (extent b = 0; b < size.width; ++b) {
            const extent h = top + a * dilation.height, w = left + b * dilation.width;
            if (h >= 0 && h < image.height && w >= 0 && w < image.width) element(h, w);
        }
    }
}
/// The stride that options specify: an extent of 0 means the window's.
constexpr height_width stride_of(const height_width& stride, const height_width& size) {
    return {stride.height == 0 ? size.height : stride.height, stride.width == 0 ? size.width : stride.width};
}

/// y = the largest element of each window; index = its position in its plane. If several are equally large it is the
/// first, of several NaNs the last.
template <class X, class Y>
void max_pool2d(const view<X, 4>& x, const max_pool_options& o, const view<Y, 4>& y,
                const view<std::int32_t, 4>& index) {
    const height_width image{x.extent_of(2), x.extent_of(3)}, stride = stride_of(o.stride, o.kernel_size);
    for_each_window(y, [&](extent n, extent c, extent row, extent column) {
        double largest = -std::numeric_limits<double>::infinity();
        std::int32_t at = -1;
        for_each_in_window(image, row * stride.height - o.padding.height, column * stride.width - o.padding.width,
                           o.kernel_size, o.dilation, [&](extent h, extent w) {
                               const auto v = static_cast<double>(x(n, c, h, w));
                               if (at >= 0 && !(v > largest) && !is_nan(v)) return;
                               largest = v;
                               at = static_cast<std::int32_t>(h * image.width + w);
                           });
        y(n, c, row, column) = static_cast<Y>(largest);
        index(n, c, row, column) = at;
    });
}
/// dx += dy, at the positions in `index`.
template <class Y, class X>
void max_pool2d_gradient(const view<Y, 4>& dy, const const_view<std::int32_t, 4>& index, const view<X, 4>& dx) {
    for_each_window(dy, [&](extent n, extent c, extent row, extent column) {
        const extent at = index(n, c, row, column), width = dx.extent_of(3);
        if (at < 0) return;
        X& to = dx(n, c, at / width, at % width);
        to = static_cast<X>(static_cast<double>(to) + static_cast<double>(dy(n, c, row, column)));
    });
}

/// Calls window(n, c, row, column, top, left, size, divisor) for each window of an average pooling.
template <class X, class Y, class F>
void for_each_mean(const view<X, 4>& x, const avg_pool_options& o, const view<Y, 4>& y, const F& window) {
    const extent height = x.extent_of(2), width = x.extent_of(3);
    const height_width stride = stride_of(o.stride, o.kernel_size);
    // The number of elements of a window that begins at `first`: including the padding, or only those inside the image.
    const auto count = [&](extent first, extent size, extent in, extent padding) {
        const extent least = o.count_include_pad ? -padding : 0, most = o.count_include_pad ? in + padding : in;
        extent n = 0;
        for (extent i = first; i < first + size; ++i) n += i >= least && i < most ? 1 : 0;
        return n;
    };
    for_each_window(y, [&](extent n, extent c, extent row, extent column) {
        const extent top = row * stride.height - o.padding.height, left = column * stride.width - o.padding.width;
        const extent all = count(top, o.kernel_size.height, height, o.padding.height) *
                           count(left, o.kernel_size.width, width, o.padding.width);
        window(n, c, row, column, top, left, o.kernel_size,
               static_cast<double>(o.divisor_override > 0 ? o.divisor_override : all));
    });
}
/// Passed instead of options: as many windows as y has elements per plane, which divide x evenly. Window i of n begins
/// at element i in / n, rounded down, and ends before (i + 1) in / n, rounded up.
struct adaptive {};
/// Calls window(n, c, row, column, top, left, size, divisor) for each window of an adaptive average pooling.
template <class X, class Y, class F>
void for_each_mean(const view<X, 4>& x, adaptive, const view<Y, 4>& y, const F& window) {
    const auto first = [](extent i, extent n, extent in) {
        return static_cast<extent>(std::floor(static_cast<double>(i * in) / static_cast<double>(n)));
    };
    const auto behind = [](extent i, extent n, extent in) {
        return static_cast<extent>(std::ceil(static_cast<double>((i + 1) * in) / static_cast<double>(n)));
    };
    for_each_window(y, [&](extent n, extent c, extent row, extent column) {
        const extent top = first(row, y.extent_of(2), x.extent_of(2)),
                     left = first(column, y.extent_of(3), x.extent_of(3));
        const height_width size{behind(row, y.extent_of(2), x.extent_of(2)) - top,
                                behind(column, y.extent_of(3), x.extent_of(3)) - left};
        window(n, c, row, column, top, left, size, static_cast<double>(size.height * size.width));
    });
}

/// y = the mean of each window; options: avg_pool_options, or adaptive.
template <class X, class Y, class Options>
void mean_pool2d(const view<X, 4>& x, const Options& options, const view<Y, 4>& y) {
    const height_width image{x.extent_of(2), x.extent_of(3)};
    for_each_mean(x, options, y,
                  [&](extent n, extent c, extent row, extent column, extent top, extent left, const height_width& size,
                      double divisor) {
                      double sum = 0;
                      for_each_in_window(image, top, left, size, 1,
                                         [&](extent h, extent w) { sum += static_cast<double>(x(n, c, h, w)); });
                      y(n, c, row, column) = static_cast<Y>(sum / divisor);
                  });
}
/// dx += dy / divisor, for each element of each window.
template <class Y, class X, class Options>
void mean_pool2d_gradient(const view<Y, 4>& dy, const Options& options, const view<X, 4>& dx) {
    const height_width image{dx.extent_of(2), dx.extent_of(3)};
    for_each_mean(dx, options, dy,
                  [&](extent n, extent c, extent row, extent column, extent top, extent left, const height_width& size,
                      double divisor) {
                      const double share = static_cast<double>(dy(n, c, row, column)) / divisor;
                      for_each_in_window(image, top, left, size, 1, [&](extent h, extent w) {
                          X& to = dx(n, c, h, w);
                          to = static_cast<X>(static_cast<double>(to) + share);
                      });
                  });
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
