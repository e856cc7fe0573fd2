// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy with label smoothing, class weights and a z-loss, of any device against its definition.
///
///     weighted_cross_entropy_checks::within_bounds<all_float>(device, rows, classes, 0, {.label_smoothing = 0.1f});
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/weighted_cross_entropy/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/policy/presets.hpp>

#include "support/bounds.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace weighted_cross_entropy_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::guarded;
using support::u;
using doubles = std::vector<double>;

constexpr double log_error = 6 * u;  // three units in the last place: what exec/cpu/simd/math.simd.hpp promises

template <class X_, class D_>
struct types {
    using X = X_;
    using D = D_;
};
using all_float = types<float, float>;
using mixed = types<bfloat16, bfloat16>;
using widening = types<float16, float>;

struct options {
    float label_smoothing = 0, z_loss = 0;
    bool has_weights = false;
    std::int32_t ignored = -100;
};

/// A device's results, compared with the definition's.
template <class M, class Device>
struct run {
    using X = typename M::X;
    using D = typename M::D;
    using S = ht::kernel::statistic<X, D>;
    extent rows, classes, stride;
    std::int32_t ignored;
    guarded<X> x;
    guarded<std::int32_t> targets;
    guarded<S> weight, weight_sum, losses, maximum, sum, row_weights, slope, divisor;
    guarded<D> dx;
    ht::kernel::cross_entropy_terms<S> terms;
    ht::kernel::cross_entropy_terms<double> exact;
    doubles exact_weights, want, want_dx, slopes;

    run(Device& device, extent r, extent c, extent padding, double deviation, const options& o, extent apart)
        : rows(r),
          classes(c),
          stride(c + padding),
          ignored(o.ignored),
          x(support::random(static_cast<std::uint64_t>(c)).normals<X>(r * stride, deviation), apart),
          targets(support::random(7).indices(r, static_cast<int>(c))),
          weight(c, apart),
          weight_sum(1),
          losses(r),
          maximum(r),
          sum(r),
          row_weights(r),
          slope(std::vector<S>{S(3)}),
          divisor(std::vector<S>{S(5)}),
          dx(r * stride, 3 * apart),
          terms{S(o.label_smoothing), S(o.z_loss)},
          exact{static_cast<double>(o.label_smoothing), static_cast<double>(o.z_loss)},
          want(static_cast<std::size_t>(r)),
          want_dx(static_cast<std::size_t>(r * c)),
          slopes(static_cast<std::size_t>(r), 0.6) {
        if (rows > 2) targets[1] = ignored;
        double all = 0;
        for (extent j = 0; j < c; ++j) {
            weight[j] = S(0.25f * static_cast<float>(j % 5));  // of every fifth class 0
            exact_weights.push_back(static_cast<double>(weight[j])), all += exact_weights.back();
        }
        weight_sum[0] = static_cast<S>(all);
        if (o.has_weights) {
            terms.weight = weight.const_view(), terms.weight_sum = weight_sum.const_view();
            exact.weight = ht::const_view<double, 1>(exact_weights.data(), {c});
        }
        ht::reference::weighted_cross_entropy(logits(), targets.const_view(), ignored, exact,
                                              ht::view<double, 1>(want.data(), {r}));
        ht::reference::weighted_cross_entropy_backward(logits(), targets.const_view(), ignored, exact,
                                                       ht::const_view<double, 1>(slopes.data(), {r}),
                                                       ht::view<double, 2>(want_dx.data(), {r, c}));
        forward(device), backward(device);
    }
    ht::const_view<X, 2> logits() const { return {x.data(), {rows, classes}, {stride, 1}}; }
    ht::view<D, 2> gradients() const { return {dx.data(), {rows, classes}, {stride, 1}}; }

    void forward(Device& device) const {
        ht::weighted_cross_entropy<ht::amp_bf16>(device, logits(), targets.const_view(), terms, losses.view(), maximum.view(),
                                                 sum.view(), row_weights.view(), ignored);
    }
    void backward(Device& device) const {
        ht::weighted_cross_entropy_gradients<ht::amp_bf16>(device, logits(), targets.const_view(), terms, maximum.const_view(),
                                                           sum.const_view(), slope.const_view(), divisor.const_view(),
                                                           gradients(), ignored);
    }
    double weight_of(extent j) const {
        return exact.weight.data() == nullptr ? 1.0 : exact_weights[static_cast<std::size_t>(j)];
    }
};

