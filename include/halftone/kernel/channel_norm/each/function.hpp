// SPDX-License-Identifier: MIT
/// \file
/// Batch norm and group norm as functions of a device and views:
///
///     ht::batch_norm(device, x, running_mean, running_var, gain, bias, y, mean, rstd, {.training = true});
///     ht::batch_norm_gradients(device, x, gain, dy, mean, rstd, dx, dgain, dbias);
///     ht::group_norm(device, x, 8, gain, bias, y, mean, rstd);
///
/// x, y and their gradients: (batch, channels, height, width), contiguous. Gain, bias and running statistics:
/// (channels), or views without data (ht::view<float, 1>{}), in which case the gain is 1, the bias 0, and no running
/// statistics are updated. Statistics are float, or double if a view has doubles. The functions take no policy, because
/// the element types determine the arithmetic (channel_norm.hpp has the contract).
#pragma once

#include <halftone/kernel/channel_norm/each/whole.hpp>
#include <halftone/kernel/overlap.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of batch_norm, in the order of PyTorch's arguments.
struct batch_norm_options {
    bool training =
        false;  ///< whether to normalise by the batch's statistics and update the running ones
    double momentum = 0.1;  ///< weight of the new statistics in the running ones
    double eps = 1e-5;      ///< added to variances
};

namespace detail {

/// Views of (batch, channels, height, width) and of one value per channel or set, without const and with const.
template <class V>
using image_in = const_view<element_in<V>, 4>;
template <class V>
using image_out = view<element_in<V>, 4>;
template <class V>
using vector_out = view<element_in<V>, 1>;

template <class X, class Y>
void expect_alike(const char* operation, const char* name_of_x, const view<X, 4>& x, const char* name_of_y,
                  const view<Y, 4>& y) {
    kernel::expect(operation, name_of_x, x, x.shape());
    kernel::expect(operation, name_of_y, y, x.shape());
}
/// Throws argument_error for a momentum outside [0, 1].
inline void expect_momentum(const char* operation, double momentum) {
    if (!(momentum >= 0 && momentum <= 1))
        fail<argument_error>(operation, ": momentum is ", momentum, "; expected 0 to 1");
}

/// Writes the statistics that batch norm uses to mean and rstd: those of the batch, or the running ones; and what the
/// batch's means lack to `rest`, if that is not nullptr. Throws shape_error and argument_error.
template <class Device, class X, class R, class S>
void batch_statistics(Device& device, const kernel::channel_sets& sets, const X* x, R* running_mean, R* running_var,
                      const batch_norm_options& options, S* mean, S* rstd, S* rest = nullptr) {
    expect_epsilon("batch_norm", options.eps);
    expect_momentum("batch_norm", options.momentum);
    if ((running_mean == nullptr) != (running_var == nullptr))
        fail<argument_error>("batch_norm: running means without running variances, or the other way round");
    if (options.training) {
        expect_several("batch_norm", sets);
        kernel::channel_each::statistics(
            device, kernel::channel_statistics<X, S, R>{
                        sets, x, mean, rstd, options.eps, {running_mean, running_var, options.momentum}, rest});
    } else {
        if (running_mean == nullptr)
            fail<argument_error>("batch_norm: no running statistics, and without training none of the batch");
        kernel::channel_each::take_statistics(device, sets.channels, running_mean, running_var, options.eps, mean,
                                              rstd);
    }
}

template <class Device, class X, class W, class Y, class S>
void normalise_views(Device& device, const char* operation, const kernel::channel_sets& sets, const const_view<X, 4>& x,
                     const const_view<W, 1>& gain, const const_view<W, 1>& bias, const view<Y, 4>& y, const S* mean,
                     const S* rstd, bool are_given) {
    kernel::expect_optional(operation, "gain", gain, {sets.channels});
    kernel::expect_optional(operation, "bias", bias, {sets.channels});
    expect_apart_or_same(device, operation, "x", x, "y", y);
    expect_apart(device, operation, "gain", gain, "y", y), expect_apart(device, operation, "bias", bias, "y", y);
    kernel::channel_each::normalise(
        device, kernel::channel_norm_forward<X, W, Y>{sets, x.data(), mean, rstd, gain.data(), bias.data(), y.data(),
                                                      are_given});
}
template <class Device, class X, class W, class Y, class S, class G>
void norm_gradient_views(Device& device, const char* operation, const kernel::channel_sets& sets,
                         const const_view<X, 4>& x, const const_view<W, 1>& gain, const const_view<Y, 4>& dy,
                         const const_view<S, 1>& mean, const const_view<S, 1>& rstd, const view<X, 4>& dx,
                         const view<G, 1>& dgain, const view<G, 1>& dbias, bool are_given) {
    expect_alike(operation, "x", x, "dy", dy);
    kernel::expect_optional(operation, "dx", dx, x.shape());
    kernel::expect_optional(operation, "gain", gain, {sets.channels});
    kernel::expect(operation, "mean", mean, {sets.sets()});
    kernel::expect(operation, "rstd", rstd, {sets.sets()});
    kernel::expect_optional(operation, "dgain", dgain, {sets.channels});
    kernel::expect_optional(operation, "dbias", dbias, {sets.channels});
    expect_apart_or_same(device, operation, "x", x, "dx", dx),
        expect_apart_or_same(device, operation, "dy", dy, "dx", dx);
    expect_apart(device, operation, "gain", gain, "dx", dx);
    kernel::channel_each::gradients(device, kernel::channel_norm_backward<X, W, Y, G>{.sets = sets,
                                                                                      .x = x.data(),
                                                                                      .mean = mean.data(),
                                                                                      .rstd = rstd.data(),
                                                                                      .gain = gain.data(),
                                                                                      .dy = dy.data(),
                                                                                      .dx = dx.data(),
                                                                                      .dgain = dgain.data(),
                                                                                      .dbias = dbias.data(),
                                                                                      .are_given = are_given});
}

}  // namespace detail

