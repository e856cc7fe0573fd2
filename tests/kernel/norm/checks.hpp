// SPDX-License-Identifier: MIT
/// \file
/// Layer and root mean square normalisation of any device against their definitions.
///
///     norm_checks::forward_within_bounds<norm_checks::mixed<norm_checks::layer_norm>>(device, rows, width, 1e-5f);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/norm/layer_norm.hpp>
#include <halftone/kernel/norm/reference.hpp>
#include <halftone/kernel/norm/rms_norm.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/policy/presets.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace norm_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::write_mode;
using support::guarded;
using doubles = std::vector<double>;

/// Layer normalisation: its kernels, functions and definition. Rows are centred, and a bias is added.
struct layer_norm {
    static constexpr const char* name = "layer_norm";
    static constexpr bool centred = true;
    static constexpr float epsilon = 1e-5f;
    template <class Device>
    using kernel = ht::kernel::layer_norm<Device>;
    template <class X, class W, class Y>
    using forward_arguments = ht::kernel::layer_norm_forward<X, W, Y>;
    template <class X, class W, class Y, class G>
    using backward_arguments = ht::kernel::layer_norm_backward<X, W, Y, G>;

    static void forward(auto& device, const auto&... tensors_and_epsilon) {
        ht::layer_norm<ht::amp_bf16>(device, tensors_and_epsilon...);
    }
    static void backward(auto& device, const auto&... tensors_and_modes) {
        ht::layer_norm_gradients<ht::amp_bf16>(device, tensors_and_modes...);
    }
    static void define(const auto& x, const auto& gain, const auto& bias, double eps, const auto&... results) {
        ht::reference::layer_norm(x, gain, bias, eps, results...);
    }
    static void define_backward(const auto&... tensors) { ht::reference::layer_norm_backward(tensors...); }
};

/// Root mean square normalisation, which has neither mean nor bias: it leaves these arguments out.
struct rms_norm {
    static constexpr const char* name = "rms_norm";
    static constexpr bool centred = false;
    static constexpr float epsilon = 1e-6f;
    template <class Device>
    using kernel = ht::kernel::rms_norm<Device>;
    template <class X, class W, class Y>
    using forward_arguments = ht::kernel::rms_norm_forward<X, W, Y>;
    template <class X, class W, class Y, class G>
    using backward_arguments = ht::kernel::rms_norm_backward<X, W, Y, G>;

    static void forward(auto& device, const auto& x, const auto& gain, const auto&, const auto& y, const auto&,
                        const auto& rstd, double eps) {
        ht::rms_norm<ht::amp_bf16>(device, x, gain, y, rstd, eps);
    }
    static void backward(auto& device, const auto& x, const auto& gain, const auto& dy, const auto&, const auto& rstd,
                         const auto& dx, const auto& dgain, const auto&, write_mode parameters, write_mode rows) {
        ht::rms_norm_gradients<ht::amp_bf16>(device, x, gain, dy, rstd, dx, dgain, parameters, rows);
    }
    static void define(const auto& x, const auto& gain, const auto&, double eps, const auto& y, const auto&,
                       const auto& rstd) {
        ht::reference::rms_norm(x, gain, eps, y, rstd);
    }
    static void define_backward(const auto& x, const auto& gain, const auto& dy, const auto&, const auto& rstd,
                                const auto& dx, const auto& dgain, const auto&) {
        ht::reference::rms_norm_backward(x, gain, dy, rstd, dx, dgain);
    }
};

template <class Norm, class X_, class W_, class Y_, class G_>
struct types {
    using N = Norm;
    using X = X_;
    using W = W_;
    using Y = Y_;
    using G = G_;
};
template <class N>
using all_float = types<N, float, float, float, float>;
template <class N>
using mixed = types<N, bfloat16, float, bfloat16, float>;
using layer_widening = types<layer_norm, float16, bfloat16, float, bfloat16>;
using layer_narrow = types<layer_norm, float16, float16, float16, float>;
using rms_widening = types<rms_norm, float16, bfloat16, float, float16>;

/// The tensors of a norm's forward and backward pass, with random numbers; y has none before the forward pass.
template <class M>
struct operands {
    using N = typename M::N;
    using X = typename M::X;
    using W = typename M::W;
    using Y = typename M::Y;
    using G = typename M::G;
    ht::shape<2> shape;
    guarded<X> x, dx;
    guarded<W> gain, bias;
    guarded<Y> y, dy;
    guarded<float> mean, rstd;
    guarded<G> dgain, dbias;

