// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy of any device against its definition.
///
///     cross_entropy_checks::within_bounds<cross_entropy_checks::mixed>(device, rows, classes, padding, deviation);
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/cross_entropy/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/policy/presets.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace cross_entropy_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::guarded;
using support::u;
using doubles = std::vector<double>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double log_error = 6 * u;  // three units in the last place: what exec/cpu/simd/math.simd.hpp promises
constexpr std::int32_t ignored = -100;

template <class X_, class D_>
struct types {
    using X = X_;
    using D = D_;
};
using all_float = types<float, float>;
using mixed = types<bfloat16, bfloat16>;
using widening = types<float16, float>;

/// apart: the distance in elements of the arrays from a vector-aligned address; 0: all are aligned. centre: what is added to
/// the logits before they are rounded.
template <class M, class Device>
void within_bounds(Device& device, extent rows, extent classes, extent padding, double deviation, extent apart = 1,
                   double centre = 0) {
    CAPTURE(classes);
    using support::gamma;
    using X = typename M::X;
    using D = typename M::D;
    support::random data(static_cast<std::uint64_t>(classes));
    const extent stride = classes + padding;
    const guarded<X> x(data.normals<X>(rows * stride, deviation), apart);
    for (extent k = 0; centre != 0 && k < x.size(); ++k)
        x[k] = X(static_cast<float>(static_cast<double>(x[k]) + centre));
    const ht::const_view<X, 2> logits(x.data(), {rows, classes}, {stride, 1});
    const guarded<std::int32_t> targets(data.indices(rows, static_cast<int>(classes)));
    if (rows > 2) targets[1] = ignored;
    if (rows > 30) targets[17] = targets[18] = targets[rows - 1] = ignored;
    const guarded<float> losses(rows), maximum(rows), sum(rows), loss(1), count(1);
    ht::cross_entropy<ht::amp_bf16>(device, logits, targets.const_view(), losses.view(), maximum.view(), sum.view(),
                                    loss.view(), count.view());

    const extent counted = ht::reference::counted_rows(targets.const_view(), ignored);
    CHECK(count[0] == static_cast<float>(counted));
    doubles want(static_cast<std::size_t>(rows));
    const double mean =
        ht::reference::cross_entropy(logits, targets.const_view(), ignored, ht::view<double, 1>(want.data(), {rows}));

    support::comparison loss_comparison, sum_comparison;
    doubles maxima(static_cast<std::size_t>(rows)), sum_errors(static_cast<std::size_t>(rows));
    double mean_error = 0;
    for (extent i = 0; i < rows; ++i) {
        if (targets[i] == ignored) {
            CHECK(losses[i] == 0.0f);
            continue;
        }
        double largest = -HUGE_VAL, total = 0, wrong = 0;
        for (extent j = 0; j < classes; ++j) largest = std::fmax(largest, static_cast<double>(logits(i, j)));
        for (extent j = 0; j < classes; ++j) {
            const double difference = largest - static_cast<double>(logits(i, j)), e = std::exp(-difference);
            total += e;
            const double own = support::exp_error<Device, X>(difference);
            wrong += e * (std::expm1(u * difference) * (1 + own) + own);
        }
        const double depth = gamma(static_cast<double>(ht::kernel::sum_depth(classes)));
        const double relative = wrong / total * (1 + depth) + depth;
        const double excess_error = relative / (1 - relative) + log_error * std::fabs(std::log(total));
        const double below = largest - static_cast<double>(logits(i, targets[i]));
        const double wanted = want[static_cast<std::size_t>(i)];
        const double loss_error = (excess_error + u * below) * (1 + u) + u * std::fabs(wanted);
        maxima[static_cast<std::size_t>(i)] = largest;
        sum_errors[static_cast<std::size_t>(i)] = relative;
        loss_comparison.expect(static_cast<double>(losses[i]), wanted, loss_error);
        sum_comparison.expect(static_cast<double>(sum[i]), total, relative * total);
        CHECK(static_cast<double>(maximum[i]) == largest);
        mean_error += loss_error / static_cast<double>(counted);
    }
    CHECK_MESSAGE(loss_comparison.within(), loss_comparison);
    if (classes > 1) CHECK_MESSAGE(loss_comparison.telling(), loss_comparison);
    CHECK_WITHIN(sum_comparison);
    CHECK(std::fabs(static_cast<double>(loss[0]) - mean) <= support::rounded<float>(mean, mean_error));

    // The gradient of 3 times the mean.
    const guarded<float> slope(std::vector<float>{3.0f});
    const guarded<D> dx(rows * stride, 3 * apart);
    const ht::view<D, 2> dlogits(dx.data(), {rows, classes}, {stride, 1});
    ht::cross_entropy_gradients<ht::amp_bf16>(device, logits, targets.const_view(), maximum.const_view(), sum.const_view(),
                                              slope.const_view(), count.const_view(), dlogits);
    doubles want_dx(static_cast<std::size_t>(rows * classes));
    const ht::view<double, 2> wanted(want_dx.data(), {rows, classes});
    const doubles slopes(static_cast<std::size_t>(rows), 3.0 / static_cast<double>(counted));
    ht::reference::cross_entropy_backward(logits, targets.const_view(), ignored,
                                          ht::const_view<double, 1>(slopes.data(), {rows}), wanted);
    support::comparison dxs;
    for (extent i = 0; i < rows; ++i) {
        const double factor = slopes[0];
        for (extent j = 0; j < classes; ++j) {
            if (targets[i] == ignored) {
                CHECK(dlogits(i, j) == D(0.0f));
                continue;
            }
            const double target = j == targets[i] ? 1 : 0, p = wanted(i, j) / factor + target;
            // The exponential of a difference, which is rounded once, divided by the sum; it does not depend on the logits' size.
            const double difference = maxima[static_cast<std::size_t>(i)] - static_cast<double>(logits(i, j));
            const double own = support::exp_error<Device, D>(difference), off = sum_errors[static_cast<std::size_t>(i)];
            const double power_error = std::expm1(u * difference) * (1 + own) + own;
            const double probability_error =
                p * (power_error + off) / (1 - off) + support::exp_least<Device, D>() / (1 - off);
            // The difference from the sum, the factor's two divisions, the product.
            const double error = factor * (probability_error * (1 + gamma(4)) + gamma(4) * std::fabs(p - target));
            dxs.expect(static_cast<double>(dlogits(i, j)), wanted(i, j), support::rounded<D>(wanted(i, j), error));
        }
        for (extent j = 0; j < padding && i + 1 < rows; ++j)
            CHECK(ht::is_nan(dx[i * stride + classes + j]));  // the padding of a row is not written
    }
    CHECK_MESSAGE(dxs.within(), dxs);
    if (classes > 1 && deviation <= 8) CHECK_MESSAGE(dxs.telling(), dxs);  // else almost all of them underflow
    CHECK(dx.intact());
    CHECK(losses.intact());
    CHECK(maximum.intact());
    CHECK(sum.intact());
}