/// y = (x - mean) rstd gain + bias, with each channel's mean and rstd = 1 / sqrt(variance + eps). In training these are
/// the statistics of x over batch, height and width, and running_mean and running_var are updated with them; otherwise
/// the running statistics are used. mean and rstd, (channels), receive the statistics that were used. Throws
/// shape_error, also for one value per channel in training, and argument_error for an eps below 0 and a momentum
/// outside [0, 1].
template <class Device, class X, class Running, class Gain, class Bias, class Y, class Statistic>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Running, Gain, Bias, Y, Statistic>)
void batch_norm(Device& device, const X& x, const Running& running_mean, const Running& running_var, const Gain& gain,
                const Bias& bias, const Y& y, const Statistic& mean, const Statistic& rstd,
                const batch_norm_options& options = {}) {
    const char* const name = "batch_norm";
    const detail::image_in<X> from = as_view(x);
    const detail::image_out<Y> to = as_view(y);
    const detail::vector_out<Running> of_mean = as_view(running_mean), of_var = as_view(running_var);
    const detail::vector_out<Statistic> used_mean = as_view(mean), used_rstd = as_view(rstd);
    const kernel::channel_sets sets = detail::batch_sets(from.shape());
    detail::expect_alike(name, "x", from, "y", to);
    kernel::expect(name, "mean", used_mean, {sets.channels});
    kernel::expect(name, "rstd", used_rstd, {sets.channels});
    kernel::expect_optional(name, "running_mean", of_mean, {sets.channels});
    kernel::expect_optional(name, "running_var", of_var, {sets.channels});
    detail::batch_statistics(device, sets, from.data(), of_mean.data(), of_var.data(), options, used_mean.data(),
                             used_rstd.data());
    detail::normalise_views<Device, detail::element_in<X>, detail::element_in<Gain>>(
        device, name, sets, from, as_view(gain), as_view(bias), to, used_mean.data(), used_rstd.data(),
        !options.training);
}

