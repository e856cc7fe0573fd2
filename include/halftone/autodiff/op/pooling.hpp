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

#include <tuple>

#include <halftone/autodiff/engine/rule.hpp>
#include <halftone/autodiff/op/join.hpp>
#include <halftone/kernel/pooling/pooling.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class Device>
using pooling_of = kernel::pooling<Device>;

/// y = the elements of x at the indices, one per window. Its gradient adds to the elements at the indices (spreads),
/// and the gradient of spreading selects them.
template <class Y, class Root, class X>
variable<Y, 4> at_indices(Root& root, const variable<X, 4>& x, const kernel::pool_layout& layout,
                          const variable<std::int32_t, 4>& index);
template <class X, class Root, class Y>
variable<X, 4> spread_to_indices(Root& root, const variable<Y, 4>& dy, const shape<4>& s,
                                 const kernel::pool_layout& layout, const variable<std::int32_t, 4>& index);

template <class X, class Y>
struct max_pool_record {
    using operation = op::max_pool2d;
    using reads = reads_nothing;
    static constexpr int roundings = 1;
    kernel::pool_layout layout;
    variable<std::int32_t, 4> index;
    std::tuple<gradient_of<X, 4>> gradients;
    gradient_of<Y, 4> dy;

    extent sum_length() const { return layout.height.size * layout.width.size + 1; }

    template <class Tape>
    void backward(Tape& tape) {
        if (!dy.is_there()) return;
        if (const auto to = tape.gradient_target(std::get<0>(gradients))) {
            pooling_of<typename Tape::device_type>::largest_gradient(
                tape.device(), kernel::pool_backward<X, Y>{layout, as_const(dy.view()).data(), to.data,
                                                           as_const(index.view()).data(), to.mode});
        }
        tape.finish(dy);
    }
    template <class Tape>
    void differentiate(Tape& tape) const {
        if (!tape.has(dy)) return;
        const variable<Y, 4> gradient = tape.take(dy);
        const auto& dx = std::get<0>(gradients);
        if (tape.takes(dx)) tape.give(dx, spread_to_indices<X>(tape.inner(), gradient, dx.shape(), layout, index));
    }
};

template <class X, class Y>
struct spread_to_indices_record {
    using operation = op::max_pool2d;
    using reads = reads_nothing;
    kernel::pool_layout layout;
    variable<std::int32_t, 4> index;
    std::tuple<gradient_of<Y, 4>> gradients;
    gradient_of<X, 4> dy;  ///< the gradient of the spread tensor

    template <class Tape>
    void backward(Tape& tape) {
        if (!dy.is_there()) return;
        contribute(tape, std::get<0>(gradients), [&](const view<Y, 4>& out) {
            pooling_of<typename Tape::device_type>::chosen(tape.device(), layout, as_const(dy.view()).data(),
                                                           as_const(index.view()).data(), out.data());
        });
        tape.finish(dy);
    }
    template <class Tape>
    void differentiate(Tape& tape) const {
        if (!tape.has(dy)) return;
        const variable<X, 4> gradient = tape.take(dy);
        const auto& dx = std::get<0>(gradients);
        if (tape.takes(dx)) tape.give(dx, at_indices<Y>(tape.inner(), gradient, layout, index));
    }
};

template <class Y, class Root, class X>
variable<Y, 4> at_indices(Root& root, const variable<X, 4>& x, const kernel::pool_layout& layout,
                          const variable<std::int32_t, 4>& index) {
    auto y = root.template make<Y>(index.shape(), x.wants_gradient());
    pooling_of<typename Root::device_type>::chosen(root.device(), layout, as_const(x.view()).data(),
                                                   as_const(index.view()).data(), y.view().data());
    if constexpr (Root::records) {
        if (x.wants_gradient()) root.record(max_pool_record<X, Y>{layout, index, {gradient_of(x)}, gradient_of(y)});
    }
    return y;
}
template <class X, class Root, class Y>
variable<X, 4> spread_to_indices(Root& root, const variable<Y, 4>& dy, const shape<4>& s,
                                 const kernel::pool_layout& layout, const variable<std::int32_t, 4>& index) {
    auto x = root.template make<X>(s, dy.wants_gradient());
    pooling_of<typename Root::device_type>::largest_gradient(
        root.device(), kernel::pool_backward<X, Y>{layout, as_const(dy.view()).data(), x.view().data(),
                                                   as_const(index.view()).data()});
    if constexpr (Root::records) {
        if (dy.wants_gradient())
            root.record(spread_to_indices_record<X, Y>{layout, index, {gradient_of(dy)}, gradient_of(x)});
    }
    return x;
}

