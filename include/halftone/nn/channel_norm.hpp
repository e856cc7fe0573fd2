// SPDX-License-Identifier: MIT
/// \file
/// Normalisation layers for images: batch_norm2d and group_norm, with a weight and a bias per channel.
///
///     ht::nn::batch_norm2d<ht::at<P, "bn1">> bn1{store, channels};
///     ht::nn::group_norm<ht::at<P, "gn1">> gn1{store, 8, channels};
///     auto y = bn1(ctx, x);                                  // (batch, channels, height, width)
///
/// Numeric contract: computed in float. Under a mixed policy weight and bias are the fp32 masters, as for layer_norm;
/// running statistics are fp32 under every policy. The result is rounded once to `output`.
#pragma once

#include <halftone/autodiff/op/channel_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// Options of batch_norm2d, in the order of PyTorch's arguments.
struct batch_norm_settings {
    double eps = 1e-5;      ///< added to variances
    double momentum = 0.1;  ///< weight of the batch's statistics in the running ones
};

/// Batch normalisation of images (Ioffe, Szegedy 2015). On a tape that records, it normalises with the batch's
/// statistics and updates the running ones; in an inference context, and everywhere once `training` is false, it
/// normalises with the running statistics. These are states of the store, "running_mean" and "running_var", stored with
/// weight and bias, and are read, saved and assigned like parameters.
template <class P>
struct batch_norm2d {
    using policy = P;
    using operation = op::group_norm;  // determines the storage of weight and bias
    using computes = op::batch_norm;
    static constexpr bool owns_parameters = true;
    static constexpr bool owns_state = true;

    parameter<storage_signature<P, operation>, 1> weight, bias;  // (channels)
    parameter<state_signature<P>, 1> running_mean, running_var;  // (channels)
    batch_norm_settings settings;
    bool training =
        true;  ///< whether tapes use the batch's statistics; false: as PyTorch's eval() of this layer

    /// Weights are initialised with 1, biases with 0, running means with 0 and running variances with 1. Throws
    /// argument_error for an eps below 0 and a momentum outside [0, 1].
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
    /// shape_error, also for one value per channel in training.
    template <class Context, class X>
    auto operator()(Context&& ctx, const variable<X, 4>& x) const {
        static_assert(
            !halftone::detail::runs_own_operation<Context>,
            "halftone: batch_norm2d: the functions of a custom operation (ht::apply) run in a context that does not "
            "record, where it would use running statistics even in training: call it on the tape, or call "
            "ht::batch_norm, whose options specify whether it trains");
        using roles = layer_roles<P, computes, Context, X>;
        const bool trains = training && std::remove_cvref_t<Context>::records;
        return halftone::detail::batch_normalised<roles, typename roles::output>(
            ctx, x, running_mean, running_var, weight, bias, {trains, settings.momentum, settings.eps});
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

/// Normalisation of each image's groups of channels, with a learnable weight and bias per channel (Wu, He 2018).
template <class P>
struct group_norm {
    using policy = P;
    using operation = op::group_norm;
    static constexpr bool owns_parameters = true;

    parameter<storage_signature<P, operation>, 1> weight, bias;  // (channels)
    extent num_groups;                                           ///< of equally many channels each
    double eps;                                                  ///< added to variances

    /// Weights are initialised with 1, biases with 0. Throws shape_error if the groups do not divide the channels, and
    /// argument_error for an eps below 0.
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
