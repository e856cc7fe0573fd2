// SPDX-License-Identifier: MIT
/// \file
/// Batch norm and group norm of images on a tape, with their gradients; names and the order of arguments are those of
/// PyTorch's functions.
///
///     auto y = ht::batch_norm(ctx, x, running_mean, running_var, weight, bias, {.training = true});
///     auto y = ht::group_norm(ctx, x, 8, weight, bias);                         // 8 groups of channels
///
/// x: (batch, channels, height, width); weight and bias: variables or parameters of (channels), or ht::absent{} for 1
/// and 0; running statistics: views or states (store.add_state) of (channels), or ht::absent{} for none. In training
/// the forward pass updates the running statistics, also if the step is later skipped because of an overflow in the
/// gradients, as in PyTorch, since the statistics are valid. If a channel's new statistics are not finite, its running
/// ones are unchanged.
///
/// Numeric contract: that of kernel/channel_norm. In a region the result of group_norm is fp32, and that of batch_norm
/// has its input's type, as in PyTorch.
#pragma once

#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/kernel/channel_norm/each/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The type of gain and bias, and the type of their gradients; gain and bias have the same types.
template <class Weight>
struct per_channel_types {
    using read = typename Weight::compute;
    using gradient = read;
};
template <class Storage, int Rank>
struct per_channel_types<parameter<Storage, Rank>> {
    using read = typename Storage::compute;
    using gradient = typename Storage::accumulate;
};
template <>
struct per_channel_types<absent> {
    using read = float;
    using gradient = float;
};
template <class Gain, class Bias>
struct affine_types : per_channel_types<std::conditional_t<is_absent<Gain>, Bias, Gain>> {
    static_assert(is_absent<Gain> || is_absent<Bias> ||
                      std::is_same_v<typename per_channel_types<Gain>::read, typename per_channel_types<Bias>::read>,
                  "halftone: weight and bias of a norm have one type");
};

/// The values that a kernel reads; nullptr if there are none.
template <class W, class Weight>
const W* values_or_none(const Weight& weight) {
    if constexpr (is_absent<Weight>) {
        return nullptr;
    } else {
        return weight.values().data();
    }
}
template <class Weight>
void expect_channels(const char* operation, const char* name, const Weight& weight, extent channels) {
    if constexpr (!is_absent<Weight>) {
        if (weight.shape()[0] != channels)
            fail<shape_error>(operation, ": ", name, " is ", weight.shape(), "; expected (", channels, ")");
    }
}
/// Where the gradient of a gain or bias is written.
template <class G>
struct channel_target {
    G* data = nullptr;
    write_mode mode = write_mode::overwrite;
};
template <class G, class Tape, class Weight>
channel_target<G> channel_target_of(Tape& tape, const Weight& weight) {
    if constexpr (is_absent<Weight>) {
        return {};
    } else {
        const auto to = tape.gradient_target(weight);
        if (!to) return {};
        return {to.data, to.mode};
    }
}

template <class Op, class X, class Y, class Gain, class Bias>
struct channel_norm_record {
    using operation = Op;
    using types = affine_types<Gain, Bias>;
    using W = typename types::read;
    using S = kernel::statistic<X, W, Y>;
    kernel::channel_sets sets;
    bool are_given;  ///< whether the statistics are constants, such as running ones
    variable<X, 4> x;
    variable<S, 1> mean, rstd, rest;  ///< rest: what the means lack; empty for given ones, and for doubles
    gradient_of<X, 4> dx;
    gradient_of<Y, 4> dy;
    Gain gain;
    Bias bias;