/// y = the means of x's windows; and the transpose, which adds each window's value, divided, to all its elements.
template <class Op, class Y, class Root, class X>
variable<Y, 4> window_means(Root& root, const variable<X, 4>& x, const kernel::pool_layout& layout);
template <class Op, class X, class Root, class Y>
variable<X, 4> spread_means(Root& root, const variable<Y, 4>& dy, const shape<4>& s, const kernel::pool_layout& layout);

template <class Op, class X, class Y>
struct mean_pool_record {
    using operation = Op;
    using reads = reads_nothing;
    static constexpr int roundings = 1;
    kernel::pool_layout layout;
    std::tuple<gradient_of<X, 4>> gradients;
    gradient_of<Y, 4> dy;

    /// An upper bound on the elements of a window and on the windows of an element.
    extent sum_length() const {
        const auto longest = [](const kernel::pool_axis& a) {
            return a.size != 0 ? a.size : (a.in > a.out ? a.in / a.out : a.out / a.in) + 2;
        };
        return longest(layout.height) * longest(layout.width) + 16;
    }

    template <class Tape>
    void backward(Tape& tape) {
        if (!dy.is_there()) return;
        if (const auto to = tape.gradient_target(std::get<0>(gradients))) {
            pooling_of<typename Tape::device_type>::mean_gradient(
                tape.device(),
                kernel::pool_backward<X, Y>{layout, as_const(dy.view()).data(), to.data, nullptr, to.mode});
        }
        tape.finish(dy);
    }
    template <class Tape>
    void differentiate(Tape& tape) const {
        if (!tape.has(dy)) return;
        const variable<Y, 4> gradient = tape.take(dy);
        const auto& dx = std::get<0>(gradients);
        if (tape.takes(dx)) tape.give(dx, spread_means<Op, X>(tape.inner(), gradient, dx.shape(), layout));
    }
};

template <class Op, class X, class Y>
struct spread_means_record {
    using operation = Op;
    using reads = reads_nothing;
    kernel::pool_layout layout;
    std::tuple<gradient_of<Y, 4>> gradients;
    gradient_of<X, 4> dy;  ///< the gradient of the spread tensor

    template <class Tape>
    void backward(Tape& tape) {
        if (!dy.is_there()) return;
        contribute(tape, std::get<0>(gradients), [&](const view<Y, 4>& out) {
            pooling_of<typename Tape::device_type>::mean(
                tape.device(), kernel::pool_forward<X, Y>{layout, as_const(dy.view()).data(), out.data()});
        });
        tape.finish(dy);
    }
    template <class Tape>
    void differentiate(Tape& tape) const {
        if (!tape.has(dy)) return;
        const variable<X, 4> gradient = tape.take(dy);
        const auto& dx = std::get<0>(gradients);
        if (tape.takes(dx)) tape.give(dx, window_means<Op, Y>(tape.inner(), gradient, layout));
    }
};

template <class Op, class Y, class Root, class X>
variable<Y, 4> window_means(Root& root, const variable<X, 4>& x, const kernel::pool_layout& layout) {
    auto y = root.template make<Y>(kernel::pooled_shape(x.shape(), layout), x.wants_gradient());
    pooling_of<typename Root::device_type>::mean(
        root.device(), kernel::pool_forward<X, Y>{layout, as_const(x.view()).data(), y.view().data()});
    if constexpr (Root::records) {
        if (x.wants_gradient()) root.record(mean_pool_record<Op, X, Y>{layout, {gradient_of(x)}, gradient_of(y)});
    }
    return y;
}
template <class Op, class X, class Root, class Y>
variable<X, 4> spread_means(Root& root, const variable<Y, 4>& dy, const shape<4>& s,
                            const kernel::pool_layout& layout) {
    auto x = root.template make<X>(s, dy.wants_gradient());
    pooling_of<typename Root::device_type>::mean_gradient(
        root.device(), kernel::pool_backward<X, Y>{layout, as_const(dy.view()).data(), x.view().data()});
    if constexpr (Root::records) {
        if (dy.wants_gradient()) root.record(spread_means_record<Op, X, Y>{layout, {gradient_of(dy)}, gradient_of(x)});
    }
    return x;
}

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
    return window_means<Op, Y>(root, x, kernel::pool_layout_of(Op::name, x.shape(), options));
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
        if (wanted) root.record(detail::max_pool_record<X, Y>{layout, index, {gradient_of(x)}, gradient_of(y)});
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
