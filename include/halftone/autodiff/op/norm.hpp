// SPDX-License-Identifier: MIT
/// \file
/// Layer norm and RMS norm with their gradients, computed in float whatever the types, and for doubles in double; see
/// kernel/norm.
///
///     auto y = ht::layer_norm<roles>(ctx, x, gain, bias);            // x: (…, width), gain and bias: (width)
#pragma once

#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/kernel/norm/layer_norm.hpp>
#include <halftone/kernel/norm/rms_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class X, class Y, int Rank, class Gain, class Bias>
struct layer_norm_record {
    using operation = op::layer_norm;
    variable<X, Rank> x;
    variable<kernel::statistic<X, typename Gain::compute, Y>, 1> mean, rstd;
    gradient_of<X, Rank> dx;
    gradient_of<Y, Rank> dy;
    Gain gain;
    Bias bias;
    float epsilon;

    template <class Tape>
    void propagate(Tape& tape) {
        using accumulate = typename Gain::storage::accumulate;
        const auto to_x = tape.gradient_target(dx);
        const auto to_gain = tape.gradient_target(gain);
        const auto to_bias = tape.gradient_target(bias);
        auto mode = to_gain ? to_gain.mode : to_bias.mode;
        // Gain and bias may be shared with other layers, so that one of them has a gradient already and the other has
        // not.
        if (to_gain && to_bias && to_gain.mode != to_bias.mode) {
            auto* const first = to_gain.mode == write_mode::overwrite ? to_gain.data : to_bias.data;
            tape.device().fill(first, gain.shape().size(), accumulate(0.0f));
            mode = write_mode::add;
        }
        // If no gradient of x is wanted, the kernel still computes one, into memory that is dropped.
        const auto unwanted = to_x ? variable<X, Rank>{} : tape.template make<X>(dx.shape(), false);
        kernel::layer_norm<typename Tape::device_type>::backward(
            tape.device(), kernel::layer_norm_backward<X, typename Gain::compute, Y, accumulate>{
                               .x = as_rows(x),
                               .gain = gain.values(),
                               .dy = as_rows(dy),
                               .mean = mean.view(),
                               .rstd = rstd.view(),
                               .dx = to_x ? as_rows(view(to_x.data, dx.shape())) : as_rows(unwanted),
                               .dgain = to_gain ? view(to_gain.data, gain.shape()) : view<accumulate, 1>{},
                               .dbias = to_bias ? view(to_bias.data, bias.shape()) : view<accumulate, 1>{},
                               .dx_mode = to_x.mode,
                               .parameter_mode = mode});
    }
};

template <class X, class Y, int Rank, class Gain>
struct rms_norm_record {
    using operation = op::rms_norm;
    variable<X, Rank> x;
    variable<kernel::statistic<X, typename Gain::compute, Y>, 1> rstd;
    gradient_of<X, Rank> dx;
    gradient_of<Y, Rank> dy;
    Gain gain;
    float epsilon;

    template <class Tape>
    void propagate(Tape& tape) {
        using accumulate = typename Gain::storage::accumulate;
        const auto to_x = tape.gradient_target(dx);
        const auto to_gain = tape.gradient_target(gain);
        const auto unwanted = to_x ? variable<X, Rank>{} : tape.template make<X>(dx.shape(), false);
        kernel::rms_norm<typename Tape::device_type>::backward(
            tape.device(), kernel::rms_norm_backward<X, typename Gain::compute, Y, accumulate>{
                               .x = as_rows(x),
                               .gain = gain.values(),
                               .dy = as_rows(dy),
                               .rstd = rstd.view(),
                               .dx = to_x ? as_rows(view(to_x.data, dx.shape())) : as_rows(unwanted),
                               .dgain = to_gain ? view(to_gain.data, gain.shape()) : view<accumulate, 1>{},
                               .dx_mode = to_x.mode,
                               .parameter_mode = to_gain.mode});
    }
};

}  // namespace detail

/// y = (x - mean) / sqrt(variance + epsilon) gain + bias, for each row along the last axis (Ba, Kiros, Hinton 2016). x
/// and y: (…, width), gain and bias: parameters of (width); y in Roles::output. Computed in float, in double if one of
/// them is double; recorded with its gradients with respect to x, gain and bias. Throws shape_error, and argument_error
/// for an epsilon that is negative or NaN. The kernel's header has the numeric contract.
template <class Roles, class Context, class X, int Rank, class Gain, class Bias>
auto layer_norm(Context&& context, const variable<X, Rank>& x, const Gain& gain, const Bias& bias,
                float epsilon = 1e-5f) {
    using Y = typename Roles::output;
    using S = kernel::statistic<X, typename Gain::compute, Y>;
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::layer_norm::name);
    const auto rows = as_rows(x);
    const bool wanted = detail::wants_gradient(x, gain, bias);
    const bool keeps = std::remove_cvref_t<Context>::records && wanted;
    auto y = root.template make<Y>(x.shape(), wanted);
    const shape<1> each_row{keeps ? rows.extent_of(0) : 0};
    auto mean = root.template make<S>(each_row, false), rstd = root.template make<S>(each_row, false);
    kernel::layer_norm<typename std::remove_cvref_t<Context>::device_type>::forward(
        root.device(),
        kernel::layer_norm_forward<X, typename Gain::compute, Y>{.x = rows,
                                                                 .gain = gain.values(),
                                                                 .bias = bias.values(),
                                                                 .y = as_rows(y),
                                                                 .mean = keeps ? mean.view() : view<S, 1>{},
                                                                 .rstd = keeps ? rstd.view() : view<S, 1>{},
                                                                 .epsilon = epsilon});
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted)
            root.record(detail::layer_norm_record<X, Y, Rank, Gain, Bias>{x, mean, rstd, gradient_of(x), gradient_of(y),
                                                                          gain, bias, epsilon});
    }
    return y;
}

/// y = x / sqrt(mean of squares + epsilon) gain, for each row along the last axis (Zhang and Sennrich 2019). x and y:
/// (…, width), gain: a parameter of (width); otherwise as layer_norm.
template <class Roles, class Context, class X, int Rank, class Gain>
auto rms_norm(Context&& context, const variable<X, Rank>& x, const Gain& gain, float epsilon = 1e-6f) {
    using Y = typename Roles::output;
    using S = kernel::statistic<X, typename Gain::compute, Y>;
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::rms_norm::name);
    const auto rows = as_rows(x);
    const bool wanted = detail::wants_gradient(x, gain);
    const bool keeps = std::remove_cvref_t<Context>::records && wanted;
    auto y = root.template make<Y>(x.shape(), wanted);
    auto rstd = root.template make<S>(shape<1>{keeps ? rows.extent_of(0) : 0}, false);
    kernel::rms_norm<typename std::remove_cvref_t<Context>::device_type>::forward(
        root.device(),
        kernel::rms_norm_forward<X, typename Gain::compute, Y>{.x = rows,
                                                               .gain = gain.values(),
                                                               .y = as_rows(y),
                                                               .rstd = keeps ? rstd.view() : view<S, 1>{},
                                                               .epsilon = epsilon});
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted)
            root.record(
                detail::rms_norm_record<X, Y, Rank, Gain>{x, rstd, gradient_of(x), gradient_of(y), gain, epsilon});
    }
    return y;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
