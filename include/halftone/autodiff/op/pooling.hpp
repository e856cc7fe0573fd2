// SPDX-License-Identifier: MIT
/// \file
/// Pooling of images on a tape; names, options and their order are those of PyTorch's functions.
///
///     auto y = ht::max_pool2d(ctx, x, {.kernel_size = 3, .stride = 2});     // x: (batch, channels, height, width)
///     auto y = ht::avg_pool2d(ctx, x, {.kernel_size = {2, 3}});             // windows of 2 rows and 3 columns
///     auto y = ht::adaptive_avg_pool2d(ctx, x, 1);                          // (batch, channels, 1, 1)
///
/// Results have their input's type in every region, as in PyTorch, or the type given, ht::avg_pool2d<float>(...).
/// max_pool2d stores the index of each window's largest element for the backward pass: 4 bytes per window. All can be
/// differentiated any number of times.
///
/// Numeric contract: that of kernel/pooling.
#pragma once

#include <halftone/autodiff/op/linear_map.hpp>
#include <halftone/kernel/pooling/pooling.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

struct spread_to_indices;
template <class Op>
struct spread_means;

/// The elements of x at the indices, one per window, as a linear map (linear_map.hpp). The transposed map adds to the elements
/// at the indices.
struct at_indices {
    using operation = op::max_pool2d;
    static constexpr int roundings = 1;
    kernel::pool_layout layout;
    variable<std::int32_t, 4> index;  ///< of each window's largest element

    extent sum_length() const { return layout.height.size * layout.width.size + 1; }
    template <class Device, class X, class Y>
    void run(Device& device, const view<const X, 4>& x, const view<Y, 4>& y) const {
        kernel::pooling<Device>::chosen(device, layout, x.data(), as_const(index.view()).data(), y.data());
    }
    spread_to_indices transposed() const;
};
struct spread_to_indices {
    using operation = op::max_pool2d;
    kernel::pool_layout layout;
    variable<std::int32_t, 4> index;

    template <class Device, class X, class Y>
    void run(Device& device, const view<const Y, 4>& y, const view<X, 4>& x,
             write_mode mode = write_mode::overwrite) const {
        kernel::pooling<Device>::largest_gradient(
            device, kernel::pool_backward<X, Y>{layout, y.data(), x.data(), as_const(index.view()).data(), mode});
    }
    at_indices transposed() const { return {layout, index}; }
};
inline spread_to_indices at_indices::transposed() const { return {layout, index}; }

/// The means of windows, and the transposed map: it adds each window's value, divided, to all elements of the window.
template <class Op>
struct window_means {
    using operation = Op;
    static constexpr int roundings = 1;
    kernel::pool_layout layout;

    /// An upper bound on the elements of a window and on the windows of an element.
    extent sum_length() const {
        const auto longest = [](const kernel::pool_axis& a) {
            return a.size != 0 ? a.size : (a.in > a.out ? a.in / a.out : a.out / a.in) + 2;
        };
        return longest(layout.height) * longest(layout.width) + 16;
    }
    template <class Device, class X, class Y>
    void run(Device& device, const view<const X, 4>& x, const view<Y, 4>& y) const {
        kernel::pooling<Device>::mean(device, kernel::pool_forward<X, Y>{layout, x.data(), y.data()});
    }
    spread_means<Op> transposed() const { return {layout}; }
};
template <class Op>
struct spread_means {
    using operation = Op;
    kernel::pool_layout layout;

    template <class Device, class X, class Y>
    void run(Device& device, const view<const Y, 4>& y, const view<X, 4>& x,
             write_mode mode = write_mode::overwrite) const {
        kernel::pooling<Device>::mean_gradient(
            device, kernel::pool_backward<X, Y>{layout, y.data(), x.data(), nullptr, mode});
    }
    window_means<Op> transposed() const { return {layout}; }
};

