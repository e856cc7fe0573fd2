// SPDX-License-Identifier: MIT
/// \file
/// The windows of pooling: the options, as PyTorch has them, and the position of each window along an axis of the image.
///
///     const kernel::pool_layout l = kernel::pool_layout_of("max_pool2d", x.shape(), ht::max_pool_options{.kernel_size = 3});
///     for (extent h = l.height.begin(row); h < l.height.end(row); h += l.height.dilation) ...   // the rows of a window
#pragma once

#include <halftone/config.hpp>
#include <halftone/error.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/tensor/height_width.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of max_pool2d, in the order of PyTorch's arguments.
struct max_pool_options {
    height_width kernel_size{};  ///< height and width of a window
    height_width stride{};       ///< from one window to the next; 0: the window's size
    height_width padding{};      ///< rows above and below, columns to the left and right, which are never the largest
    height_width dilation{1};    ///< from one row of a window to the next, and from one column
    bool ceil_mode = false;      ///< whether a last window that begins inside and ends outside is included
};

/// Options of avg_pool2d, in the order of PyTorch's arguments.
struct avg_pool_options {
    height_width kernel_size{};     ///< height and width of a window
    height_width stride{};          ///< from one window to the next; 0: the window's size
    height_width padding{};         ///< rows above and below, columns to the left and right, of zeros
    bool ceil_mode = false;         ///< whether a last window that begins inside and ends outside is included
    bool count_include_pad = true;  ///< whether means include the zeros of the padding
    extent divisor_override = 0;    ///< the divisor of sums; 0: the number of elements
};

namespace kernel {

/// The divisor of a mean along an axis.
enum class pool_divisor {
    padded,  ///< the number of elements of the window, including those in the padding
    inside,  ///< the number of elements inside the image
    given,   ///< a number given by the user
};

/// The windows along one axis.
struct pool_axis {
    extent in = 0, out = 0;  ///< numbers of elements and of windows
    extent size = 0;         ///< elements of a window; 0: windows divide the axis evenly (adaptive pooling)
    extent stride = 1, padding = 0, dilation = 1;
    pool_divisor divides = pool_divisor::inside;
    extent divisor = 1;  ///< if pool_divisor::given

    /// The first element of a window that is inside the image.
    HALFTONE_HD constexpr extent begin(extent window) const {
        if (size == 0) return window * in / out;
        const extent first = window * stride - padding;
        return first >= 0 ? first : first + (dilation - 1 - first) / dilation * dilation;
    }
    /// One after the last; at most begin(window) if none is inside the image.
    HALFTONE_HD constexpr extent end(extent window) const {
        if (size == 0) return detail::ceil_div((window + 1) * in, out);
        const extent last = window * stride - padding + (size - 1) * dilation;
        return last < in ? last + 1 : in;
    }
    /// The first window that may contain an element between its begin and its end.
    HALFTONE_HD constexpr extent first_window(extent element) const {
        if (size == 0) return element * out / in;
        const extent beyond = element + padding - (size - 1) * dilation;
        return beyond <= 0 ? 0 : detail::ceil_div(beyond, stride);
    }
    /// One after the last of these windows.
    HALFTONE_HD constexpr extent end_window(extent element) const {
        if (size == 0) return detail::ceil_div((element + 1) * out, in);
        const extent last = (element + padding) / stride;
        return last < out ? last + 1 : out;
    }
    /// The divisor of a window's sum along this axis.
    HALFTONE_HD constexpr extent count(extent window) const {
        if (divides == pool_divisor::given) return divisor;
        if (size == 0 || divides == pool_divisor::inside) return end(window) - begin(window);
        const extent first = window * stride - padding, most = in + padding;
        return (first + size < most ? first + size : most) - first;
    }
};

/// The windows of a batch of contiguous planes.
struct pool_layout {
    extent planes = 0;  ///< images * channels
    pool_axis height, width;