    /// apart: the distance in elements of the arrays from a vector-aligned address; 0: all are aligned.
    operands(extent rows, extent width, extent apart)
        : operands({rows, width}, apart, support::random(static_cast<std::uint64_t>(width))) {}

    auto forward_arguments(bool with_bias = true) const {
        typename N::template forward_arguments<X, W, Y> a{};
        a.x = x.const_view(shape), a.gain = gain.const_view(), a.y = y.view(shape), a.rstd = rstd.view();
        if constexpr (N::centred) a.bias = with_bias ? bias.const_view() : a.bias, a.mean = mean.view();
        return a;
    }
    auto backward_arguments(write_mode mode, bool with_gain = true, bool with_bias = true) const {
        typename N::template backward_arguments<X, W, Y, G> a{};
        a.x = x.const_view(shape), a.gain = gain.const_view(), a.dy = dy.const_view(shape), a.dx = dx.view(shape);
        a.rstd = rstd.const_view(), a.dx_mode = a.parameter_mode = mode;
        if (with_gain) a.dgain = dgain.view();
        if constexpr (N::centred) a.mean = mean.const_view(), a.dbias = with_bias ? dbias.view() : a.dbias;
        return a;
    }
    template <class Device>
    void forward(Device& device) const {
        N::template kernel<Device>::forward(device, forward_arguments());
    }
    template <class Device>
    void backward(Device& device, write_mode mode, bool with_gain = true, bool with_bias = true) const {
        N::template kernel<Device>::backward(device, backward_arguments(mode, with_gain, with_bias));
    }
    /// The element's value minus the mean of its row, if rows are centred, in doubles.
    double deviation(extent i, extent j, double average) const {
        return static_cast<double>(x[i * shape[1] + j]) - (N::centred ? average : 0);
    }
    bool has_intact_gradients() const { return dx.intact() && dgain.intact() && dbias.intact(); }
    bool has_gradients_of(const operands& other) const {
        return dx.same_bits(other.dx) && dgain.same_bits(other.dgain) && dbias.same_bits(other.dbias);
    }

  private:
    operands(const ht::shape<2>& s, extent apart, support::random data)
        : shape(s),
          x(data.normals<X>(s.size(), 1, 0.5), apart),
          dx(data.normals<X>(s.size()), 3 * apart),
          gain(data.normals<W>(s[1], 0.5, 1), 5 * apart),
          bias(data.normals<W>(s[1]), 9 * apart),
          y(s.size(), 7 * apart),
          dy(data.normals<Y>(s.size()), 11 * apart),
          mean(data.normals<float>(s[0], 0.1, 0.5)),
          rstd(data.normals<float>(s[0], 0.1, 1)),
          dgain(data.normals<G>(s[1]), 1),
          dbias(data.normals<G>(s[1]), 2) {}
};

double magnitude_mean(const auto& term, extent count) {
    double sum = 0;
    for (extent j = 0; j < count; ++j) sum += std::fabs(term(j));
    return sum / static_cast<double>(count);
}

