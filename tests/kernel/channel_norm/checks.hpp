// SPDX-License-Identifier: MIT
/// \file
/// Batch norm and group norm on any device, against their definition.
///
///     channel_norm_checks::all(device);
#pragma once

#include <halftone/kernel/channel_norm/each/function.hpp>
#include <halftone/kernel/channel_norm/reference.hpp>

#include "kernel/axis_reduction/checks.hpp"

namespace channel_norm_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::kernel::channel_sets;
using support::guarded;
using doubles = std::vector<double>;

/// Shapes; groups (0: batch norm); and the offset in elements of x, dy, y and dx from an address that is aligned for
/// vectors. The cases: empty tensors, sets of few elements, segments of several blocks, odd sizes; aligned tensors whose
/// vectors belong to one segment, to two and to several.
struct norm_case {
    ht::shape<4> x;
    extent groups, apart = 1;
    double mean = 0.5, deviation = 1.5, eps = 1e-3;  ///< of x
    /// Whether the rounding of the mean to float would show in y: the kernels take it in double then.
    bool is_far() const { return mean > 5000 * deviation; }
};
inline constexpr norm_case cases[] = {{{1, 1, 1, 2}, 0},   {{3, 4, 1, 1}, 0},  {{2, 3, 5, 7}, 0}, {{2, 6, 9, 31}, 0},
                                      {{2, 3, 33, 40}, 0}, {{0, 3, 4, 4}, 0},  {{2, 0, 3, 3}, 0}, {{2, 3, 0, 4}, 0},
                                      {{2, 6, 9, 31}, 1},  {{2, 6, 9, 31}, 3}, {{2, 6, 5, 1}, 6}, {{1, 4, 1, 33}, 2},
                                      {{0, 4, 3, 3}, 2},   {{2, 3, 8, 40}, 0, 0}, {{4, 2, 9, 10}, 0, 0},
                                      {{8, 2, 1, 3}, 0, 0}, {{2, 4, 6, 14}, 2, 0}};

inline channel_sets sets_of(const norm_case& c) {
    return c.groups == 0 ? ht::detail::batch_sets(c.x) : ht::detail::group_sets("test", c.x, c.groups);
}
inline ht::shape<3> parts_of(const channel_sets& s) { return {s.images, s.channels, s.area}; }
/// The set of element i.
inline std::size_t set_at(const channel_sets& s, extent i) { return static_cast<std::size_t>(s.set_of(i / s.area)); }
inline std::size_t channel_at(const channel_sets& s, extent i) {
    return static_cast<std::size_t>(s.channel_of(i / s.area));
}

/// The statistics of each set, and the bounds of their errors.
struct defined_statistics {
    doubles mean, var, rstd, mean_error, var_error, rstd_error;
};
template <class X, class S>
defined_statistics statistics_of(const channel_sets& sets, const guarded<X>& x, double eps, bool in_double = false) {
    const auto n = static_cast<std::size_t>(sets.sets());
    defined_statistics d{doubles(n), doubles(n), doubles(n), doubles(n), doubles(n), doubles(n)};
    if (sets.elements() == 0) return d;
    ht::reference::channel_statistics(sets, x.const_view(parts_of(sets)), eps, d.mean.data(), d.var.data(),
                                      d.rstd.data());
    for (std::size_t s = 0; s < n; ++s) {
        doubles in;
        ht::reference::for_each_in_set(sets, static_cast<extent>(s), [&](extent i, extent c, extent k) {
            in.push_back(static_cast<double>(x[(i * sets.channels + c) * sets.area + k]));
        });
        const double share = 1 / static_cast<double>(in.size());
        ht::reference::reduced off{0, 0};
        if (!in_double) off = axis_checks::error_of(ht::kernel::axis_operation::var, in, share);
        d.mean_error[s] = support::rounded<float>(d.mean[s], off.kept);
        d.var_error[s] = support::rounded<float>(d.var[s], off.value);
        const double low = std::max(0.0, d.var[s] - d.var_error[s]), high = d.var[s] + d.var_error[s];
        const double larger = 1 / std::sqrt(low + eps) - d.rstd[s], smaller = d.rstd[s] - 1 / std::sqrt(high + eps);
        d.rstd_error[s] = support::rounded<float>(d.rstd[s], std::max(larger, smaller));
    }
    return d;
}

