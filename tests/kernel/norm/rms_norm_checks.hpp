// SPDX-License-Identifier: MIT
/// \file
/// Root mean square normalisation of any device against its definition.
///
///     rms_norm_checks::forward_within_bounds<rms_norm_checks::mixed>(device, rows, width, 1e-6f);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/norm/reference.hpp>
#include <halftone/kernel/norm/rms_norm.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/policy/presets.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace rms_norm_checks {

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
using widening = types<float16, bfloat16, float, float16>;

/// apart: the distance in elements of the arrays from a vector-aligned address; 0: all are aligned.
template <class M, class Device>
void forward_within_bounds(Device& device, extent rows, extent width, float epsilon, extent apart = 1) {
    CAPTURE(width);
    using support::gamma;
    using X = typename M::X;
    using W = typename M::W;
    using Y = typename M::Y;
    support::random data(static_cast<std::uint64_t>(width));
    const ht::shape<2> shape{rows, width};
    const guarded<X> x(data.normals<X>(rows * width), apart);
    const guarded<W> gain(data.normals<W>(width, 0.5, 1), 3 * apart);
    const guarded<Y> y(rows * width, 7 * apart);
    const guarded<float> rstd(rows);
    ht::rms_norm<ht::amp_bf16>(device, x.const_view(shape), gain.const_view(), y.view(shape), rstd.view(),
                               static_cast<double>(epsilon));

    doubles want(static_cast<std::size_t>(rows * width)), want_rstd(static_cast<std::size_t>(rows));
    const ht::view<double, 2> wanted(want.data(), shape);
    ht::reference::rms_norm(x.const_view(shape), gain.const_view(), static_cast<double>(epsilon), wanted,
                            ht::view<double, 1>(want_rstd.data(), {rows}));

    // The square, the sum, the division and epsilon's addition; root and reciprocal; two products.
    const double relative = gamma(static_cast<double>(ht::kernel::sum_depth(width)) + 3);
    const double rstd_error = relative / 2 / ((1 - relative) * (1 - relative)) + gamma(2);
    support::comparison ys, rstds;
    for (extent i = 0; i < rows; ++i) {
        const double scale = want_rstd[static_cast<std::size_t>(i)];
        rstds.expect(static_cast<double>(rstd[i]), scale, rstd_error * scale);
        for (extent j = 0; j < width; ++j) {
            const double error = (rstd_error + gamma(3)) * std::fabs(wanted(i, j));
            ys.expect(static_cast<double>(y[i * width + j]), wanted(i, j), support::rounded<Y>(wanted(i, j), error));
        }
    }
    CHECK_WITHIN(ys);
    CHECK_WITHIN(rstds);
    CHECK(y.intact());
    CHECK(rstd.intact());
}

