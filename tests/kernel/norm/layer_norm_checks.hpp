// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation of any device against its definition.
///
///     layer_norm_checks::forward_within_bounds<layer_norm_checks::mixed>(device, rows, width, 1e-5f, true);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/norm/layer_norm.hpp>
#include <halftone/kernel/norm/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/policy/presets.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace layer_norm_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::write_mode;
using support::guarded;
using doubles = std::vector<double>;

template <class X_, class W_, class Y_, class G_>
struct types {
    using X = X_;
    using W = W_;
    using Y = Y_;
    using G = G_;
};
using all_float = types<float, float, float, float>;
using mixed = types<bfloat16, float, bfloat16, float>;
using widening = types<float16, bfloat16, float, bfloat16>;
using narrow = types<float16, float16, float16, float>;

double magnitude_mean(const auto& term, extent count) {
    double sum = 0;
    for (extent j = 0; j < count; ++j) sum += std::fabs(term(j));
    return sum / static_cast<double>(count);
}

/// apart: the distance in elements of the arrays from a vector-aligned address; 0: all are aligned.
template <class M, class Device>
void forward_within_bounds(Device& device, extent rows, extent width, float epsilon, bool with_bias, extent apart = 1) {
    CAPTURE(width);
    using support::gamma, support::u;
    support::random data(static_cast<std::uint64_t>(width));
    const guarded<typename M::X> x(data.normals<typename M::X>(rows * width, 1, 0.5), apart);
    const guarded<typename M::W> gain(data.normals<typename M::W>(width, 0.5, 1), 3 * apart),
        bias(data.normals<typename M::W>(width), 5 * apart);
    const guarded<typename M::Y> y(rows * width, 7 * apart);
    const guarded<float> mean(rows), rstd(rows);
    const ht::const_view<typename M::W, 1> bias_view =
        with_bias ? bias.const_view() : ht::const_view<typename M::W, 1>{};
    ht::layer_norm<ht::amp_bf16>(device, x.const_view(ht::shape<2>{rows, width}), gain.const_view(), bias_view,
                                 y.view(ht::shape<2>{rows, width}), mean.view(), rstd.view(),
                                 static_cast<double>(epsilon));

    doubles want(static_cast<std::size_t>(rows * width)), want_mean(static_cast<std::size_t>(rows)),
        want_rstd(static_cast<std::size_t>(rows));
    const ht::view<double, 2> wanted(want.data(), {rows, width});
    ht::reference::layer_norm(x.const_view(ht::shape<2>{rows, width}), gain.const_view(), bias_view,
                              static_cast<double>(epsilon), wanted, ht::view<double, 1>(want_mean.data(), {rows}),
                              ht::view<double, 1>(want_rstd.data(), {rows}));

    const double depth = static_cast<double>(ht::kernel::sum_depth(width));
    support::comparison ys, means, rstds;
    for (extent i = 0; i < rows; ++i) {
        const double average = want_mean[static_cast<std::size_t>(i)], scale = want_rstd[static_cast<std::size_t>(i)];
        const double mean_error =
            gamma(depth + 1) * magnitude_mean([&](extent j) { return static_cast<double>(x[i * width + j]); }, width);
        // The squares around an inexact mean are too large by its error squared; each passes through the sum, the
        // difference and the product (twice the difference's error), the division and epsilon's addition.
        const double relative = gamma(depth + 5) + mean_error * mean_error * scale * scale;
        const double rstd_error = relative / 2 / ((1 - relative) * (1 - relative)) + gamma(2);
        means.expect(static_cast<double>(mean[i]), average, mean_error);
        rstds.expect(static_cast<double>(rstd[i]), scale, rstd_error * scale);
        for (extent j = 0; j < width; ++j) {
            const double g = std::fabs(static_cast<double>(gain[j])),
                         b = with_bias ? std::fabs(static_cast<double>(bias[j])) : 0;
            const double deviation = std::fabs(static_cast<double>(x[i * width + j]) - average);
            const double normalised_error =
                mean_error * scale * (1 + rstd_error + gamma(3)) + deviation * scale * (rstd_error + gamma(3));
            const double error = g * normalised_error * (1 + u) + u * (g * deviation * scale + b);
            ys.expect(static_cast<double>(y[i * width + j]), wanted(i, j),
                      support::rounded<typename M::Y>(wanted(i, j), error));
        }
    }
    if (width > 1 || with_bias) CHECK_WITHIN(ys);
    CHECK_WITHIN(means);
    CHECK_WITHIN(rstds);
    CHECK(y.intact());
    CHECK(mean.intact());
    CHECK(rstd.intact());
}