/// The errors of a row's terms, as stated by kernel/weighted_cross_entropy/weighted_cross_entropy.hpp and by the
/// contract of cross_entropy.
template <class M, class Device>
void within_bounds(Device& device, extent rows, extent classes, extent padding, double deviation, const options& o,
                   extent apart = 1) {
    CAPTURE(classes);
    using support::gamma;
    using X = typename M::X;
    using D = typename M::D;
    const run<M, Device> r(device, rows, classes, padding, deviation, o, apart);
    support::comparison losses, dxs;
    const double e = r.exact.label_smoothing, z = r.exact.z_loss, each = e / static_cast<double>(classes);
    double all = 0;
    for (extent j = 0; j < classes; ++j) all += r.weight_of(j);
    for (extent i = 0; i < rows; ++i) {
        const std::int32_t target = r.targets[i];
        if (target == r.ignored) {
            CHECK((r.losses[i] == 0.0f && r.row_weights[i] == 0.0f));
            for (extent j = 0; j < classes; ++j) CHECK(r.gradients()(i, j) == D(0.0f));
            continue;
        }
        const auto x = [&](extent j) { return static_cast<double>(r.logits()(i, j)); };
        double largest = -HUGE_VAL, total = 0, wrong = 0, below = 0;
        for (extent j = 0; j < classes; ++j) largest = std::fmax(largest, x(j));
        for (extent j = 0; j < classes; ++j) {
            const double difference = largest - x(j), power = std::exp(-difference);
            const double own = support::exp_error<Device, X>(difference);
            total += power, below += r.weight_of(j) * difference;
            wrong += power * (std::expm1(u * difference) * (1 + own) + own);
        }
        const double depth = gamma(static_cast<double>(ht::kernel::sum_depth(classes)));
        const double relative = wrong / total * (1 + depth) + depth, log_sum = std::log(total);
        const double excess = relative / (1 - relative) + log_error * std::fabs(log_sum);
        const double w = r.weight_of(target), lse = largest + log_sum, nll = lse - x(target);
        CHECK(static_cast<double>(r.row_weights[i]) == w);
        const double lse_error = excess + u * (std::fabs(largest) + std::fabs(lse));
        const double nll_error = (excess + u * (largest - x(target))) * (1 + u) + u * std::fabs(nll);
        const double plain = (1 - e) * w;
        const double error =
            plain * nll_error +
            each * (gamma(static_cast<double>(ht::kernel::sum_depth(classes)) + 3) * below + all * excess) +
            z * w * lse_error * (2 * std::fabs(lse) + lse_error) +
            gamma(9) * (plain * std::fabs(nll) + each * (below + all * std::fabs(log_sum)) + z * w * lse * lse);
        losses.expect(static_cast<double>(r.losses[i]), r.want[static_cast<std::size_t>(i)], error);

        const double of_sum = each * all + 2 * z * w * std::fabs(lse), g = r.slopes[0];
        for (extent j = 0; j < classes; ++j) {
            const double difference = largest - x(j), own = support::exp_error<Device, D>(difference);
            const double p = std::exp(-difference) / total, power_error = std::expm1(u * difference) * (1 + own) + own;
            const double p_error =
                p * (power_error + relative) / (1 - relative) + support::exp_least<Device, D>() / (1 - relative);
            const double hit = j == target ? 1 : 0;
            const double off = (plain + of_sum) * p_error + p * 2 * z * w * lse_error +
                               gamma(12) * (plain * std::fabs(p - hit) + p * of_sum + each * r.weight_of(j));
            const double wanted = r.want_dx[static_cast<std::size_t>(i * classes + j)];
            dxs.expect(static_cast<double>(r.gradients()(i, j)), wanted, support::rounded<D>(wanted, g * off));
        }
        for (extent j = classes; j < r.stride && i + 1 < rows; ++j)
            CHECK(std::isnan(static_cast<float>(r.dx[i * r.stride + j])));  // the padding of a row is not written
    }
    CHECK_MESSAGE(losses.within(), losses);
    CHECK_MESSAGE(dxs.within(), dxs);
    if (classes > 4) {
        // A row whose class has weight 0 has only zeros.
        CHECK_MESSAGE(losses.telling(0.25), losses);
        CHECK_MESSAGE(dxs.telling(0.25), dxs);
    }
    CHECK((r.dx.intact() && r.losses.intact() && r.row_weights.intact()));
}

