// SPDX-License-Identifier: MIT
/// \file
/// Normalisation of pictures (batch, channels, height, width) with a gain and a bias a channel: batch norm (Ioffe,
/// Szegedy 2015), whose statistics are a channel's over the whole batch, and group norm (Wu, He 2018), whose statistics
/// are a picture's over a group of channels.
///
///     ht::batch_norm(device, x, gain, bias, y, mean, rstd);                           // by the batch's statistics
///     ht::batch_norm_by(device, x, running_mean, running_var, gain, bias, y);         // by those of another time
///     ht::group_norm(device, x, 8, gain, bias, y, mean, rstd);                        // 8 groups of channels
///
///     y = (x - mean) rstd gain + bias,      rstd = 1 / sqrt(mean of (x - mean)^2 + epsilon)
///
/// Both are one operation: a picture's channel is a segment of height times width elements that lie side by side, and
/// segments that are normalised together are a set: those of a channel, or those of a picture's group.
///
/// Numeric contract: statistics are axis_reduction's mean and variance, in two passes; all else is in float, but for
/// what is made of a set's or a channel's sums, which is in double; y, and dx, are rounded once. Sums for gradients: a
/// segment's in float, by blocks of axis_block on the CPU, by a warp on a GPU, then those of segments in double, in
/// their order. Squares that overflow float make the variance infinite and y = bias. Where a view holds doubles, all is
/// in double. All views are contiguous.
#pragma once

#include <cstdint>

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Which segments are normalised together.
struct channel_sets {
    extent images = 0, channels = 0, area = 0;
    extent groups = 0;  ///< of a picture's channels; 0: a channel of all pictures is a set

    HALFTONE_HD constexpr extent segments() const { return images * channels; }
    HALFTONE_HD constexpr extent elements() const { return segments() * area; }
    HALFTONE_HD constexpr extent sets() const { return groups == 0 ? channels : images * groups; }
    /// Segments of a set, and its elements.
    HALFTONE_HD constexpr extent in_set() const { return groups == 0 ? images : channels / groups; }
    HALFTONE_HD constexpr extent set_size() const { return in_set() * area; }
    HALFTONE_HD constexpr extent channel_of(extent segment) const { return segment % channels; }
    HALFTONE_HD constexpr extent set_of(extent segment) const {
        return groups == 0 ? segment % channels : segment / (channels / groups);
    }
    /// Segment number i of a set.
    HALFTONE_HD constexpr extent segment_of(extent set, extent i) const {
        return groups == 0 ? i * channels + set : set * in_set() + i;
    }
};

/// Running statistics of batch norm, updated where they are there: running = (1 - momentum) running + momentum new,
/// where the new variance is the unbiased one. A channel whose new statistics are not finite keeps its old ones.
template <class R>
struct running_statistics {
    R *mean = nullptr, *var = nullptr;  ///< of each channel
    double momentum = 0.1;
};

/// The statistics of each set, of x.
template <class X, class S, class R = S>
struct channel_statistics {
    channel_sets sets;
    const X* x;
    S *mean, *rstd;  ///< of each set
    double epsilon = 1e-5;
    running_statistics<R> running{};
};
template <class X, class W, class Y>
struct channel_norm_forward {
    using S = statistic<X, W, Y>;
    channel_sets sets;
    const X* x;
    const S *mean, *rstd;  ///< of each set
    const W *gain, *bias;  ///< of each channel; nullptr: 1, and 0
    Y* y;
};
template <class X, class W, class Y, class G>
struct channel_norm_backward {
    using S = statistic<X, W, Y>;
    channel_sets sets;
    const X* x;
    const S *mean, *rstd;
    const W* gain;
    const Y* dy;
    X* dx;                                 ///< nullptr: not wanted
    G *dgain = nullptr, *dbias = nullptr;  ///< of each channel; nullptr: not wanted
    bool are_given = false;                ///< whether the statistics are those of another time, and no functions of x
    write_mode dx_mode = write_mode::overwrite, gain_mode = write_mode::overwrite, bias_mode = write_mode::overwrite;
};

/// Specialised for each device: apply(device, sets, x, table, y), sums(device, sets, x, mean, dy, sums),
/// input_gradient(device, sets, x, dy, table, dx, mode), where tables have what each segment's elements are computed
/// with (each/tables.hpp). The functions of each/whole.hpp make an operation of these.
template <class Device>
struct channel_norm;

}  // namespace kernel

namespace detail {

/// The sets of a batch of pictures. Throws shape_error where channels are no groups of one size.
inline kernel::channel_sets batch_sets(const shape<4>& x) { return {x[0], x[1], x[2] * x[3], 0}; }
inline kernel::channel_sets group_sets(const char* operation, const shape<4>& x, extent num_groups) {
    if (num_groups < 1 || x[1] % num_groups != 0)
        fail<shape_error>(operation, ": ", x[1], " channels in ", num_groups,
                          " groups; expected groups of equally many channels");
    return {x[0], x[1], x[2] * x[3], num_groups};
}
/// Throws shape_error where a batch has one value a channel at most, whose variance says nothing.
inline void expect_several(const char* operation, const kernel::channel_sets& sets) {
    if (sets.elements() != 0 && sets.set_size() < 2)
        fail<shape_error>(operation,
                          ": one value a channel, whose variance is 0; expected more, or evaluation by running "
                          "statistics");
}
/// Throws argument_error for an epsilon that is negative or NaN.
inline void expect_epsilon(const char* operation, double epsilon) {
    if (!(epsilon >= 0)) fail<argument_error>(operation, ": eps is ", epsilon, "; expected 0 or more");
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
