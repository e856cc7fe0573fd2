// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation against its definition, and the definition's gradients against differences.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/layer_norm/cpu.hpp>
#include <halftone/kernel/layer_norm/reference.hpp>

#include "support/bounds.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::write_mode;
using layer_norm = ht::kernel::layer_norm<ht::cpu>;
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

template <class M>
void forward_within_bounds(ht::isa set, extent rows, extent width, float epsilon, bool with_bias) {
    CAPTURE(width);
    using support::gamma, support::u;
    ht::cpu device{{.threads = 1, .instruction_set = set}};
    support::random data(static_cast<std::uint64_t>(width));
    const guarded<typename M::X> x(data.normals<typename M::X>(rows * width, 1, 0.5), 1);
    const guarded<typename M::W> gain(data.normals<typename M::W>(width, 0.5, 1), 3),
        bias(data.normals<typename M::W>(width), 5);
    const guarded<typename M::Y> y(rows * width, 7);
    const guarded<float> mean(rows), rstd(rows);
    const ht::const_view<typename M::W, 1> bias_view =
        with_bias ? bias.const_view() : ht::const_view<typename M::W, 1>{};
    layer_norm::forward<typename M::X, typename M::W, typename M::Y>(device,
                                                                     {.x = x.const_view(ht::shape<2>{rows, width}),
                                                                      .gain = gain.const_view(),
                                                                      .bias = bias_view,
                                                                      .y = y.view(ht::shape<2>{rows, width}),
                                                                      .mean = mean.view(),
                                                                      .rstd = rstd.view(),
                                                                      .epsilon = epsilon});

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

TEST_CASE_TEMPLATE("layer_norm: forward within its bound of the definition", M, all_float, mixed, widening, narrow) {
    support::for_each_set([](ht::isa set) {
        for (const extent width : support::widths) forward_within_bounds<M>(set, 3, width, 1e-5f, true);
        forward_within_bounds<M>(set, 5, 67, 1e-2f, false);
        forward_within_bounds<M>(set, 61, 4097, 0.0f, true);
    });
}

template <class M>
void backward_within_bounds(ht::isa set, extent rows, extent width, write_mode mode) {
    CAPTURE(width);
    using support::gamma, support::u;
    using X = typename M::X;
    using G = typename M::G;
    ht::cpu device{{.threads = 1, .instruction_set = set}};
    support::random data(static_cast<std::uint64_t>(width));
    const ht::shape<2> shape{rows, width};
    const guarded<X> x(data.normals<X>(rows * width, 1, 0.5), 1), dx(data.normals<X>(rows * width), 3),
        old_dx(std::vector<X>(dx.data(), dx.data() + dx.size()));
    const guarded<typename M::W> gain(data.normals<typename M::W>(width, 0.5, 1), 5);
    const guarded<typename M::Y> dy(data.normals<typename M::Y>(rows * width), 7);
    const guarded<float> mean(data.normals<float>(rows, 0.1, 0.5)), rstd(data.normals<float>(rows, 0.1, 1));
    const guarded<G> dgain(data.normals<G>(width), 1), dbias(data.normals<G>(width), 2);
    const guarded<G> old_dgain(std::vector<G>(dgain.data(), dgain.data() + width)),
        old_dbias(std::vector<G>(dbias.data(), dbias.data() + width));

    layer_norm::backward<X, typename M::W, typename M::Y, G>(device, {.x = x.const_view(shape),
                                                                      .gain = gain.const_view(),
                                                                      .dy = dy.const_view(shape),
                                                                      .mean = mean.const_view(),
                                                                      .rstd = rstd.const_view(),
                                                                      .dx = dx.view(shape),
                                                                      .dgain = dgain.view(),
                                                                      .dbias = dbias.view(),
                                                                      .dx_mode = mode,
                                                                      .parameter_mode = mode});

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
            static_cast<double>(rows) + 2;  // whatever the tree; the last two: partial sums, the old value
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

TEST_CASE_TEMPLATE("layer_norm: backward within its bound of the definition", M, all_float, mixed, widening) {
    support::for_each_set([](ht::isa set) {
        for (const extent width : support::widths) backward_within_bounds<M>(set, 3, width, write_mode::overwrite);
        backward_within_bounds<M>(set, 5, 67, write_mode::add);
        backward_within_bounds<M>(set, 301, 129, write_mode::overwrite);  // several pieces
        backward_within_bounds<M>(set, 301, 129, write_mode::add);
    });
}

TEST_CASE("layer_norm: the same bits at one and at two threads, and no allocation in a steady state") {
    support::for_each_set([](ht::isa set) {
        constexpr extent rows = 333, width = 257;
        const ht::shape<2> shape{rows, width};
        support::random data(7);
        const guarded<bfloat16> x(data.normals<bfloat16>(rows * width)), dy(data.normals<bfloat16>(rows * width));
        const guarded<float> gain(data.normals<float>(width)), bias(data.normals<float>(width));
        struct results {
            guarded<bfloat16> y{rows * width}, dx{rows * width};
            guarded<float> mean{rows}, rstd{rows}, dgain{width}, dbias{width};
        } one, two;
        for (results* r : {&one, &two}) {
            ht::cpu device{{.threads = r == &one ? 1 : 2, .instruction_set = set}};
            std::uint64_t allocations = 0;
            for (int round = 0; round < 4; ++round) {
                layer_norm::forward<bfloat16, float, bfloat16>(device, {.x = x.const_view(shape),
                                                                        .gain = gain.const_view(),
                                                                        .bias = bias.const_view(),
                                                                        .y = r->y.view(shape),
                                                                        .mean = r->mean.view(),
                                                                        .rstd = r->rstd.view()});
                layer_norm::backward<bfloat16, float, bfloat16, float>(device,
                                                                       {.x = x.const_view(shape),
                                                                        .gain = gain.const_view(),
                                                                        .dy = dy.const_view(shape),
                                                                        .mean = r->mean.const_view(),
                                                                        .rstd = r->rstd.const_view(),
                                                                        .dx = r->dx.view(shape),
                                                                        .dgain = r->dgain.view(),
                                                                        .dbias = r->dbias.view(),
                                                                        .parameter_mode = write_mode::overwrite});
                if (round == 1) allocations = device.memory().usage().allocations();
            }
            CHECK(device.memory().usage().allocations() == allocations);
        }
        CHECK(one.y.same_bits(two.y));
        CHECK(one.dx.same_bits(two.dx));
        CHECK(one.mean.same_bits(two.mean));
        CHECK(one.dgain.same_bits(two.dgain));
        CHECK(one.dbias.same_bits(two.dbias));
    });
}

TEST_CASE("layer_norm: what is exact") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        constexpr extent rows = 2, width = 37;
        const ht::shape<2> shape{rows, width};
        support::random data(3);
        const guarded<float> gain(data.normals<float>(width)), bias(data.normals<float>(width)), mean(rows), rstd(rows);

        // A constant row has no deviation: the bias remains.
        const guarded<bfloat16> x(std::vector<bfloat16>(rows * width, bfloat16(-12.0f)));
        const guarded<float> y(rows * width);
        layer_norm::forward<bfloat16, float, float>(device, {.x = x.const_view(shape),
                                                             .gain = gain.const_view(),
                                                             .bias = bias.const_view(),
                                                             .y = y.view(shape),
                                                             .mean = mean.view(),
                                                             .rstd = rstd.view()});
        for (extent i = 0; i < rows; ++i) {
            CHECK(mean[i] == -12.0f);
            for (extent j = 0; j < width; ++j) CHECK(y[i * width + j] == bias[j]);
        }

        // Frozen parameters: dx alone, in place of dy, the same bits as beside it.
        const guarded<float> other(data.normals<float>(rows * width)), dy(data.normals<float>(rows * width)),
            dx(rows * width);
        const auto backward = [&](ht::view<float, 2> to) {
            layer_norm::backward<float, float, float, float>(device, {.x = other.const_view(shape),
                                                                      .gain = gain.const_view(),
                                                                      .dy = dy.const_view(shape),
                                                                      .mean = mean.const_view(),
                                                                      .rstd = rstd.const_view(),
                                                                      .dx = to});
        };
        backward(dx.view(shape));
        backward(dy.view(shape));
        CHECK(dx.same_bits(dy));
    });
}