    template <class Tape>
    void propagate(Tape& tape) {
        using G = typename types::gradient;
        const auto to_x = tape.gradient_target(dx);
        const auto to_gain = channel_target_of<G>(tape, gain);
        const auto to_bias = channel_target_of<G>(tape, bias);
        kernel::channel_each::gradients(tape.device(), kernel::channel_norm_backward<X, W, Y, G>{
                                                           .sets = sets,
                                                           .x = as_const(x.view()).data(),
                                                           .mean = as_const(mean.view()).data(),
                                                           .rstd = as_const(rstd.view()).data(),
                                                           .gain = values_or_none<W>(gain),
                                                           .dy = as_const(dy.view()).data(),
                                                           .dx = to_x ? to_x.data : nullptr,
                                                           .dgain = to_gain.data,
                                                           .dbias = to_bias.data,
                                                           .are_given = are_given,
                                                           .dx_mode = to_x ? to_x.mode : write_mode::overwrite,
                                                           .gain_mode = to_gain.mode,
                                                           .bias_mode = to_bias.mode,
                                                           .rest = rest.is_empty() ? nullptr : as_const(rest.view()).data()});
    }
};

/// x, normalised with the statistics that statistics(device, mean, rstd, rest) writes. Where determines the name of the
/// profiler's range: a policy, or a layer's roles.
template <class Op, class Where, class Y, class Context, class X, class Gain, class Bias, class Statistics>
variable<Y, 4> normalise_channels(Context&& context, const variable<X, 4>& x, const kernel::channel_sets& sets,
                                  bool are_given, double epsilon, const Gain& gain, const Bias& bias,
                                  const Statistics& statistics) {
    using record = channel_norm_record<Op, X, Y, Gain, Bias>;
    using W = typename record::W;
    using S = typename record::S;
    auto& root = context.root();
    const auto range = root.template range<Where>(Op::name);
    expect_epsilon(Op::name, epsilon);
    expect_channels(Op::name, "weight", gain, sets.channels);
    expect_channels(Op::name, "bias", bias, sets.channels);
    auto mean = root.template make<S>(shape<1>{sets.sets()}, false);
    auto rstd = root.template make<S>(shape<1>{sets.sets()}, false);
    variable<S, 1> rest;
    if constexpr (!std::is_same_v<S, double> && !records_double_backward<Context>) {
        if (!are_given) rest = root.template make<S>(shape<1>{sets.sets()}, false);
    }
    S* const lacking = rest.is_empty() ? nullptr : rest.view().data();
    statistics(root.device(), mean.view().data(), rstd.view().data(), lacking);
    if constexpr (records_double_backward<Context>) {
        return composition<Op, void>::template run<Y>(root, x, sets, are_given, epsilon, mean, rstd, gain, bias);
    } else {
        const bool wanted = wants_gradient(x, gain, bias);
        auto y = root.template make<Y>(x.shape(), wanted);
        kernel::channel_each::normalise(
            root.device(),
            kernel::channel_norm_forward<X, W, Y>{sets, as_const(x.view()).data(), as_const(mean.view()).data(),
                                                  as_const(rstd.view()).data(), values_or_none<W>(gain),
                                                  values_or_none<W>(bias), y.view().data(), are_given, lacking});
        if constexpr (std::remove_cvref_t<Context>::records) {
            if (wanted) root.record(record{sets, are_given, x, mean, rstd, rest, gradient_of(x), gradient_of(y), gain, bias});
        }
        return y;
    }
}

/// The memory of running statistics; nullptr if they are absent.
template <class Storage>
auto* running_memory(const parameter<Storage, 1>& state, extent channels) {
    kernel::expect("batch_norm", "running statistics", state.master(), {channels});
    return state.master().data();
}
template <class R>
R* running_memory(const view<R, 1>& v, extent channels) {
    kernel::expect("batch_norm", "running statistics", v, {channels});
    return v.data();
}
inline float* running_memory(const absent&, extent) { return nullptr; }