/// The gradients of batch_norm, from dy, the gradient of its result, and from the mean and rstd that it has written:
/// dx, which may share dy's memory if their types are equal, and dgain and dbias, which are sums over all axes but the
/// channels. Each of the three may be a view without data. training: whether the statistics are those of the batch.
/// Results are overwritten. Throws shape_error.
template <class Device, class X, class Gain, class Dy, class Statistic, class Dx, class G>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Gain, Dy, Statistic, Dx, G>)
void batch_norm_gradients(Device& device, const X& x, const Gain& gain, const Dy& dy, const Statistic& mean,
                          const Statistic& rstd, const Dx& dx, const G& dgain, const G& dbias, bool training = true) {
    const detail::image_in<X> from = as_view(x);
    detail::norm_gradient_views<Device, detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Dy>,
                                detail::element_in<Statistic>, detail::element_in<G>>(
        device, "batch_norm gradients", detail::batch_sets(from.shape()), from, as_view(gain), as_view(dy),
        as_view(mean), as_view(rstd), as_view(dx), as_view(dgain), as_view(dbias), !training);
}

/// y = (x - mean) rstd gain + bias, with the mean and 1 / sqrt(variance + eps) of each group of channels of each image,
/// over height and width. Each image has num_groups groups of equally many channels. The statistics are written to mean
/// and rstd, (batch * num_groups). Throws shape_error if num_groups does not divide the channels, and argument_error
/// for an eps below 0.
template <class Device, class X, class Gain, class Bias, class Y, class Statistic>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Gain, Bias, Y, Statistic>)
void group_norm(Device& device, const X& x, extent num_groups, const Gain& gain, const Bias& bias, const Y& y,
                const Statistic& mean, const Statistic& rstd, double eps = 1e-5) {
    const char* const name = "group_norm";
    const detail::image_in<X> from = as_view(x);
    const detail::image_out<Y> to = as_view(y);
    const detail::vector_out<Statistic> used_mean = as_view(mean), used_rstd = as_view(rstd);
    const kernel::channel_sets sets = detail::group_sets(name, from.shape(), num_groups);
    detail::expect_alike(name, "x", from, "y", to);
    detail::expect_epsilon(name, eps);
    kernel::expect(name, "mean", used_mean, {sets.sets()});
    kernel::expect(name, "rstd", used_rstd, {sets.sets()});
    using statistic = detail::element_in<Statistic>;
    kernel::channel_each::statistics(device, kernel::channel_statistics<detail::element_in<X>, statistic>{
                                                 sets, from.data(), used_mean.data(), used_rstd.data(), eps});
    detail::normalise_views<Device, detail::element_in<X>, detail::element_in<Gain>>(
        device, name, sets, from, as_view(gain), as_view(bias), to, used_mean.data(), used_rstd.data(), false);
}
/// The gradients of group_norm, with the arguments of batch_norm_gradients. Throws shape_error.
template <class Device, class X, class Gain, class Dy, class Statistic, class Dx, class G>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Gain, Dy, Statistic, Dx, G>)
void group_norm_gradients(Device& device, const X& x, extent num_groups, const Gain& gain, const Dy& dy,
                          const Statistic& mean, const Statistic& rstd, const Dx& dx, const G& dgain, const G& dbias) {
    const char* const name = "group_norm gradients";
    const detail::image_in<X> from = as_view(x);
    detail::norm_gradient_views<Device, detail::element_in<X>, detail::element_in<Gain>, detail::element_in<Dy>,
                                detail::element_in<Statistic>, detail::element_in<G>>(
        device, name, detail::group_sets(name, from.shape(), num_groups), from, as_view(gain), as_view(dy),
        as_view(mean), as_view(rstd), as_view(dx), as_view(dgain), as_view(dbias), false);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