template <class Device>
void what_is_exact(Device& device, extent classes) {
    CAPTURE(classes);
    const ht::shape<2> shape{1, classes};
    const guarded<float> x(classes), losses(1), maximum(1), sum(1), dx(classes), gradient(std::vector<float>{0.25f});
    const guarded<std::int32_t> target(std::vector<std::int32_t>{1});
    const auto run = [&] {
        ht::kernel::cross_entropy<Device>::template forward<float>(device, {.logits = x.const_view(shape),
                                                                            .targets = target.const_view(),
                                                                            .losses = losses.view(),
                                                                            .maximum = maximum.view(),
                                                                            .sum = sum.view()});
        ht::kernel::cross_entropy<Device>::template backward<float, float>(device, {.logits = x.const_view(shape),
                                                                                    .targets = target.const_view(),
                                                                                    .maximum = maximum.const_view(),
                                                                                    .sum = sum.const_view(),
                                                                                    .gradient = gradient.const_view(),
                                                                                    .dlogits = dx.view(shape)});
    };
    // A certain and correct prediction has loss 0 and gradient 0. A certain and wrong one has the difference as its loss, and the
    // full gradient.
    for (const float low : {-1e4f, -infinity}) {
        for (extent j = 0; j < classes; ++j) x[j] = low;
        x[1] = 1e4f;
        run();
        CHECK(losses[0] == 0.0f);
        CHECK(maximum[0] == 1e4f);
        CHECK(sum[0] == 1.0f);
        for (extent j = 0; j < classes; ++j) CHECK(dx[j] == 0.0f);
        std::swap(x[0], x[1]);
        run();
        CHECK(losses[0] == 1e4f - low);
        CHECK(dx[0] == 0.25f);
        CHECK(dx[1] == -0.25f);
    }
    for (extent j = 0; j < classes; ++j) x[j] = -infinity;
    run();
    CHECK(ht::is_nan(losses[0]));
    CHECK(ht::is_nan(dx[0]));
}