    HALFTONE_HD constexpr extent plane_in() const { return height.in * width.in; }
    HALFTONE_HD constexpr extent plane_out() const { return height.out * width.out; }
    HALFTONE_HD constexpr extent inputs() const { return planes * plane_in(); }
    HALFTONE_HD constexpr extent outputs() const { return planes * plane_out(); }
};

/// The windows along an axis of `in` elements. Throws argument_error for options that do not describe a valid window,
/// and shape_error if no window fits.
inline pool_axis pool_axis_of(const char* operation, const char* axis, extent in, extent size, extent stride,
                              extent padding, extent dilation, bool ceil_mode) {
    constexpr extent most = extent{1} << 24;  // so that rows of a window are counted in floats
    if (size < 1 || size > most)
        fail<argument_error>(operation, ": kernel_size is ", size, " along the ", axis, "; expected 1 to ", most);
    if (stride < 0)
        fail<argument_error>(operation, ": stride is ", stride, " along the ", axis, "; expected 1 or more");
    if (dilation < 1)
        fail<argument_error>(operation, ": dilation is ", dilation, " along the ", axis, "; expected 1 or more");
    const extent reach = (size - 1) * dilation + 1;
    if (padding < 0 || padding > reach / 2)
        fail<argument_error>(operation, ": padding is ", padding, " along the ", axis, "; expected 0 to ", reach / 2,
                             ", half the window");
    const extent step = stride == 0 ? size : stride, left = in + 2 * padding - reach;
    pool_axis a{in, left < 0 ? 0 : left / step + 1, size, step, padding, dilation, pool_divisor::inside, 1};
    if (ceil_mode && left >= -step + 1 && (left + step) % step != 0 && a.out * step < in + padding) ++a.out;
    if (in < 1 || a.out < 1)
        fail<shape_error>(operation, ": no window of ", reach, " fits into a ", axis, " of ", in, " with padding of ",
                          padding);
    return a;
}

/// Throws shape_error for planes with more elements than a 32-bit integer can index.
inline pool_layout checked_pool_layout(const char* operation, const pool_layout& l) {
    constexpr extent most = 2147483647;
    if (l.plane_in() > most)
        fail<shape_error>(operation, ": a plane of ", l.plane_in(), " elements; at most ", most, " are possible");
    return l;
}

inline pool_layout pool_layout_of(const char* operation, const shape<4>& x, const max_pool_options& o) {
    const auto axis = [&](const char* name, extent in, extent height_width::*along) {
        return pool_axis_of(operation, name, in, o.kernel_size.*along, o.stride.*along, o.padding.*along,
                            o.dilation.*along, o.ceil_mode);
    };
    return checked_pool_layout(operation, {x[0] * x[1], axis("height", x[2], &height_width::height),
                                           axis("width", x[3], &height_width::width)});
}
inline pool_layout pool_layout_of(const char* operation, const shape<4>& x, const avg_pool_options& o) {
    if (o.divisor_override < 0)
        fail<argument_error>(operation, ": divisor_override is ", o.divisor_override,
                             "; expected 1 or more, or 0: none");
    pool_layout l = pool_layout_of(operation, x, max_pool_options{o.kernel_size, o.stride, o.padding, 1, o.ceil_mode});
    for (pool_axis* a : {&l.height, &l.width})
        a->divides = o.count_include_pad ? pool_divisor::padded : pool_divisor::inside;
    if (o.divisor_override > 0) {
        l.height.divides = l.width.divides = pool_divisor::given;
        l.height.divisor = o.divisor_override;
    }
    return l;
}
/// The layout of adaptive pooling to `out` windows.
inline pool_layout pool_layout_of(const char* operation, const shape<4>& x, const height_width& out) {
    if (out.height < 1 || out.width < 1)
        fail<argument_error>(operation, ": the output is (", out.height, ", ", out.width,
                             "); expected 1 or more of both");
    if (x[2] < 1 || x[3] < 1) fail<shape_error>(operation, ": x is ", x, "; an image without elements has no means");
    pool_layout l{x[0] * x[1], {}, {}};
    l.height.in = x[2], l.height.out = out.height;
    l.width.in = x[3], l.width.out = out.width;
    return checked_pool_layout(operation, l);
}
/// The shape of the result of pooling x.
inline shape<4> pooled_shape(const shape<4>& x, const pool_layout& l) {
    return {x[0], x[1], l.height.out, l.width.out};
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