/// apart: see operands. Without a bias only where the norm has one.
template <class M, class Device>
void forward_within_bounds(Device& device, extent rows, extent width, float epsilon, extent apart = 1,
                           bool with_bias = M::N::centred) {
    CAPTURE(width);
    using support::gamma, support::u;
    using N = typename M::N;
    const operands<M> o(rows, width, apart);
    const ht::shape<2> shape = o.shape;
    const auto bias = with_bias ? o.bias.const_view() : ht::const_view<typename M::W, 1>{};
    N::forward(device, o.x.const_view(shape), o.gain.const_view(), bias, o.y.view(shape), o.mean.view(), o.rstd.view(),
               static_cast<double>(epsilon));

    doubles want(static_cast<std::size_t>(rows * width)), want_mean(static_cast<std::size_t>(rows)),
        want_rstd(static_cast<std::size_t>(rows));
    const ht::view<double, 2> wanted(want.data(), shape);
    N::define(o.x.const_view(shape), o.gain.const_view(), bias, static_cast<double>(epsilon), wanted,
              ht::view<double, 1>(want_mean.data(), {rows}), ht::view<double, 1>(want_rstd.data(), {rows}));

    const double depth = static_cast<double>(ht::kernel::sum_depth(width));
    support::comparison ys, means, rstds;
    for (extent i = 0; i < rows; ++i) {
        const double average = want_mean[static_cast<std::size_t>(i)], scale = want_rstd[static_cast<std::size_t>(i)];
        const double mean_error =
            N::centred ? gamma(depth + 1) * magnitude_mean([&](extent j) { return o.deviation(i, j, 0); }, width) : 0;
        // Each square has a rounding, and passes through the sum, the division and epsilon's addition; a deviation's
        // has twice the difference's error, too. The squares around an inexact mean are too large by its error squared.
        const double relative = gamma(depth + (N::centred ? 5 : 3)) + mean_error * mean_error * scale * scale;
        const double rstd_error = relative / 2 / ((1 - relative) * (1 - relative)) + gamma(2);
        if (N::centred) means.expect(static_cast<double>(o.mean[i]), average, mean_error);
        rstds.expect(static_cast<double>(o.rstd[i]), scale, rstd_error * scale);
        for (extent j = 0; j < width; ++j) {
            const double g = std::fabs(static_cast<double>(o.gain[j])),
                         b = with_bias ? std::fabs(static_cast<double>(o.bias[j])) : 0;
            const double deviation = std::fabs(o.deviation(i, j, average));
            double error =
                g * (mean_error * scale * (1 + rstd_error + gamma(3)) + deviation * scale * (rstd_error + gamma(3)));
            if (N::centred) error = error * (1 + u) + u * (g * deviation * scale + b);  // the bias's addition
            ys.expect(static_cast<double>(o.y[i * width + j]), wanted(i, j),
                      support::rounded<typename M::Y>(wanted(i, j), error));
        }
    }
    if (width > 1 || with_bias || !N::centred) CHECK_WITHIN(ys);
    if (N::centred) CHECK_WITHIN(means);
    CHECK_WITHIN(rstds);
    CHECK(o.y.intact());
    CHECK(o.mean.intact());
    CHECK(o.rstd.intact());
}

template <class M, class Device>
void backward_within_bounds(Device& device, extent rows, extent width, write_mode mode, extent apart = 1) {
    CAPTURE(width);
    using support::gamma, support::u;
    using N = typename M::N;
    using X = typename M::X;
    using G = typename M::G;
    const operands<M> o(rows, width, apart), old(rows, width, apart);
    const ht::shape<2> shape = o.shape;
    N::backward(device, o.x.const_view(shape), o.gain.const_view(), o.dy.const_view(shape), o.mean.const_view(),
                o.rstd.const_view(), o.dx.view(shape), o.dgain.view(), o.dbias.view(), mode, mode);

    doubles want(static_cast<std::size_t>(rows * width)), want_dgain(static_cast<std::size_t>(width)),
        want_dbias(static_cast<std::size_t>(width));
    N::define_backward(o.x.const_view(shape), o.gain.const_view(), o.dy.const_view(shape), o.mean.const_view(),
                       o.rstd.const_view(), ht::view<double, 2>(want.data(), shape),
                       ht::view<double, 1>(want_dgain.data(), {width}),
                       ht::view<double, 1>(want_dbias.data(), {width}));

    const bool adds = mode == write_mode::add;
    const double depth = static_cast<double>(ht::kernel::sum_depth(width));
    support::comparison dxs, dgains, dbiases;
    for (extent i = 0; i < rows; ++i) {
        const double scale = static_cast<double>(o.rstd[i]);
        const auto n = [&](extent j) { return o.deviation(i, j, static_cast<double>(o.mean[i])) * scale; };
        const auto h = [&](extent j) {
            return static_cast<double>(o.dy[i * width + j]) * static_cast<double>(o.gain[j]);
        };
        const double mean_h = N::centred ? magnitude_mean(h, width) : 0,
                     mean_hn = magnitude_mean([&](extent j) { return h(j) * n(j); }, width);
        for (extent j = 0; j < width; ++j) {
            // h is rounded once, n once or, a difference, twice; their means by product, sum and division; three
            // operations follow, or four.
            const double correction = mean_h + std::fabs(n(j)) * mean_hn;
            const double error = scale * (gamma(depth + (N::centred ? 7 : 5)) * correction + u * std::fabs(h(j)) +
                                          gamma(N::centred ? 4 : 3) * (std::fabs(h(j)) + correction));
            const double wanted = want[static_cast<std::size_t>(i * width + j)] +
                                  (adds ? static_cast<double>(old.dx[i * width + j]) : 0.0);
            dxs.expect(static_cast<double>(o.dx[i * width + j]), wanted,
                       support::rounded<X>(wanted, error + (adds ? u * (std::fabs(wanted) + error) : 0)));
        }
    }
    for (extent j = 0; j < width; ++j) {
        double gain_terms = 0, bias_terms = 0;
        for (extent i = 0; i < rows; ++i) {
            const double d = std::fabs(static_cast<double>(o.dy[i * width + j]));
            gain_terms +=
                d * std::fabs(o.deviation(i, j, static_cast<double>(o.mean[i]))) * static_cast<double>(o.rstd[i]);
            bias_terms += d;
        }
        const double chain =
            static_cast<double>(rows) + 2;  // for any order of additions; the last two: partial sums, the old value
        const double old_g = adds ? static_cast<double>(old.dgain[j]) : 0,
                     old_b = adds ? static_cast<double>(old.dbias[j]) : 0;
        const double g = want_dgain[static_cast<std::size_t>(j)] + old_g,
                     b = want_dbias[static_cast<std::size_t>(j)] + old_b;
        dgains.expect(static_cast<double>(o.dgain[j]), g,
                      support::rounded<G>(g, gamma(chain + (N::centred ? 3 : 2)) * (gain_terms + std::fabs(old_g))));
        if (N::centred)
            dbiases.expect(static_cast<double>(o.dbias[j]), b,
                           support::rounded<G>(b, gamma(chain) * (bias_terms + std::fabs(old_b))));
    }
    if (width > 1 || adds || !N::centred) CHECK_WITHIN(dxs);
    CHECK_WITHIN(dgains);
    if (N::centred) CHECK_WITHIN(dbiases);
    CHECK(o.has_intact_gradients());
}