template <class M, class Device>
void backward_within_bounds(Device& device, extent rows, extent width, write_mode mode, extent apart = 1) {
    CAPTURE(width);
    using support::gamma, support::u;
    using X = typename M::X;
    using G = typename M::G;
    support::random data(static_cast<std::uint64_t>(width));
    const ht::shape<2> shape{rows, width};
    const guarded<X> x(data.normals<X>(rows * width, 1, 0.5), apart), dx(data.normals<X>(rows * width), 3 * apart),
        old_dx(std::vector<X>(dx.data(), dx.data() + dx.size()));
    const guarded<typename M::W> gain(data.normals<typename M::W>(width, 0.5, 1), 5 * apart);
    const guarded<typename M::Y> dy(data.normals<typename M::Y>(rows * width), 7 * apart);
    const guarded<float> mean(data.normals<float>(rows, 0.1, 0.5)), rstd(data.normals<float>(rows, 0.1, 1));
    const guarded<G> dgain(data.normals<G>(width), 1), dbias(data.normals<G>(width), 2);
    const guarded<G> old_dgain(std::vector<G>(dgain.data(), dgain.data() + width)),
        old_dbias(std::vector<G>(dbias.data(), dbias.data() + width));

    ht::layer_norm_gradients<ht::amp_bf16>(device, x.const_view(shape), gain.const_view(), dy.const_view(shape),
                                           mean.const_view(), rstd.const_view(), dx.view(shape), dgain.view(),
                                           dbias.view(), mode, mode);

    doubles want(static_cast<std::size_t>(rows * width)), want_dgain(static_cast<std::size_t>(width)),
        want_dbias(static_cast<std::size_t>(width));
    ht::reference::layer_norm_backward(x.const_view(shape), gain.const_view(), dy.const_view(shape), mean.const_view(),
                                       rstd.const_view(), ht::view<double, 2>(want.data(), shape),
                                       ht::view<double, 1>(want_dgain.data(), {width}),
                                       ht::view<double, 1>(want_dbias.data(), {width}));

    const bool adds = mode == write_mode::add;
    const double depth = static_cast<double>(ht::kernel::sum_depth(width));
    support::comparison dxs, dgains, dbiases;
    for (extent i = 0; i < rows; ++i) {
        const double scale = static_cast<double>(rstd[i]);
        const auto n = [&](extent j) {
            return (static_cast<double>(x[i * width + j]) - static_cast<double>(mean[i])) * scale;
        };
        const auto h = [&](extent j) { return static_cast<double>(dy[i * width + j]) * static_cast<double>(gain[j]); };
        const double mean_h = magnitude_mean(h, width),
                     mean_hn = magnitude_mean([&](extent j) { return h(j) * n(j); }, width);
        for (extent j = 0; j < width; ++j) {
            // h is rounded once, n twice; their means also by the sum and the division; four operations follow.
            const double size = std::fabs(h(j)) + mean_h + std::fabs(n(j)) * mean_hn;
            const double error = scale * (gamma(depth + 7) * (mean_h + std::fabs(n(j)) * mean_hn) +
                                          u * std::fabs(h(j)) + gamma(4) * size);
            const double old = adds ? static_cast<double>(old_dx[i * width + j]) : 0.0;
            const double wanted = want[static_cast<std::size_t>(i * width + j)] + old;
            dxs.expect(static_cast<double>(dx[i * width + j]), wanted,
                       support::rounded<X>(wanted, error + (adds ? u * (std::fabs(wanted) + error) : 0)));
        }
    }
    for (extent j = 0; j < width; ++j) {
        double gain_terms = 0, bias_terms = 0;
        for (extent i = 0; i < rows; ++i) {
            const double d = std::fabs(static_cast<double>(dy[i * width + j]));
            gain_terms += d * std::fabs(static_cast<double>(x[i * width + j]) - static_cast<double>(mean[i])) *
                          static_cast<double>(rstd[i]);
            bias_terms += d;
        }
        const double chain =
            static_cast<double>(rows) + 2;  // for any order of additions; the last two: partial sums, the old value
        const double old_g = adds ? static_cast<double>(old_dgain[j]) : 0,
                     old_b = adds ? static_cast<double>(old_dbias[j]) : 0;
        const double g = want_dgain[static_cast<std::size_t>(j)] + old_g,
                     b = want_dbias[static_cast<std::size_t>(j)] + old_b;
        dgains.expect(static_cast<double>(dgain[j]), g,
                      support::rounded<G>(g, gamma(chain + 3) * (gain_terms + std::fabs(old_g))));
        dbiases.expect(static_cast<double>(dbias[j]), b,
                       support::rounded<G>(b, gamma(chain) * (bias_terms + std::fabs(old_b))));
    }
    if (width > 1 || adds) CHECK_WITHIN(dxs);
    CHECK_WITHIN(dgains);
    CHECK_WITHIN(dbiases);
    CHECK(dx.intact());
    CHECK(dgain.intact());
    CHECK(dbias.intact());
}