template <class X, class W, class Y, class Device>
void forward(Device& device, const norm_case& c, support::comparison& results, support::comparison& of_statistics) {
    using S = ht::kernel::statistic<X, W, Y>;
    const channel_sets sets = sets_of(c);
    support::random data(static_cast<std::uint64_t>(c.x.size() + c.groups));
    const guarded<X> x(data.normals<X>(c.x.size(), c.deviation, c.mean), c.apart);
    const guarded<W> gain(data.normals<W>(sets.channels, 0.5, 1)), bias(data.normals<W>(sets.channels));
    const guarded<Y> y(c.x.size(), 3 * c.apart);
    const guarded<S> mean(sets.sets()), rstd(sets.sets());
    const std::vector<S> before = data.normals<S>(sets.channels);
    const guarded<S> running_mean(before), running_var(before);
    const double eps = c.eps, momentum = 0.3;
    if (c.groups == 0) {
        ht::batch_norm(device, x.const_view(c.x), running_mean.view(), running_var.view(), gain.const_view(),
                       bias.const_view(), y.view(c.x), mean.view(), rstd.view(), {true, momentum, eps});
    } else {
        ht::group_norm(device, x.const_view(c.x), c.groups, gain.const_view(), bias.const_view(), y.view(c.x),
                       mean.view(), rstd.view(), eps);
    }
    CHECK((y.intact() && mean.intact() && rstd.intact() && running_mean.intact() && running_var.intact()));
    if (sets.elements() == 0) return;
    const defined_statistics d = statistics_of<X, S>(sets, x, eps, c.is_far());
    const auto m = static_cast<double>(sets.set_size());
    for (std::size_t s = 0; s < d.mean.size(); ++s) {
        const auto i = static_cast<extent>(s);
        of_statistics.expect(static_cast<double>(mean[i]), d.mean[s], d.mean_error[s]);
        of_statistics.expect(static_cast<double>(rstd[i]), d.rstd[s], d.rstd_error[s]);
        if (c.groups != 0) continue;
        const auto old = static_cast<double>(before[s]);
        const double at = (1 - momentum) * old + momentum * d.mean[s];
        const double unbiased = d.var[s] * m / (m - 1), of_var = (1 - momentum) * old + momentum * unbiased;
        of_statistics.expect(static_cast<double>(running_mean[i]), at,
                             support::rounded<S>(at, momentum * d.mean_error[s] + 1e-15));
        of_statistics.expect(static_cast<double>(running_var[i]), of_var,
                             support::rounded<S>(of_var, momentum * d.var_error[s] * m / (m - 1) + 1e-15));
    }
    doubles want(static_cast<std::size_t>(c.x.size()));
    ht::reference::channel_norm(sets, x.const_view(parts_of(sets)), d.mean.data(), d.rstd.data(), gain.data(),
                                bias.data(), ht::view<double, 3>(want.data(), parts_of(sets)));
    for (extent i = 0; i < c.x.size(); ++i) {
        const std::size_t s = set_at(sets, i), channel = channel_at(sets, i);
        const double by = std::fabs(static_cast<double>(gain[static_cast<extent>(channel)]));
        const double away = std::fabs(static_cast<double>(x[i]) - d.mean[s]);
        // The roundings of the difference, of both products, and of the sum.
        // A mean that is far from zero is the stored one and the rest, each with its rounding.
        const double off = c.is_far() ? 0 : d.mean_error[s],
                     parts = c.is_far() ? 2 * by * d.mean_error[s] * d.rstd[s] : 0;
        const double most = by * (away + off) * (d.rstd[s] + d.rstd_error[s]);
        const double shift = std::fabs(static_cast<double>(bias[static_cast<extent>(channel)]));
        const double error = most - by * away * d.rstd[s] + support::gamma(4) * (most + shift + parts);
        results.expect(static_cast<double>(y[i]), want[static_cast<std::size_t>(i)],
                       support::rounded<Y>(want[static_cast<std::size_t>(i)], error));
    }
}