template <class M, class Device>
void backward_within_bounds(Device& device, extent rows, extent width, write_mode mode, extent apart = 1) {
    CAPTURE(width);
    using support::gamma, support::u;
    using X = typename M::X;
    using W = typename M::W;
    using Y = typename M::Y;
    using G = typename M::G;
    support::random data(static_cast<std::uint64_t>(width));
    const ht::shape<2> shape{rows, width};
    const guarded<X> x(data.normals<X>(rows * width), apart), dx(data.normals<X>(rows * width), 3 * apart),
        old_dx(std::vector<X>(dx.data(), dx.data() + dx.size()));
    const guarded<W> gain(data.normals<W>(width, 0.5, 1), 5 * apart);
    const guarded<Y> dy(data.normals<Y>(rows * width), 7 * apart);
    const guarded<float> rstd(data.normals<float>(rows, 0.1, 1));
    const guarded<G> dgain(data.normals<G>(width), 1), old_dgain(std::vector<G>(dgain.data(), dgain.data() + width));
    ht::rms_norm_gradients<ht::amp_bf16>(device, x.const_view(shape), gain.const_view(), dy.const_view(shape),
                                         rstd.const_view(), dx.view(shape), dgain.view(), mode, mode);

    doubles want(static_cast<std::size_t>(rows * width)), want_dgain(static_cast<std::size_t>(width));
    ht::reference::rms_norm_backward(x.const_view(shape), gain.const_view(), dy.const_view(shape), rstd.const_view(),
                                     ht::view<double, 2>(want.data(), shape),
                                     ht::view<double, 1>(want_dgain.data(), {width}));

    const bool adds = mode == write_mode::add;
    const double depth = static_cast<double>(ht::kernel::sum_depth(width));
    support::comparison dxs, dgains;
    for (extent i = 0; i < rows; ++i) {
        const double scale = static_cast<double>(rstd[i]);
        const auto n = [&](extent j) { return static_cast<double>(x[i * width + j]) * scale; };
        const auto h = [&](extent j) { return static_cast<double>(dy[i * width + j]) * static_cast<double>(gain[j]); };
        double mean_hn = 0;
        for (extent j = 0; j < width; ++j) mean_hn += std::fabs(h(j) * n(j)) / static_cast<double>(width);
        for (extent j = 0; j < width; ++j) {
            // h and n are rounded once each; their mean by product, sum and division; three operations follow.
            const double correction = std::fabs(n(j)) * mean_hn;
            const double error = scale * (gamma(depth + 5) * correction + u * std::fabs(h(j)) +
                                          gamma(3) * (std::fabs(h(j)) + correction));
            const double old = adds ? static_cast<double>(old_dx[i * width + j]) : 0.0;
            const double wanted = want[static_cast<std::size_t>(i * width + j)] + old;
            dxs.expect(static_cast<double>(dx[i * width + j]), wanted,
                       support::rounded<X>(wanted, error + (adds ? u * (std::fabs(wanted) + error) : 0)));
        }
    }
    for (extent j = 0; j < width; ++j) {
        double terms = 0;
        for (extent i = 0; i < rows; ++i) {
            terms += std::fabs(static_cast<double>(dy[i * width + j]) * static_cast<double>(x[i * width + j]) *
                               static_cast<double>(rstd[i]));
        }
        const double old = adds ? static_cast<double>(old_dgain[j]) : 0,
                     wanted = want_dgain[static_cast<std::size_t>(j)] + old;
        dgains.expect(static_cast<double>(dgain[j]), wanted,
                      support::rounded<G>(wanted, gamma(static_cast<double>(rows) + 4) * (terms + std::fabs(old))));
    }
    CHECK_WITHIN(dxs);
    CHECK_WITHIN(dgains);
    CHECK(dx.intact());
    CHECK(dgain.intact());
}

template <class Device>
void what_is_exact(Device& device) {
    constexpr extent rows = 2, width = 37;
    const ht::shape<2> shape{rows, width};
    support::random data(3);
    const guarded<float> gain(data.normals<float>(width)), rstd(rows), y(rows * width);

    // In a row of numbers +-2^n the results are the signs times the gain.
    const guarded<bfloat16> x(rows * width);
    for (extent i = 0; i < rows * width; ++i) x[i] = bfloat16(data.below(2) == 0 ? -8.0f : 8.0f);
    ht::kernel::rms_norm<Device>::template forward<bfloat16, float, float>(device, {.x = x.const_view(shape),
                                                       .gain = gain.const_view(),
                                                       .y = y.view(shape),
                                                       .rstd = rstd.view(),
                                                       .epsilon = 0});
    CHECK(rstd[0] == 0.125f);
    for (extent i = 0; i < rows * width; ++i) CHECK(y[i] == (x[i] < 0 ? -gain[i % width] : gain[i % width]));

    const guarded<float> zeros(std::vector<float>(rows * width, 0.0f));
    ht::kernel::rms_norm<Device>::template forward<float, float, float>(
        device, {.x = zeros.const_view(shape), .gain = gain.const_view(), .y = y.view(shape)});
    for (extent i = 0; i < rows * width; ++i) CHECK(y[i] == 0);
}

}  // namespace rms_norm_checks