template <class N, class Device>
void what_is_exact(Device& device) {
    const operands<types<N, bfloat16, float, float, float>> o(2, 37, 1);
    auto a = o.forward_arguments();
    const auto expect_y = [&](auto value) {
        N::template kernel<Device>::forward(device, a);
        for (extent i = 0; i < o.y.size(); ++i) CHECK(o.y[i] == value(i));
    };
    if constexpr (N::centred) {
        // The deviation of a constant row is 0: the result is the bias.
        for (extent i = 0; i < o.x.size(); ++i) o.x[i] = bfloat16(-12.0f);
        expect_y([&](extent i) { return o.bias[i % 37]; });
        CHECK(o.mean[0] == -12.0f);
        CHECK(o.mean[1] == -12.0f);
    } else {
        // In a row of numbers +-2^n the results are the signs times the gain.
        for (extent i = 0; i < o.x.size(); ++i) o.x[i] = bfloat16(o.x[i] < 0 ? -8.0f : 8.0f);
        a.epsilon = 0;
        expect_y([&](extent i) { return o.x[i] < 0 ? -o.gain[i % 37] : o.gain[i % 37]; });
        CHECK(o.rstd[0] == 0.125f);
        a.epsilon = N::epsilon;
        for (extent i = 0; i < o.x.size(); ++i) o.x[i] = bfloat16(0.0f);
        expect_y([](extent) { return 0.0f; });
    }

    // Frozen parameters: only dx, written in place of dy, with the same bits as in separate memory.
    const operands<all_float<N>> f(2, 37, 1);
    auto frozen = f.backward_arguments(write_mode::overwrite, false, false);
    N::template kernel<Device>::backward(device, frozen);
    frozen.dx = f.dy.view(f.shape);
    N::template kernel<Device>::backward(device, frozen);
    CHECK(f.dx.same_bits(f.dy));
}

template <class N, class Device>
void no_rows_at_all(Device& device) {
    const operands<all_float<N>> o(0, 3, 1);
    const ht::view<float, 2> none(nullptr, {0, 3});
    const float old_gain = o.dgain[1], old_bias = o.dbias[2];
    auto forward = o.forward_arguments();
    forward.x = forward.y = none;
    N::template kernel<Device>::forward(device, forward);
    const auto backward = [&](write_mode mode) {
        auto a = o.backward_arguments(mode);
        a.x = a.dy = a.dx = none;
        N::template kernel<Device>::backward(device, a);
    };
    backward(write_mode::add);
    CHECK(o.dgain[1] == old_gain);
    CHECK(o.dbias[2] == old_bias);
    backward(write_mode::overwrite);
    CHECK(o.dgain[1] == 0);
    if (N::centred) CHECK(o.dbias[2] == 0);
}

}  // namespace norm_checks