/// The gradients; kernel and definition get the same statistics. `training`: of a batch norm with the batch's statistics.
template <class X, class W, class Y, class Device>
void backward(Device& device, const norm_case& c, bool training, support::comparison& inputs,
              support::comparison& parameters) {
    using S = ht::kernel::statistic<X, W, Y>;
    const channel_sets sets = sets_of(c);
    support::random data(static_cast<std::uint64_t>(c.x.size() + c.groups + 3));
    const guarded<X> x(data.normals<X>(c.x.size(), c.deviation, c.mean), c.apart);
    const guarded<Y> dy(data.normals<Y>(c.x.size()), c.apart);
    const guarded<W> gain(data.normals<W>(sets.channels, 0.5, 1));
    const defined_statistics d = statistics_of<X, S>(sets, x, c.eps, c.is_far());
    const bool is_far = c.is_far() && training;
    const guarded<S> mean(sets.sets()), rstd(sets.sets()), dgain(sets.channels), dbias(sets.channels);
    for (extent s = 0; s < sets.sets(); ++s) {
        mean[s] = static_cast<S>(d.mean[static_cast<std::size_t>(s)]);
        rstd[s] = static_cast<S>(d.rstd[static_cast<std::size_t>(s)]);
    }
    const guarded<X> dx(c.x.size(), 5 * c.apart);
    if (c.groups == 0) {
        ht::batch_norm_gradients(device, x.const_view(c.x), gain.const_view(), dy.const_view(c.x), mean.view(),
                                 rstd.view(), dx.view(c.x), dgain.view(), dbias.view(), training);
    } else {
        ht::group_norm_gradients(device, x.const_view(c.x), c.groups, gain.const_view(), dy.const_view(c.x),
                                 mean.view(), rstd.view(), dx.view(c.x), dgain.view(), dbias.view());
    }
    CHECK((dx.intact() && dgain.intact() && dbias.intact()));
    const auto n = static_cast<std::size_t>(c.x.size()), channels = static_cast<std::size_t>(sets.channels);
    doubles means, scales, want(n), of_gain(channels), of_bias(channels), most_of_gain(channels),
        most_of_bias(channels);
    for (extent s = 0; s < sets.sets(); ++s)
        means.push_back(is_far ? d.mean[static_cast<std::size_t>(s)] : static_cast<double>(mean[s])),
            scales.push_back(static_cast<double>(rstd[s]));
    ht::reference::channel_norm_backward(
        sets, x.const_view(parts_of(sets)), means.data(), scales.data(), gain.data(), dy.const_view(parts_of(sets)),
        !training, ht::view<double, 3>(want.data(), parts_of(sets)), of_gain.data(), of_bias.data());
    // Terms are rounded twice, pass through the additions of a segment (the CPU's, or a warp's), and the sums are
    // rounded.
    const extent depth = std::max(ht::kernel::axis_depth(sets.area), sets.area / 32 + 6) + 3;
    doubles plain(scales.size()), weighed(scales.size());
    const auto at = [&](extent i) {
        const std::size_t s = set_at(sets, i), channel = channel_at(sets, i);
        const double slope = std::fabs(static_cast<double>(dy[i]));
        const double off = is_far ? 2 * d.mean_error[s] : 0;
        const double normal = (std::fabs(static_cast<double>(x[i]) - means[s]) + off) * scales[s];
        return std::tuple(s, channel, slope, normal,
                          std::fabs(static_cast<double>(gain[static_cast<extent>(channel)])));
    };
    for (extent i = 0; i < c.x.size(); ++i) {
        const auto [s, channel, slope, normal, by] = at(i);
        plain[s] += slope * by, weighed[s] += slope * by * normal;
        most_of_gain[channel] += slope * normal, most_of_bias[channel] += slope;
    }
    const double relative = support::gamma(static_cast<double>(depth + 8)), m = static_cast<double>(sets.set_size());
    for (extent i = 0; i < c.x.size(); ++i) {
        const auto [s, channel, slope, normal, by] = at(i);
        const double all = slope * by + (training ? plain[s] / m + normal * weighed[s] / m : 0.0);
        const double value = want[static_cast<std::size_t>(i)];
        inputs.expect(static_cast<double>(dx[i]), value, support::rounded<X>(value, relative * scales[s] * all));
    }
    for (std::size_t k = 0; k < channels; ++k) {
        const auto i = static_cast<extent>(k);
        parameters.expect(static_cast<double>(dgain[i]), of_gain[k],
                          support::rounded<S>(of_gain[k], relative * most_of_gain[k]));
        parameters.expect(static_cast<double>(dbias[i]), of_bias[k],
                          support::rounded<S>(of_bias[k], relative * most_of_bias[k]));
    }
}

template <class X, class W, class Y, class Device>
void within_bounds(Device& device) {
    support::comparison results, statistics, inputs, parameters;
    for (const norm_case& c : cases) {
        CAPTURE(c.x);
        CAPTURE(c.groups);
        forward<X, W, Y>(device, c, results, statistics);
        backward<X, W, Y>(device, c, true, inputs, parameters);
        if (c.groups == 0) backward<X, W, Y>(device, c, false, inputs, parameters);
    }
    CHECK_WITHIN(results);
    CHECK_WITHIN(statistics);
    CHECK_WITHIN(inputs);
    CHECK_WITHIN(parameters);
}