template <class Where, class Y, class Context, class X, class Running, class Gain, class Bias>
variable<Y, 4> batch_normalised(Context&& context, const variable<X, 4>& x, const Running& running_mean,
                                const Running& running_var, const Gain& gain, const Bias& bias,
                                const batch_norm_options& options) {
    const kernel::channel_sets sets = batch_sets(x.shape());
    auto* of_mean = running_memory(running_mean, sets.channels);
    auto* of_var = running_memory(running_var, sets.channels);
    // A checkpoint has updated them in its first pass.
    if (options.training && context.root().graph().is_recomputing()) of_mean = nullptr, of_var = nullptr;
    return normalise_channels<op::batch_norm, Where, Y>(
        context, x, sets, !options.training, options.eps, gain, bias, [&](auto& device, auto* mean, auto* rstd, auto* rest) {
            batch_statistics(device, sets, as_const(x.view()).data(), of_mean, of_var, options, mean, rstd, rest);
        });
}
template <class Where, class Y, class Context, class X, class Gain, class Bias>
variable<Y, 4> group_normalised(Context&& context, const variable<X, 4>& x, extent num_groups, const Gain& gain,
                                const Bias& bias, double epsilon) {
    const kernel::channel_sets sets = group_sets(op::group_norm::name, x.shape(), num_groups);
    return normalise_channels<op::group_norm, Where, Y>(
        context, x, sets, false, epsilon, gain, bias, [&](auto& device, auto* mean, auto* rstd, auto* rest) {
            using S = std::remove_pointer_t<decltype(mean)>;
            kernel::channel_each::statistics(
                device, kernel::channel_statistics<X, S>{sets, as_const(x.view()).data(), mean, rstd, epsilon, {}, rest});
        });
}

template <int Rank>
consteval bool check_normed_rank() {
    static_assert(Rank == 4,
                  "halftone: batch_norm and group_norm take images with four axes, (batch, channels, height, width): "
                  "reshape others");
    return true;
}

}  // namespace detail

/// (x - mean) / sqrt(variance + eps) weight + bias with each channel's statistics, as F.batch_norm (Ioffe, Szegedy
/// 2015): in training those of the batch, with which the running ones are updated (there with the unbiased variance);
/// otherwise the running ones. Recorded with its gradients with respect to x, weight and bias. Throws shape_error, also
/// for one value per channel in training, and argument_error.
template <class As = by_category, recording_context Context, class X, int Rank, class Running, class Weight, class Bias>
auto batch_norm(Context&& context, const variable<X, Rank>& x, const Running& running_mean, const Running& running_var,
                const Weight& weight, const Bias& bias, const batch_norm_options& options = {}) {
    static_assert(detail::check_normed_rank<Rank>());
    using Y = chosen_output<As, policy_of<Context>, op::batch_norm, X>;
    return detail::batch_normalised<policy_of<Context>, Y>(context, x, running_mean, running_var,
                                                           detail::as_weight(weight), detail::as_weight(bias), options);
}

/// (x - mean) / sqrt(variance + eps) weight + bias with the statistics of each group of channels of each image, as
/// F.group_norm (Wu, He 2018); num_groups groups of equally many channels, where one group per channel is instance
/// norm. Recorded with its gradients with respect to x, weight and bias. Throws shape_error if num_groups does not
/// divide the channels, and argument_error.
template <class As = by_category, recording_context Context, class X, int Rank, class Weight, class Bias>
auto group_norm(Context&& context, const variable<X, Rank>& x, extent num_groups, const Weight& weight,
                const Bias& bias, double eps = 1e-5) {
    static_assert(detail::check_normed_rank<Rank>());
    using Y = chosen_output<As, policy_of<Context>, op::group_norm, X>;
    return detail::group_normalised<policy_of<Context>, Y>(context, x, num_groups, detail::as_weight(weight),
                                                           detail::as_weight(bias), eps);
}
/// group_norm without weight and bias: each group of channels has mean 0 and variance 1 in each sample.
template <class As = by_category, recording_context Context, class X, int Rank>
auto group_norm(Context&& context, const variable<X, Rank>& x, extent num_groups) {
    return halftone::group_norm<As>(context, x, num_groups, absent{}, absent{});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
