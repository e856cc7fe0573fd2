// SPDX-License-Identifier: MIT
/// \file
/// The whole operations of normalisation by channels, composed of the functions that each device specialises;
/// channel_norm.hpp has the contract.
///
///     kernel::channel_each::statistics(device, kernel::channel_statistics<float, float>{sets, x, mean, rstd});
///     kernel::channel_each::normalise(device, kernel::channel_norm_forward<float, float, float>{...});
#pragma once

#include <halftone/kernel/channel_norm/each/tables.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace channel_each {

/// The elements of each set, as those that are reduced to one output.
inline axis_layout layout_of(const channel_sets& s) {
    const bool is_batch = s.groups == 0, has_two[] = {false, true}, has_three[] = {true, false, true};
    if (is_batch)
        return make_axis_layout(shape<3>{s.images, s.channels, s.area}, {s.channels * s.area, s.area, 1}, has_three);
    return make_axis_layout(shape<2>{s.sets(), s.set_size()}, {s.set_size(), 1}, has_two);
}

/// What the stored means of sets far from zero lack, one for each set, and 0 for all others: `kept`, or if that is
/// nullptr computed, in `memory`. Nothing if the statistics are given, or in double.
template <class Device, class X, class S>
global_span<const S> rests(Device& device, const channel_sets& sets, const X* x, const S* mean, const S* rstd,
                           bool are_given, const S* kept, S* memory) {
    if (std::is_same_v<S, double> || are_given || sets.elements() == 0) return {};
    const extent count = sets.sets();
    if (kept != nullptr) return {kept, count};
    channel_norm<Device>::center(
        device, far_mean<X, S>{
                    {x, sets.elements()}, layout_of(sets), {mean, count}, {rstd, count}, {}, {}, {memory, count}, 0});
    return {memory, count};
}

/// The mean and 1 / sqrt(variance + epsilon) of each set.
template <class Device, class X, class S, class R>
void statistics(Device& device, const channel_statistics<X, S, R>& a) {
    const channel_sets& sets = a.sets;
    const extent count = sets.sets(), size = sets.set_size();
    if (sets.elements() == 0) return;
    const workspace::lease memory(device.scratch(), static_cast<std::size_t>(count) * sizeof(S));
    S* const var = memory.template as<S>();
    const axis_layout layout = layout_of(sets);
    axis_reduction<Device>::run(device, reduction<X, S>{.x = a.x,
                                                        .layout = layout,
                                                        .y = var,
                                                        .operation = axis_operation::var,
                                                        .factor = 1.0 / static_cast<double>(size),
                                                        .kept = a.mean});
    if constexpr (!std::is_same_v<S, double>)
        channel_norm<Device>::center(
            device,
            far_mean<X, S>{
                {a.x, sets.elements()}, layout, {a.mean, count}, {}, {a.mean, count}, {var, count},
                {a.rest, a.rest == nullptr ? 0 : count}, a.epsilon});
    const double unbiased = size < 2 ? 1.0 : static_cast<double>(size) / static_cast<double>(size - 1);
    fp64::for_each(device, count, 4,
                   finish_statistics<S, R>{{a.mean, count},
                                           {var, count},
                                           {a.rstd, count},
                                           {a.running.mean, a.running.mean == nullptr ? 0 : count},
                                           {a.running.var, a.running.var == nullptr ? 0 : count},
                                           a.epsilon,
                                           a.running.momentum,
                                           unbiased});
}
/// Converts running statistics to the mean and 1 / sqrt(variance + epsilon) of each channel.
template <class Device, class R, class S>
void take_statistics(Device& device, extent channels, const R* running_mean, const R* running_var, double epsilon,
                     S* mean, S* rstd) {
    if (channels == 0) return;
    fp64::for_each(device, channels, 4,
                   given_statistics<S, R>{
                       {running_mean, channels}, {running_var, channels}, {mean, channels}, {rstd, channels}, epsilon});
}