/// Values whose mean is 1e4 and whose deviation is 0.011: the rounding of the mean to float alone would put y off by 0.05.
template <class Device>
void far_from_zero(Device& device) {
    support::comparison results, statistics, inputs, parameters;
    for (norm_case c : cases) {
        c.mean = 1e4, c.deviation = 0.011, c.eps = 1e-5;
        CAPTURE(c.x);
        CAPTURE(c.groups);
        forward<float, float, float>(device, c, results, statistics);
        backward<float, float, float>(device, c, true, inputs, parameters);
        if (c.groups == 0) backward<float, float, float>(device, c, false, inputs, parameters);
    }
    CHECK_WITHIN(results);
    CHECK_WITHIN(statistics);
    CHECK_WITHIN(inputs);
    CHECK_WITHIN(parameters);
}

/// Evaluation by running statistics; no gain and no bias; a channel with infinities keeps its running statistics.
template <class Device>
void what_is_special(Device& device) {
    const float inf = std::numeric_limits<float>::infinity();
    const ht::shape<4> s{2, 2, 1, 2};
    const guarded<float> x(std::vector<float>{1, 3, 2, inf, 5, 7, 4, 4}), y(8);
    const guarded<float> running_mean(std::vector<float>{1, 2}), running_var(std::vector<float>{4, 0.25f}), mean(2),
        rstd(2);
    const ht::view<float, 1> none{};
    ht::batch_norm(device, x.const_view(s), running_mean.view(), running_var.view(), none, none, y.view(s), mean.view(),
                   rstd.view(), {false, 0.1, 0});
    CHECK(std::vector<float>(y.data(), y.data() + 8) == std::vector<float>{0, 1, 0, inf, 2, 3, 4, 4});
    ht::batch_norm(device, x.const_view(s), running_mean.view(), running_var.view(), none, none, y.view(s), mean.view(),
                   rstd.view(), {true, 0.5, 0});
    CHECK((mean[0] == 4 && running_mean[0] == 2.5f && running_var[0] == doctest::Approx(2 + 0.5 * 20 / 3)));
    CHECK((running_mean[1] == 2 && running_var[1] == 0.25f));
}

template <class Device>
void refuses(Device& device) {
    const guarded<float> x(12), y(12), three(3), none(0);
    const ht::shape<4> s{1, 3, 2, 2}, one{1, 3, 1, 1};
    const auto c = three.view();
    const auto norm = [&](const ht::shape<4>& shape, const auto& running, const ht::batch_norm_options& o) {
        ht::batch_norm(device, x.const_view(shape), running, running, c, c, y.view(shape), c, c, o);
    };
    CHECK_THROWS_WITH_AS(
        norm(one, c, {true}),
        "batch_norm: one value a channel, whose variance is 0; expected more, or evaluation by running "
        "statistics",
        ht::shape_error);
    CHECK_THROWS_WITH_AS(norm(s, c, {true, 2}), "batch_norm: momentum is 2; expected 0 to 1", ht::argument_error);
    CHECK_THROWS_WITH_AS(norm(s, c, {true, 0.1, -1}), "batch_norm: eps is -1; expected 0 or more", ht::argument_error);
    CHECK_THROWS_WITH_AS(norm(s, ht::view<float, 1>{}, {}),
                         "batch_norm: no running statistics, and without training none of the batch",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(norm(s, x.view(), {}), "batch_norm: running_mean is (12); expected (3)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::group_norm(device, x.const_view(s), 2, c, c, y.view(s), c, c),
                         "group_norm: 3 channels in 2 groups; expected groups of equally many channels",
                         ht::shape_error);
}

/// Results and gradients, for comparisons of bits.
template <class Device>
std::vector<float> many(Device& device) {
    support::random data(9);
    const ht::shape<4> s{5, 6, 27, 31};
    const auto x = data.normals<bfloat16>(s.size()), dy = data.normals<bfloat16>(s.size());
    std::vector<float> statistics(12), gradients(12);
    std::vector<bfloat16> y(x.size()), dx(x.size());
    const ht::view<float, 1> none{}, mean(statistics.data(), {6}), rstd(statistics.data() + 6, {6});
    ht::batch_norm(device, ht::const_view<bfloat16, 4>(x.data(), s), none, none, none, none,
                   ht::view<bfloat16, 4>(y.data(), s), mean, rstd, {true});
    ht::batch_norm_gradients(device, ht::const_view<bfloat16, 4>(x.data(), s), none,
                             ht::const_view<bfloat16, 4>(dy.data(), s), mean, rstd, ht::view<bfloat16, 4>(dx.data(), s),
                             ht::view<float, 1>(gradients.data(), {6}), ht::view<float, 1>(gradients.data() + 6, {6}));
    std::vector<float> all = statistics;
    all.insert(all.end(), gradients.begin(), gradients.end());
    for (const auto& v : {y, dx}) {
        for (const bfloat16 b : v) all.push_back(static_cast<float>(b));
    }
    return all;
}

}  // namespace channel_norm_checks