/// The contents of an ignored row do not matter; its target may be the number of a class.
template <class T, class Device>
void ignored_rows(Device& device, std::int32_t ignored) {
    const ht::shape<2> shape{2, 3};
    const guarded<T> x(std::vector<T>{1, 2, 3, infinity, infinity, infinity}), losses(2), maximum(2), sum(2),
        loss(1), count(1), dx(6);
    const guarded<T> gradient(std::vector<T>{1});
    const guarded<std::int32_t> targets(std::vector<std::int32_t>{2, ignored});
    const auto run = [&] {
        ht::kernel::cross_entropy<Device>::template forward<T>(device, {.logits = x.const_view(shape),
                                                                        .targets = targets.const_view(),
                                                                        .losses = losses.view(),
                                                                        .maximum = maximum.view(),
                                                                        .sum = sum.view(),
                                                                        .loss = loss.view(),
                                                                        .count = count.view(),
                                                                        .ignore_index = ignored});
        ht::kernel::cross_entropy<Device>::template backward<T, T>(device, {.logits = x.const_view(shape),
                                                                            .targets = targets.const_view(),
                                                                            .maximum = maximum.const_view(),
                                                                            .sum = sum.const_view(),
                                                                            .gradient = gradient.const_view(),
                                                                            .count = count.const_view(),
                                                                            .dlogits = dx.view(shape),
                                                                            .ignore_index = ignored});
    };
    run();
    CHECK(count[0] == 1);
    CHECK(loss[0] == losses[0]);
    CHECK(losses[1] == 0);
    for (extent j = 3; j < 6; ++j) CHECK(dx[j] == 0);
    targets[0] = ignored;
    run();
    CHECK(count[0] == 0);
    CHECK(ht::is_nan(loss[0]));
    for (extent j = 0; j < 6; ++j) CHECK(dx[j] == 0);
}

template <class Device>
void ignored_rows(Device& device) {
    for (const std::int32_t ignored : {7, 1}) ignored_rows<float>(device, ignored), ignored_rows<double>(device, ignored);
}

template <class Device>
void gradient_of_each_loss(Device& device, extent rows, extent classes) {
    const ht::shape<2> shape{rows, classes};
    support::random data(3);
    const guarded<float> x(data.normals<float>(rows * classes)), losses(rows), maximum(rows), sum(rows),
        one(std::vector<float>{1});
    const guarded<float> powers(rows), dx(rows * classes), scaled_dx(rows * classes);
    for (extent i = 0; i < rows; ++i) powers[i] = std::ldexp(i % 2 == 0 ? 1.0f : -1.0f, static_cast<int>(i % 7));
    const guarded<std::int32_t> targets(data.indices(rows, static_cast<int>(classes)));
    ht::kernel::cross_entropy<Device>::template forward<float>(device, {.logits = x.const_view(shape),
                                                                        .targets = targets.const_view(),
                                                                        .losses = losses.view(),
                                                                        .maximum = maximum.view(),
                                                                        .sum = sum.view()});
    const auto backward = [&](ht::const_view<float, 1> gradient, ht::view<float, 2> to) {
        ht::kernel::cross_entropy<Device>::template backward<float, float>(device, {.logits = x.const_view(shape),
                                                                                    .targets = targets.const_view(),
                                                                                    .maximum = maximum.const_view(),
                                                                                    .sum = sum.const_view(),
                                                                                    .gradient = gradient,
                                                                                    .dlogits = to});
    };
    backward(one.const_view(), dx.view(shape));
    backward(powers.const_view(), scaled_dx.view(shape));
    extent wrong = 0;
    for (extent k = 0; k < rows * classes; ++k) wrong += scaled_dx[k] == dx[k] * powers[k / classes] ? 0 : 1;
    CHECK(wrong == 0);
}

