// SPDX-License-Identifier: MIT
/// \file
/// Normalisation layers of pictures: batch_norm2d and group_norm, with a weight and a bias a channel.
///
///     ht::nn::batch_norm2d<ht::at<P, "bn1">> bn1{store, channels};
///     ht::nn::group_norm<ht::at<P, "gn1">> gn1{store, 8, channels};
///     auto y = bn1(ctx, x);                                  // (batch, channels, height, width)
///
/// Numeric contract: computed in float; weight and bias are the fp32 masters under a mixed policy, as those of
/// layer_norm; running statistics are fp32 under every policy; the result is rounded once to `output`.
#pragma once

#include <halftone/autodiff/op/channel_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// Options of batch_norm2d, in the order of PyTorch's arguments.
struct batch_norm_settings {
    double eps = 1e-5;      ///< what is added to variances
    double momentum = 0.1;  ///< the batch's weight in the running statistics
};

/// Batch normalisation of pictures (Ioffe, Szegedy 2015). Where a tape records it normalises by the batch's statistics,
/// and brings the running ones up to date; in an inference context, and anywhere once `training` is false, it
/// normalises by the running ones. These are states of the store, "running_mean" and "running_var" beside weight and
/// bias: read, saved and assigned as parameters are.
template <class P>
struct batch_norm2d {
    using policy = P;
    using operation = op::group_norm;  // how weight and bias are stored: as a norm reads them
    using computes = op::batch_norm;
    static constexpr bool owns_parameters = true;
    static constexpr bool owns_state = true;

    parameter<storage_signature<P, operation>, 1> weight, bias;  // (channels)
    parameter<state_signature<P>, 1> running_mean, running_var;  // (channels)
    batch_norm_settings settings;
    bool training =
        true;  ///< whether tapes normalise by the batch's statistics; PyTorch's eval() of this layer alone is false

    /// Weights begin as 1, biases as 0, running statistics as 0 and 1. Throws argument_error for an eps below 0 and a
    /// momentum outside [0, 1].
    batch_norm2d(store& s, extent channels, const batch_norm_settings& options = {})
        : weight(s.add<P, operation>("weight", shape<1>{channels}, initial{.mean = 1.0f})),
          bias(s.add<P, operation>("bias", shape<1>{channels}, initial{})),
          running_mean(s.add_state<P>("running_mean", shape<1>{channels}, initial{})),
          running_var(s.add_state<P>("running_var", shape<1>{channels}, initial{.mean = 1.0f})),
          settings(options) {
        halftone::detail::expect_epsilon("batch_norm2d", options.eps);
        halftone::detail::expect_momentum("batch_norm2d", options.momentum);
    }

    /// x: (batch, channels, height, width); the result has the same shape, in the policy's `output`. Throws
    /// shape_error, also for one value a channel in training.
    template <class Context, class X>
    auto operator()(Context&& ctx, const variable<X, 4>& x) const {
        static_assert(
            !halftone::detail::runs_own_operation<Context>,
            "halftone: batch_norm2d: the functions of an operation of your own (ht::apply) run in a context that "
            "records nothing, where it would not train on a tape either: call it on the tape, or ht::batch_norm, which "
            "is "
            "told whether it trains");
        using roles = layer_roles<P, computes, Context, X>;
        const bool trains = training && std::remove_cvref_t<Context>::records;
        return halftone::detail::batch_normalised<roles, typename roles::output>(
            ctx, x, running_mean, running_var, weight, bias, {trains, settings.momentum, settings.eps});
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

/// Normalisation of each picture's groups of channels, with a learnable weight and bias a channel (Wu, He 2018).
template <class P>
struct group_norm {
    using policy = P;
    using operation = op::group_norm;
    static constexpr bool owns_parameters = true;

    parameter<storage_signature<P, operation>, 1> weight, bias;  // (channels)
    extent num_groups;                                           ///< of equally many channels
    double eps;                                                  ///< what is added to variances

    /// Weights begin as 1, biases as 0. Throws shape_error where channels are no such groups, argument_error for an eps
    /// below 0.
    group_norm(store& s, extent groups, extent channels, double e = 1e-5)
        : weight(s.add<P, operation>("weight", shape<1>{channels}, initial{.mean = 1.0f})),
          bias(s.add<P, operation>("bias", shape<1>{channels}, initial{})),
          num_groups(groups),
          eps(e) {
        halftone::detail::group_sets("group_norm", shape<4>{1, channels, 1, 1}, groups);
        halftone::detail::expect_epsilon("group_norm", e);
    }

    /// x: (batch, channels, height, width); the result has the same shape, in the policy's `output`. Throws
    /// shape_error.
    template <class Context, class X>
    auto operator()(Context&& ctx, const variable<X, 4>& x) const {
        using roles = layer_roles<P, operation, Context, X>;
        return halftone::detail::group_normalised<roles, typename roles::output>(ctx, x, num_groups, weight, bias, eps);
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
