// SPDX-License-Identifier: MIT
/// \file
/// Normalisation of images (batch, channels, height, width) with a gain and a bias per channel: batch norm (Ioffe,
/// Szegedy 2015), which computes the statistics of each channel over the whole batch, and group norm (Wu, He 2018),
/// which computes the statistics of each image over a group of channels.
///
///     ht::batch_norm(device, x, gain, bias, y, mean, rstd);                           // with the batch's statistics
///     ht::batch_norm_by(device, x, running_mean, running_var, gain, bias, y);         // with running statistics
///     ht::group_norm(device, x, 8, gain, bias, y, mean, rstd);                        // 8 groups of channels
///
///     y = (x - mean) rstd gain + bias,      rstd = 1 / sqrt(mean of (x - mean)^2 + epsilon)
///
/// Both are the same operation. One channel of one image is a segment of height * width contiguous elements, and
/// segments that are normalised together form a set: all segments of a channel, or those of one image's group.
///
/// Numeric contract: mean and variance are computed as by axis_reduction, in two passes. A mean is stored as a float,
/// and x - mean is off by that rounding, 2^-24 |mean| in units of x. Where |mean| rstd is more than 2^8 (far_mean), so
/// that y would be off by more than 2^-16 times the gain, the variance, and what the stored mean lacks, are computed in
/// double, and y and all gradients are those of the mean in double. A tape keeps what the mean lacks; the functions of
/// views compute it in the backward pass again. In layer norm such rows
/// are in double, too, but its backward pass takes the stored mean (kernel/norm/layer_norm.hpp). Values per set or per
/// channel that follow from sums are computed in double, all other values in float; y and dx are rounded once. The sums
/// of the gradients are computed in float within a segment (on the CPU in blocks of axis_block elements, on a GPU by
/// one warp), and the sums of the segments are added in double, in their order. If the variance is beyond float's range
/// it is infinite and y = bias, but NaN where x - mean overflows, too. If a view has doubles, everything is computed in
/// double. All views are contiguous.
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
    extent groups = 0;  ///< per image; 0: one channel of all images is a set

    HALFTONE_HD constexpr extent segments() const { return images * channels; }
    HALFTONE_HD constexpr extent elements() const { return segments() * area; }
    HALFTONE_HD constexpr extent sets() const { return groups == 0 ? channels : images * groups; }
    /// The number of segments of a set, and of its elements.
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

/// The running statistics of batch norm. Each one that has memory is updated: running = (1 - momentum) running +
/// momentum new, where the new variance is the unbiased estimate. A channel whose new statistics are not finite keeps
/// its previous ones.
template <class R>
struct running_statistics {
    R *mean = nullptr, *var = nullptr;  ///< (channels)
    double momentum = 0.1;
};

/// The arguments of the computation of each set's statistics from x.
template <class X, class S, class R = S>
struct channel_statistics {
    channel_sets sets;
    const X* x;
    S *mean, *rstd;  ///< (sets)
    double epsilon = 1e-5;
    running_statistics<R> running{};
    S* rest = nullptr;  ///< (sets); if not nullptr, receives what the stored means lack
};
template <class X, class W, class Y>
struct channel_norm_forward {
    using S = statistic<X, W, Y>;
    channel_sets sets;
    const X* x;
    const S *mean, *rstd;  ///< (sets)
    const W *gain, *bias;  ///< (channels); if nullptr, 1 and 0
    Y* y;
    bool are_given = false;   ///< whether the statistics are constants instead of functions of x
    const S* rest = nullptr;  ///< (sets): what the statistics have written; if nullptr it is computed from x again
};
template <class X, class W, class Y, class G>
struct channel_norm_backward {
    using S = statistic<X, W, Y>;
    channel_sets sets;
    const X* x;
    const S *mean, *rstd;
    const W* gain;
    const Y* dy;
    X* dx;                                 ///< not computed if nullptr
    G *dgain = nullptr, *dbias = nullptr;  ///< (channels); not computed if nullptr
    bool are_given = false;                ///< whether the statistics are constants instead of functions of x
    write_mode dx_mode = write_mode::overwrite, gain_mode = write_mode::overwrite, bias_mode = write_mode::overwrite;
    const S* rest = nullptr;  ///< (sets): what the statistics have written; if nullptr it is computed from x again
};

/// Specialised for each device: apply(device, sets, x, table, y), sums(device, sets, x, mean, dy, sums),
/// input_gradient(device, sets, x, dy, table, dx, mode), center(device, far_mean), which calls its put() for each set.
/// A table has the coefficients for the elements of each segment (each/tables.hpp). The functions of each/whole.hpp
/// compose the whole operation of these.
template <class Device>
struct channel_norm;

}  // namespace kernel

namespace detail {

/// The sets of batch norm, and of group norm, which throws shape_error if num_groups does not divide the channels.
inline kernel::channel_sets batch_sets(const shape<4>& x) { return {x[0], x[1], x[2] * x[3], 0}; }
inline kernel::channel_sets group_sets(const char* operation, const shape<4>& x, extent num_groups) {
    if (num_groups < 1 || x[1] % num_groups != 0)
        fail<shape_error>(operation, ": ", x[1], " channels in ", num_groups,
                          " groups; expected groups of equally many channels");
    return {x[0], x[1], x[2] * x[3], num_groups};
}
/// Throws shape_error if a batch has at most one value per channel, because its variance would be 0.
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