/// y = (x - mean) rstd gain + bias.
template <class Device, class X, class W, class Y>
void normalise(Device& device, const channel_norm_forward<X, W, Y>& a) {
    using S = statistic<X, W, Y>;
    const channel_sets& sets = a.sets;
    if (sets.elements() == 0) return;
    const extent segments = sets.segments(), count = sets.sets(), channels = sets.channels;
    const workspace::lease memory(device.scratch(), static_cast<std::size_t>(segments) * sizeof(segment_line<S>));
    auto* const table = memory.template as<segment_line<S>>();
    const workspace::lease lacking(device.scratch(), a.rest == nullptr ? static_cast<std::size_t>(count) * sizeof(S) : 0);
    const auto rest = rests(device, sets, a.x, a.mean, a.rstd, a.are_given, a.rest, lacking.template as<S>());
    fp64::for_each(device, segments, 8,
                   make_line<S, W>{sets,
                                   {a.mean, count},
                                   rest,
                                   {a.rstd, count},
                                   {a.gain, a.gain == nullptr ? 0 : channels},
                                   {a.bias, a.bias == nullptr ? 0 : channels},
                                   {table, segments}});
    channel_norm<Device>::apply(device, sets, a.x, static_cast<const segment_line<S>*>(table), a.y);
}

/// The gradients of x, gain and bias; those whose pointer is nullptr are not computed.
template <class Device, class X, class W, class Y, class G>
void gradients(Device& device, const channel_norm_backward<X, W, Y, G>& a) {
    using S = statistic<X, W, Y>;
    const channel_sets& sets = a.sets;
    const extent segments = sets.segments(), count = sets.sets(), channels = sets.channels;
    const bool sums_wanted = a.dgain != nullptr || a.dbias != nullptr || (a.dx != nullptr && !a.are_given);
    const workspace::lease of_sums(device.scratch(), static_cast<std::size_t>(segments) * sizeof(segment_sums<S>));
    const workspace::lease of_slopes(device.scratch(), static_cast<std::size_t>(segments) * sizeof(segment_slope<S>));
    auto* const sums = of_sums.template as<segment_sums<S>>();
    auto* const slopes = of_slopes.template as<segment_slope<S>>();
    const workspace::lease lacking(device.scratch(), a.rest == nullptr ? static_cast<std::size_t>(count) * sizeof(S) : 0);
    const auto rest = rests(device, sets, a.x, a.mean, a.rstd, a.are_given, a.rest, lacking.template as<S>());
    if (sums_wanted && segments > 0) channel_norm<Device>::sums(device, sets, a.x, a.mean, a.dy, sums);
    if ((a.dgain != nullptr || a.dbias != nullptr) && channels > 0) {
        fp64::for_each(device, channels, 4 * sets.images,
                       sum_channel<S, G>{sets,
                                         {sums, segments},
                                         rest,
                                         {a.rstd, count},
                                         {a.dgain, a.dgain == nullptr ? 0 : channels},
                                         {a.dbias, a.dbias == nullptr ? 0 : channels},
                                         a.gain_mode,
                                         a.bias_mode});
    }
    if (a.dx == nullptr || sets.elements() == 0) return;
    fp64::for_each(device, count, 8 * sets.in_set(),
                   make_slopes<S, W>{sets,
                                     {sums, segments},
                                     {a.mean, count},
                                     rest,
                                     {a.rstd, count},
                                     {a.gain, a.gain == nullptr ? 0 : channels},
                                     {slopes, segments},
                                     a.are_given});
    channel_norm<Device>::input_gradient(device, sets, a.x, a.dy, static_cast<const segment_slope<S>*>(slopes), a.dx,
                                         a.dx_mode);
}

// ---- for doubles, on every device

template <class Device, class X, class Y, class S>
void apply_each(Device& device, const channel_sets& sets, const X* x, const segment_line<S>* table, Y* y) {
    const extent n = sets.elements();
    fp64::for_each(device, n, 2, apply_line<S, X, Y>{sets.area, {x, n}, {table, sets.segments()}, {y, n}});
}
template <class Device, class X, class Y, class S>
void input_gradient_each(Device& device, const channel_sets& sets, const X* x, const Y* dy,
                         const segment_slope<S>* table, X* dx, write_mode mode) {
    const extent n = sets.elements();
    fp64::for_each(device, n, 3,
                   apply_slope<S, X, Y>{sets.area, {x, n}, {dy, n}, {table, sets.segments()}, {dx, n}, mode});
}
template <class Device, class X, class Y>
void sums_each(Device& device, const channel_sets& sets, const X* x, const double* mean, const Y* dy,
               segment_sums<double>* sums) {
    const extent n = sets.elements();
    fp64::for_each(device, sets.segments(), 2 * sets.area,
                   sum_segment<X, Y>{sets, {x, n}, {dy, n}, {mean, sets.sets()}, {sums, sets.segments()}});
}

}  // namespace channel_each

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