/// Adding a constant to all logits of a row changes no bit of the losses and of the gradient if the sums of logits and constant are
/// exact. Logits are whole multiples of a unit, and the constant is the largest power of two with which all sums are exact.
template <class X, class D, class Device>
void no_constant_matters(Device& device, extent classes) {
    CAPTURE(classes);
    constexpr extent rows = 6;
    constexpr int digits = ht::number_traits<X>::significand_bits - 1;
    constexpr std::int64_t most = digits < 10 ? 24 : 100;
    const ht::shape<2> shape{rows, classes};
    support::random data(static_cast<std::uint64_t>(classes));
    const std::vector<std::int32_t> whole = data.indices(rows * classes, static_cast<int>(most)),
                                    classes_of_rows = data.indices(rows, static_cast<int>(classes));
    const guarded<std::int32_t> targets(classes_of_rows);
    const guarded<float> gradient(std::vector<float>{3.0f});
    struct result {
        guarded<float> losses, maximum, sum;
        guarded<D> dx;
        explicit result(extent n) : losses(rows), maximum(rows), sum(rows), dx(n) {}
    };
    const auto of = [&](double unit, double constant, const result& r) {
        const guarded<X> x(rows * classes);
        for (extent k = 0; k < rows * classes; ++k) {
            const double wanted = constant + unit * whole[static_cast<std::size_t>(k)];
            x[k] = X(static_cast<float>(wanted));
            REQUIRE(static_cast<double>(x[k]) == wanted);
        }
        ht::kernel::cross_entropy<Device>::template forward<X>(device, {.logits = x.const_view(shape),
                                                                        .targets = targets.const_view(),
                                                                        .losses = r.losses.view(),
                                                                        .maximum = r.maximum.view(),
                                                                        .sum = r.sum.view()});
        ht::kernel::cross_entropy<Device>::template backward<X, D>(device, {.logits = x.const_view(shape),
                                                                            .targets = targets.const_view(),
                                                                            .maximum = r.maximum.const_view(),
                                                                            .sum = r.sum.const_view(),
                                                                            .gradient = gradient.const_view(),
                                                                            .dlogits = r.dx.view(shape)});
    };
    for (const double unit : {0.25, 1.0, 8.0}) {
        CAPTURE(unit);
        const double constant = std::ldexp(unit, digits);
        const result near_zero(rows * classes), high(rows * classes), low(rows * classes);
        of(unit, 0, near_zero);
        of(unit, constant, high);
        of(unit, -constant - static_cast<double>(most) * unit, low);
        for (const result* r : {&high, &low}) {
            CHECK(r->losses.same_bits(near_zero.losses));
            CHECK(r->sum.same_bits(near_zero.sum));
            CHECK(r->dx.same_bits(near_zero.dx));
        }
    }
}

/// Equal logits of any magnitude: the loss is the logarithm of the number of classes, and the gradient is 1 / classes.
template <class Device>
void equal_logits(Device& device, extent classes) {
    CAPTURE(classes);
    const ht::shape<2> shape{1, classes};
    const guarded<float> x(classes), losses(1), maximum(1), sum(1), dx(classes), one(std::vector<float>{1.0f});
    const guarded<std::int32_t> target(std::vector<std::int32_t>{1});
    for (const float logit : {0.0f, 1e4f, 1e7f, -1e7f, 1e8f, 3e38f, -3e38f}) {
        CAPTURE(logit);
        for (extent j = 0; j < classes; ++j) x[j] = logit;
        ht::kernel::cross_entropy<Device>::template forward<float>(device, {.logits = x.const_view(shape),
                                                                            .targets = target.const_view(),
                                                                            .losses = losses.view(),
                                                                            .maximum = maximum.view(),
                                                                            .sum = sum.view()});
        ht::kernel::cross_entropy<Device>::template backward<float, float>(device, {.logits = x.const_view(shape),
                                                                                    .targets = target.const_view(),
                                                                                    .maximum = maximum.const_view(),
                                                                                    .sum = sum.const_view(),
                                                                                    .gradient = one.const_view(),
                                                                                    .dlogits = dx.view(shape)});
        const auto n = static_cast<double>(classes);
        CHECK(std::fabs(static_cast<double>(losses[0]) - std::log(n)) <= log_error * std::log(n));
        CHECK(maximum[0] == logit);
        CHECK(sum[0] == static_cast<float>(classes));
        for (extent j = 0; j < classes; ++j) {
            const double want = 1 / n - (j == 1 ? 1 : 0);
            CHECK(std::fabs(static_cast<double>(dx[j]) - want) <= support::gamma(3) * std::fabs(want));
        }
    }
}

}  // namespace cross_entropy_checks
