// SPDX-License-Identifier: MIT
/// \file
/// A convolution's options, and its shapes, checked and named.
///
///     const auto p = detail::conv2d_problem::of("conv2d", x.shape(), weight.shape(), options);
///     p.result()                              // (images, outputs, height, width)
#pragma once

#include <halftone/kernel/unfold/window/window.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The stride, padding and dilation of a convolution; heights come first, then widths. The names and defaults are those of
/// torch.nn.functional.conv2d.
struct conv2d_options {
    shape<2> stride{1, 1};    ///< from one position of the window to the next
    shape<2> padding{0, 0};   ///< number of zeros on each side
    shape<2> dilation{1, 1};  ///< from one element of the window to the next
    extent groups = 1;        ///< number of groups of channels; each has its own outputs
};

namespace detail {

struct conv2d_problem {
    extent images, channels, outputs, groups;
    kernel::sliding_window window;

    constexpr extent group_channels() const { return channels / groups; }
    constexpr extent group_outputs() const { return outputs / groups; }
    /// The number of terms in the sum of a result.
    constexpr extent depth() const { return group_channels() * window.taps(); }
    constexpr extent positions() const { return window.positions(); }
    /// Whether each channel has its own outputs.
    constexpr bool is_depthwise() const { return groups > 1 && groups == channels; }
    constexpr shape<4> input() const { return {images, channels, window.down.size, window.across.size}; }
    constexpr shape<4> weight() const { return {outputs, group_channels(), window.down.taps, window.across.taps}; }
    constexpr shape<4> result() const { return {images, outputs, window.down.positions, window.across.positions}; }

    /// x: (images, channels, height, width), weight: (outputs, channels / groups, height, width). Throws argument_error
    /// for invalid options, shape_error for shapes that do not match.
    static conv2d_problem of(const char* operation, const shape<4>& x, const shape<4>& weight,
                             const conv2d_options& options);
};

/// Throws argument_error unless the strides, paddings, dilations and groups are valid.
inline void check_conv2d_options(const char* operation, const conv2d_options& o) {
    for (int axis = 0; axis < 2; ++axis) {
        if (o.stride[axis] < 1 || o.dilation[axis] < 1 || o.padding[axis] < 0)
            fail<argument_error>(operation, ": stride ", o.stride, ", padding ", o.padding, ", dilation ", o.dilation,
                                 "; expected strides and dilations of 1 or more, paddings of 0 or more");
    }
    if (o.groups < 1) fail<argument_error>(operation, ": ", o.groups, " groups; expected 1 or more");
}

inline conv2d_problem conv2d_problem::of(const char* operation, const shape<4>& x, const shape<4>& weight,
                                         const conv2d_options& options) {
    check_conv2d_options(operation, options);
    if (x[1] % options.groups != 0 || weight[0] % options.groups != 0) {
        fail<shape_error>(operation, ": x ", x, " has ", x[1], " channels, the weight ", weight, " gives ", weight[0],
                          "; both have to be multiples of the ", options.groups, " groups");
    }
    if (weight[1] != x[1] / options.groups || weight[2] < 1 || weight[3] < 1) {
        fail<shape_error>(operation, ": the weight is ", weight, "; for x ", x, " in ", options.groups,
                          options.groups == 1 ? " group" : " groups", " it is (outputs, ", x[1] / options.groups,
                          ", height, width), of a window that is not empty");
    }
    const auto axis = [&](int i) {
        const extent size = x[2 + i], taps = weight[2 + i];
        const extent span = (taps - 1) * options.dilation[i] + 1, room = size + 2 * options.padding[i];
        if (span > room) {
            fail<shape_error>(operation, ": a window of ", shape<2>{weight[2], weight[3]}, " with dilation ",
                              options.dilation, " does not fit into ", shape<2>{x[2], x[3]}, " with padding ",
                              options.padding);
        }
        return kernel::window_axis{size,
                                   taps,
                                   (room - span) / options.stride[i] + 1,
                                   options.stride[i],
                                   options.padding[i],
                                   options.dilation[i]};
    };
    return {x[0], x[1], weight[0], options.groups, {axis(0), axis(1)}};
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