/// True, or a compile-time error for a variable without four axes.
template <int Rank>
consteval bool check_image_rank() {
    static_assert(
        Rank == 4,
        "halftone: this operation takes images with four axes, (batch, channels, height, width): ht::unsqueeze adds "
        "an axis to three");
    return true;
}
template <class Op, class As, class Context, class X, int Rank, class Options>
auto mean_pool(Context&& context, const variable<X, Rank>& x, const Options& options) {
    static_assert(check_image_rank<Rank>());
    using Y = chosen_output<As, policy_of<Context>, Op, X>;
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(Op::name);
    const kernel::pool_layout layout = kernel::pool_layout_of(Op::name, x.shape(), options);
    return mapped<Y>(root, x, window_means<Op>{layout}, kernel::pooled_shape(x.shape(), layout));
}

}  // namespace detail

/// The largest element of each window, as F.max_pool2d. x: (batch, channels, height, width); the result has one row and
/// one column for each row and column of windows. NaN counts as the largest. Recorded with its gradient, which goes to
/// the first of equally large elements. Throws shape_error if no window fits, and argument_error for options that do
/// not describe a valid window.
template <class As = by_category, recording_context Context, class X, int Rank>
auto max_pool2d(Context&& context, const variable<X, Rank>& x, const max_pool_options& options) {
    static_assert(detail::check_image_rank<Rank>());
    using Y = chosen_output<As, policy_of<Context>, op::max_pool2d, X>;
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::max_pool2d::name);
    const kernel::pool_layout layout = kernel::pool_layout_of(op::max_pool2d::name, x.shape(), options);
    const bool wanted = std::remove_cvref_t<Context>::records && x.wants_gradient();
    const shape<4> s = kernel::pooled_shape(x.shape(), layout);
    auto y = root.template make<Y>(s, wanted);
    variable<std::int32_t, 4> index;
    if (wanted) index = root.template make<std::int32_t>(s, false);
    kernel::pooling<typename std::remove_cvref_t<Context>::device_type>::largest(
        root.device(), kernel::pool_forward<X, Y>{layout, as_const(x.view()).data(), y.view().data(),
                                                  wanted ? index.view().data() : nullptr});
    if constexpr (std::remove_cvref_t<Context>::records) {
        using record = detail::linear_map_record<detail::at_indices, X, 4, Y, 4>;
        if (wanted) root.record(record{{layout, index}, {gradient_of(x)}, gradient_of(y)});
    }
    return y;
}

/// The mean of each window, as F.avg_pool2d. x: (batch, channels, height, width); the result has one row and one column
/// for each row and column of windows. Recorded with its gradient. Throws shape_error if no window fits, and
/// argument_error for options that do not describe a valid window.
template <class As = by_category, recording_context Context, class X, int Rank>
auto avg_pool2d(Context&& context, const variable<X, Rank>& x, const avg_pool_options& options) {
    return detail::mean_pool<op::avg_pool2d, As>(context, x, options);
}

/// The means of the given number of windows, which divide the image evenly, as F.adaptive_avg_pool2d. A single number
/// is for both axes; 1 is the mean of the whole image. Recorded with its gradient. Throws shape_error for images
/// without elements, and argument_error for less than one window.
template <class As = by_category, recording_context Context, class X, int Rank>
auto adaptive_avg_pool2d(Context&& context, const variable<X, Rank>& x, const height_width& output_size) {
    return detail::mean_pool<op::adaptive_avg_pool2d, As>(context, x, output_size);
}

template <recording_context Context, class Storage, int Rank>
void max_pool2d(Context&&, const parameter<Storage, Rank>&, const max_pool_options&) {
    detail::refuse_parameter<Context>();
}
template <recording_context Context, class Storage, int Rank>
void avg_pool2d(Context&&, const parameter<Storage, Rank>&, const avg_pool_options&) {
    detail::refuse_parameter<Context>();
}
template <recording_context Context, class Storage, int Rank>
void adaptive_avg_pool2d(Context&&, const parameter<Storage, Rank>&, const height_width&) {
    detail::refuse_parameter<Context>();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