TEST_CASE("layer_norm: no rows") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> gain(std::vector<float>{1, 1, 1}), dgain(std::vector<float>{5, 5, 5}),
        dbias(std::vector<float>{5, 5, 5});
    const ht::view<float, 2> none(nullptr, {0, 3});
    const ht::view<float, 1> no_rows(nullptr, {0});
    layer_norm::forward<float, float, float>(device, {.x = none, .gain = gain.const_view(), .y = none});
    const auto backward = [&](write_mode mode) {
        layer_norm::backward<float, float, float, float>(device, {.x = none,
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

TEST_CASE("layer_norm: the definition's gradients") {
    constexpr extent rows = 3, width = 5;
    constexpr double epsilon = 1e-3;
    const ht::shape<2> shape{rows, width};
    support::random data(11);
    const doubles x = data.normals<double>(rows * width), gain = data.normals<double>(width),
                  bias = data.normals<double>(width);
    const doubles dy = data.normals<double>(rows * width);
    doubles y(rows * width), mean(rows), rstd(rows);
    const auto loss = [&](const doubles& at_x, const doubles& at_gain, const doubles& at_bias) {
        ht::reference::layer_norm(
            ht::const_view<double, 2>(at_x.data(), shape), ht::const_view<double, 1>(at_gain.data(), {width}),
            ht::const_view<double, 1>(at_bias.data(), {width}), epsilon, ht::view<double, 2>(y.data(), shape),
            ht::view<double, 1>(mean.data(), {rows}), ht::view<double, 1>(rstd.data(), {rows}));
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
        return sum;
    };
    loss(x, gain, bias);
    doubles dx(rows * width), dgain(width), dbias(width);
    ht::reference::layer_norm_backward(
        ht::const_view<double, 2>(x.data(), shape), ht::const_view<double, 1>(gain.data(), {width}),
        ht::const_view<double, 2>(dy.data(), shape), ht::const_view<double, 1>(mean.data(), {rows}),
        ht::const_view<double, 1>(rstd.data(), {rows}), ht::view<double, 2>(dx.data(), shape),
        ht::view<double, 1>(dgain.data(), {width}), ht::view<double, 1>(dbias.data(), {width}));
    support::check_gradient([&](const doubles& at) { return loss(at, gain, bias); }, x, dx);
    support::check_gradient([&](const doubles& at) { return loss(x, at, bias); }, gain, dgain);
    support::check_gradient([&](const doubles& at) { return loss(x, gain, at); }, bias, dbias);
}

TEST_CASE("layer_norm: wrong arguments") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(12), gain(4), y(12), rows(3);
    const ht::shape<2> shape{3, 4};
    const auto run = [&](ht::const_view<float, 2> from, ht::const_view<float, 1> by, ht::view<float, 2> to,
                         float epsilon = 1e-5f) {
        layer_norm::forward<float, float, float>(device, {.x = from, .gain = by, .y = to, .epsilon = epsilon});
    };
    CHECK_THROWS_WITH_AS(run(x.const_view(shape), {gain.data(), {3}}, y.view(shape)),
                         "layer_norm: gain is (3); expected (4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(x.const_view(shape), gain.const_view(), {y.data(), {2, 4}}),
                         "layer_norm: y is (2, 4); expected (3, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run({x.data(), {3, 4}, {1, 3}}, gain.const_view(), y.view(shape)),
                         "layer_norm: x (3, 4) is not contiguous; its strides are (1, 3)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(x.const_view(shape), gain.const_view(), y.view(shape), -1.0f),
                         "layer_norm: epsilon is -1; expected 0 or more", ht::argument_error);
    CHECK_THROWS_WITH_AS((layer_norm::backward<float, float, float, float>(device, {.x = x.const_view(shape),
                                                                                    .gain = gain.const_view(),
                                                                                    .dy = x.const_view(shape),
                                                                                    .mean = {rows.data(), {2}},
                                                                                    .rstd = rows.const_view(),
                                                                                    .dx = y.view(shape)})),
                         "layer_norm backward: mean is (2); expected (3)", ht::shape_error);
}

}  // namespace