/// The gradient of rows whose classes have no weight, so that the count is 0: with a loss of which 0 times is taken it is 0, and
/// otherwise, as in PyTorch, NaN.
template <class S, class Device>
void nothing_counts(Device& device) {
    const ht::shape<2> shape{2, 3};
    const guarded<S> x(std::vector<S>{1, 2, 3, 0, -1, 4}), weight(std::vector<S>{0, 1, 0}), one(std::vector<S>{1}), maximum(2),
        sum(2), losses(2), row_weights(2), gradient(1), count(std::vector<S>{0}), dx(6);
    const guarded<std::int32_t> targets(std::vector<std::int32_t>{2, 0});
    for (const float label_smoothing : {0.0f, 0.1f}) {
        const ht::kernel::cross_entropy_terms<S> terms{S(label_smoothing), 0, weight.const_view(), one.const_view()};
        ht::weighted_cross_entropy<ht::amp_bf16>(device, x.const_view(shape), targets.const_view(), terms, losses.view(),
                                                 maximum.view(), sum.view(), row_weights.view());
        CHECK((row_weights[0] == 0 && row_weights[1] == 0));
        for (const int slope : {0, 1}) {
            gradient[0] = static_cast<S>(slope);
            ht::weighted_cross_entropy_gradients<ht::amp_bf16>(device, x.const_view(shape), targets.const_view(), terms,
                                                               maximum.const_view(), sum.const_view(), gradient.const_view(),
                                                               count.const_view(), dx.view(shape));
            for (extent i = 0; i < 6; ++i) CHECK((slope == 0 ? dx[i] == 0 : !std::isfinite(dx[i])));
        }
    }
}

inline constexpr options cases[] = {{},
                                    {.label_smoothing = 0.1f},
                                    {.label_smoothing = 1},
                                    {.z_loss = 0.01f},
                                    {.has_weights = true},
                                    {.label_smoothing = 0.1f, .z_loss = 0.25f, .has_weights = true}};
/// The target that is ignored may be the number of a class, with a weight.
inline constexpr options ignoring_a_class[] = {{.ignored = 3},
                                               {.label_smoothing = 0.1f, .ignored = 3},
                                               {.z_loss = 0.25f, .has_weights = true, .ignored = 3}};

template <class Device>
void all(Device& device) {
    for (const options& o : cases) {
        CAPTURE(o.label_smoothing);
        CAPTURE(o.z_loss);
        CAPTURE(o.has_weights);
        for (const extent classes : {1, 5, 8, 33, 1100}) within_bounds<all_float>(device, 4, classes, 0, 2.0, o, classes % 2);
        within_bounds<mixed>(device, 4, 37, 3, 2.0, o);
        within_bounds<mixed>(device, 3, 64, 0, 2.0, o, 0);
        within_bounds<widening>(device, 3, 1030, 2, 1.0, o);
    }
    within_bounds<all_float>(device, 3, 67, 0, 100.0, cases[5]);
    for (const options& o : ignoring_a_class) within_bounds<mixed>(device, 4, 37, 0, 2.0, o);
    nothing_counts<float>(device);
}

/// In double all results equal the definition's, except for roundings of double.
template <class Device>
void in_double(Device& device) {
    const auto check = [&](const options& o) {
        const run<types<double, double>, Device> r(device, 4, 11, 0, 2.0, o, 1);
        for (extent i = 0; i < 4; ++i)
            CHECK(r.losses[i] == doctest::Approx(r.want[static_cast<std::size_t>(i)]).epsilon(1e-13));
        for (extent i = 0; i < 44; ++i) {
            const double want = r.want_dx[static_cast<std::size_t>(i)];
            CHECK(std::fabs(r.dx[i] - want) <= 1e-14 * (1 + std::fabs(want)));
        }
        CHECK(r.row_weights[1] == 0);  // ignored
    };
    for (const options& o : cases) check(o);
    for (const options& o : ignoring_a_class) check(o);
    nothing_counts<double>(device);
}

/// The definition's gradient is that of its losses.
inline void definition() {
    support::random data(3);
    const doubles x = data.normals<double>(15), weight{0.5, 1, 0, 2, 1.5};
    constexpr std::int32_t ignored = 3;
    const std::vector<std::int32_t> targets{4, ignored, 0};
    const ht::kernel::cross_entropy_terms<double> terms{0.2, 0.1, ht::const_view<double, 1>(weight.data(), {5})};
    const doubles slopes{1, 2, -0.5};
    doubles losses(3), dx(15);
    const ht::const_view<std::int32_t, 1> of(targets.data(), {3});
    ht::reference::weighted_cross_entropy_backward(ht::const_view<double, 2>(x.data(), {3, 5}), of, ignored, terms,
                                                   ht::const_view<double, 1>(slopes.data(), {3}),
                                                   ht::view<double, 2>(dx.data(), {3, 5}));
    const auto loss = [&](const doubles& at) {
        ht::reference::weighted_cross_entropy(ht::const_view<double, 2>(at.data(), {3, 5}), of, ignored, terms,
                                              ht::view<double, 1>(losses.data(), {3}));
        return losses[0] * slopes[0] + losses[1] * slopes[1] + losses[2] * slopes[2];
    };
    support::check_gradient(loss, x, dx);
}

}  // namespace weighted_cross_entropy_checks