template <class Device>
void what_is_exact(Device& device) {
    constexpr extent rows = 2, width = 37;
    const ht::shape<2> shape{rows, width};
    support::random data(3);
    const guarded<float> gain(data.normals<float>(width)), bias(data.normals<float>(width)), mean(rows), rstd(rows);

    // The deviation of a constant row is 0: the result is the bias.
    const guarded<bfloat16> x(std::vector<bfloat16>(rows * width, bfloat16(-12.0f)));
    const guarded<float> y(rows * width);
    ht::kernel::layer_norm<Device>::template forward<bfloat16, float, float>(device, {.x = x.const_view(shape),
                                                         .gain = gain.const_view(),
                                                         .bias = bias.const_view(),
                                                         .y = y.view(shape),
                                                         .mean = mean.view(),
                                                         .rstd = rstd.view()});
    for (extent i = 0; i < rows; ++i) {
        CHECK(mean[i] == -12.0f);
        for (extent j = 0; j < width; ++j) CHECK(y[i * width + j] == bias[j]);
    }

    // Frozen parameters: only dx, written in place of dy, with the same bits as in separate memory.
    const guarded<float> other(data.normals<float>(rows * width)), dy(data.normals<float>(rows * width)),
        dx(rows * width);
    const auto backward = [&](ht::view<float, 2> to) {
        ht::kernel::layer_norm<Device>::template backward<float, float, float, float>(device,
                                                                                      {.x = other.const_view(shape),
                                                                                       .gain = gain.const_view(),
                                                                                       .dy = dy.const_view(shape),
                                                                                       .mean = mean.const_view(),
                                                                                       .rstd = rstd.const_view(),
                                                                                       .dx = to});
    };
    backward(dx.view(shape));
    backward(dy.view(shape));
    CHECK(dx.same_bits(dy));
}

template <class Device>
void no_rows_at_all(Device& device) {
    const guarded<float> gain(std::vector<float>{1, 1, 1}), dgain(std::vector<float>{5, 5, 5}),
        dbias(std::vector<float>{5, 5, 5});
    const ht::view<float, 2> none(nullptr, {0, 3});
    const ht::view<float, 1> no_rows(nullptr, {0});
    ht::kernel::layer_norm<Device>::template forward<float, float, float>(
        device, {.x = none, .gain = gain.const_view(), .y = none});
    const auto backward = [&](write_mode mode) {
        ht::kernel::layer_norm<Device>::template backward<float, float, float, float>(device, {.x = none,
                                                                  .gain = gain.const_view(),
                                                                  .dy = none,
                                                                  .mean = no_rows,
                                                                  .rstd = no_rows,
                                                                  .dx = none,
                                                                  .dgain = dgain.view(),
                                                                  .dbias = dbias.view(),
                                                                  .parameter_mode = mode});
    };
    backward(write_mode::add);
    CHECK(dgain[1] == 5);
    backward(write_mode::overwrite);
    CHECK(dgain[1] == 0);
    CHECK(dbias[2] == 0);
}

}  // namespace layer_norm_checks
