// SPDX-License-Identifier: MIT
/// \file
/// Softmax and its logarithm, of any device, against their definitions.
///
///     softmax_checks::forward_within_bounds<softmax_checks::mixed>(device, rows, width, scale, deviation);
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/softmax/reference.hpp>
#include <halftone/kernel/softmax/softmax.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/policy/presets.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace softmax_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::write_mode;
using support::guarded;
using support::u;
using doubles = std::vector<double>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double log_error = 6 * u;  // three units in the last place: what exec/cpu/simd/math.simd.hpp promises

template <class X_, class Y_>
struct types {
    using X = X_;
    using Y = Y_;
};
using all_float = types<float, float>;
using mixed = types<bfloat16, bfloat16>;
using widening = types<float16, float>;

/// The error of one row: relative for y, absolute for log y. exp's argument s (x - max) has one rounded difference and one product;
/// the sum of exponentials adds its depth. The exponential is that for arguments in T.
template <class Device, class T>
struct row_errors {
    double largest = -HUGE_VAL, sum_relative = 0, log_sum = 0;
    double scale;
    bool scaled;

    template <class X>
    row_errors(const X* x, extent width, double s) : scale(s), scaled(s != 1) {
        for (extent j = 0; j < width; ++j) largest = std::fmax(largest, scale * static_cast<double>(x[j]));
        double sum = 0, wrong = 0;
        for (extent j = 0; j < width; ++j) {
            const double e = std::exp(scale * static_cast<double>(x[j]) - largest);
            sum += e;
            wrong += e * exponential(static_cast<double>(x[j]));
        }
        const double depth = support::gamma(static_cast<double>(ht::kernel::sum_depth(width)));
        sum_relative = wrong / sum * (1 + depth) + depth;
        log_sum = std::fabs(std::log(sum));
    }
    double argument(double x) const {
        const double value = scale * x, difference = std::fabs(value - largest);
        if (difference == HUGE_VAL) return 0;
        return (scaled ? support::gamma(2) : u) * difference;
    }
    double exponential(double x) const {
        const double difference = std::fabs(scale * x - largest);
        const double own = support::exp_error<Device, T>(difference == HUGE_VAL ? 0 : difference);
        return std::expm1(argument(x)) * (1 + own) + own;
    }
    double of_softmax(double x) const { return exponential(x) + sum_relative / (1 - sum_relative) + support::gamma(3); }
    double of_log_softmax(double x, double y) const {
        return argument(x) + sum_relative / (1 - sum_relative) + log_error * log_sum + u * std::fabs(y) * (1 + 8 * u);
    }
};

/// apart: the distance in elements of the arrays from a vector-aligned address; 0: all are aligned.
template <class M, class Device>
void forward_within_bounds(Device& device, extent rows, extent width, float scale, double deviation, extent apart = 1) {
    CAPTURE(width);
    using X = typename M::X;
    using Y = typename M::Y;
    support::random data(static_cast<std::uint64_t>(width));
    const ht::shape<2> shape{rows, width};
    const guarded<X> x(data.normals<X>(rows * width, deviation), apart);
    const guarded<Y> y(rows * width, 3 * apart), log_y(rows * width, 5 * apart);
    ht::softmax<ht::amp_bf16>(device, x.const_view(shape), y.view(shape), static_cast<double>(scale));
    ht::log_softmax<ht::amp_bf16>(device, x.const_view(shape), log_y.view(shape), static_cast<double>(scale));

    doubles want(static_cast<std::size_t>(rows * width)), want_log(want.size());
    ht::reference::softmax(x.const_view(shape), static_cast<double>(scale), ht::view<double, 2>(want.data(), shape));
    ht::reference::log_softmax(x.const_view(shape), static_cast<double>(scale),
                               ht::view<double, 2>(want_log.data(), shape));

    constexpr double tiny = 2 * support::exp_least<Device, Y>();
    support::comparison plain, logarithm;
    for (extent i = 0; i < rows; ++i) {
        const row_errors<Device, Y> errors(x.data() + i * width, width, static_cast<double>(scale));
        const row_errors<Device, float> log_errors(x.data() + i * width, width, static_cast<double>(scale));
        for (extent j = 0; j < width; ++j) {
            const extent k = i * width + j;
            const double at = static_cast<double>(x[k]), p = want[static_cast<std::size_t>(k)],
                         l = want_log[static_cast<std::size_t>(k)];
            plain.expect(static_cast<double>(y[k]), p, support::rounded<Y>(p, p * errors.of_softmax(at) + tiny));
            logarithm.expect(static_cast<double>(log_y[k]), l,
                             support::rounded<Y>(l, log_errors.of_log_softmax(at, l)));
        }
    }
    CHECK_WITHIN(plain);
    CHECK_MESSAGE(logarithm.within(), logarithm);
    if (width > 1) CHECK_MESSAGE(logarithm.telling(), logarithm);
    CHECK(y.intact());
    CHECK(log_y.intact());
}

template <class M, class Device>
void backward_within_bounds(Device& device, extent rows, extent width, write_mode mode, extent apart = 1) {
    using X = typename M::X;
    using Y = typename M::Y;
    CAPTURE(width);
    constexpr float scale = 0.7f;
    const ht::shape<2> shape{rows, width};
    support::random data(static_cast<std::uint64_t>(width));
    const guarded<Y> y(rows * width, apart), log_y(rows * width, 2 * apart),
        dy(data.normals<Y>(rows * width), 3 * apart);
    for (extent k = 0; k < rows * width; ++k)
        y[k] = Y(static_cast<float>(data.uniform(0.1, 1))),
        log_y[k] = Y(static_cast<float>(data.uniform(-2, 0)));
    const auto old = data.normals<X>(rows * width);
    const guarded<X> dx(old, 5 * apart), log_dx(old, 7 * apart);
    ht::softmax_gradients<ht::amp_bf16>(device, y.const_view(shape), dy.const_view(shape), dx.view(shape),
                                        static_cast<double>(scale), mode);
    ht::log_softmax_gradients<ht::amp_bf16>(device, log_y.const_view(shape), dy.const_view(shape), log_dx.view(shape),
                                            static_cast<double>(scale), mode);

    doubles want(static_cast<std::size_t>(rows * width)), want_log(want.size());
    ht::reference::softmax_backward(y.const_view(shape), dy.const_view(shape), static_cast<double>(scale),
                                    ht::view<double, 2>(want.data(), shape));
    ht::reference::log_softmax_backward(log_y.const_view(shape), dy.const_view(shape),
                                        static_cast<double>(scale),
                                        ht::view<double, 2>(want_log.data(), shape));
    const double depth = static_cast<double>(ht::kernel::sum_depth(width)), s = static_cast<double>(scale);
    support::comparison plain, logarithm;
    for (extent i = 0; i < rows; ++i) {
        double dots = 0, sums = 0;
        for (extent j = i * width; j < (i + 1) * width; ++j) {
            dots += std::fabs(static_cast<double>(dy[j]) * static_cast<double>(y[j]));
            sums += std::fabs(static_cast<double>(dy[j]));
        }
        for (extent k = i * width; k < (i + 1) * width; ++k) {
            const double d = std::fabs(static_cast<double>(dy[k])),
                         p = std::fabs(static_cast<double>(y[k])) * s;
            const double before =
                mode == write_mode::add ? static_cast<double>(old[static_cast<std::size_t>(k)]) : 0;
            const double added = mode == write_mode::add ? u : 0;
            // The product of the dot, its sum; then a difference and two products.
            const double error = p * (support::gamma(depth + 1) * dots + support::gamma(3) * (d + dots));
            const double wanted = want[static_cast<std::size_t>(k)] + before;
            plain.expect(static_cast<double>(dx[k]), wanted,
                         support::rounded<X>(wanted, error + added * (std::fabs(wanted) + error)));

            const double e = std::exp(static_cast<double>(log_y[k]));
            const double log_error =
                s * (e * sums * (support::gamma(depth) + support::exp_error<Device, float>(0) + support::gamma(4)) +
                     support::gamma(2) * d);
            const double log_wanted = want_log[static_cast<std::size_t>(k)] + before;
            logarithm.expect(
                static_cast<double>(log_dx[k]), log_wanted,
                support::rounded<X>(log_wanted, log_error + added * (std::fabs(log_wanted) + log_error)));
        }
    }
    CHECK_WITHIN(plain);
    CHECK_WITHIN(logarithm);
    CHECK(dx.intact());
    CHECK(log_dx.intact());
}

template <class T = float, class Device>
void what_is_exact(Device& device, extent width) {
    CAPTURE(width);
    const ht::shape<2> shape{3, width};  // the bits are the same: some devices begin the next row before they finish one
    const guarded<T> x(3 * width), y(3 * width), log_y(3 * width);
    const auto run = [&] {
        for (extent k = width; k < 3 * width; ++k) x[k] = x[k % width];
        ht::kernel::softmax<Device>::template forward<T, T>(device, {.x = x.const_view(shape), .y = y.view(shape)});
        ht::kernel::log_softmax<Device>::template forward<T, T>(device,
                                                                {.x = x.const_view(shape), .y = log_y.view(shape)});
    };
    const auto fill = [&](float value) {
        for (extent j = 0; j < width; ++j) x[j] = T(value);
    };

    for (const float value : {0.0f, 1e4f, -1e4f, 3e38f}) {  // equal elements: 1 / width each
        fill(value);
        run();
        for (extent k = 0; k < 3 * width; ++k) CHECK(y[k] == T(1.0f / static_cast<float>(width)));
    }
    const T one{1.0f}, zero{0.0f}, high{1e4f};
    for (const float value : {0.0f, -1e4f, -3e38f, -infinity}) {  // one element exceeds all others: it becomes 1
        fill(value);
        x[width - 1] = high;
        run();
        for (extent k = 0; k < 3 * width; ++k) CHECK(y[k] == (k % width == width - 1 ? one : zero));
        CHECK(log_y[width - 1] == zero);
        CHECK(log_y[0] == T(static_cast<float>(x[0]) - static_cast<float>(high)));
    }
    fill(-infinity);  // two elements that are not masked
    x[0] = x[width / 2] = T(-3.0f);
    run();
    for (extent k = 0; k < 3 * width; ++k)
        CHECK(y[k] == (k % width == 0 || k % width == width / 2 ? T(0.5f) : zero));

    // Fully masked, or containing NaN: NaN at every position, as in PyTorch.
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float value : {-infinity, infinity, nan, -nan}) {
        fill(value == -infinity ? value : 1);
        x[width - 1] = T(value);
        run();
        for (extent k = 0; k < 3 * width; ++k) {
            CHECK(ht::is_nan(y[k]));
            CHECK(ht::is_nan(log_y[k]));
        }
    }

    // A row of NaNs does not affect other rows, also in place.
    fill(0);
    run();
    for (extent j = 0; j < width; ++j) x[width + j] = T(std::numeric_limits<float>::quiet_NaN());
    ht::kernel::softmax<Device>::template forward<T, T>(device, {.x = x.const_view(shape), .y = x.view(shape)});
    for (extent k = 0; k < 3 * width; ++k) {
        const bool poisoned = k / width == 1;
        CHECK(ht::is_nan(x[k]) == poisoned);
        if (!poisoned) CHECK(x[k] == y[k]);
    }
}

/// Adding a constant to all elements of a row changes no bit, whatever the scale is, if the sums are exact: elements are whole
/// multiples of a unit, and the constant is the power of two at which the numbers of X are one unit apart.
template <class M, class Device>
void no_constant_matters(Device& device, extent width) {
    CAPTURE(width);
    using X = typename M::X;
    using Y = typename M::Y;
    constexpr extent rows = 5;
    constexpr int digits = ht::number_traits<X>::significand_bits - 1;
    constexpr int most = digits < 10 ? 24 : 100;
    const ht::shape<2> shape{rows, width};
    const std::vector<std::int32_t> whole =
        support::random(static_cast<std::uint64_t>(width)).indices(rows * width, most);
    struct result {
        guarded<Y> y, log_y;
        explicit result(extent n) : y(n), log_y(n) {}
    };
    const auto of = [&](double unit, double constant, float scale, const result& r) {
        const guarded<X> x(rows * width);
        for (extent k = 0; k < rows * width; ++k) {
            const double wanted = constant + unit * whole[static_cast<std::size_t>(k)];
            x[k] = X(static_cast<float>(wanted));
            REQUIRE(static_cast<double>(x[k]) == wanted);
        }
        ht::kernel::softmax<Device>::template forward<X, Y>(
            device, {.x = x.const_view(shape), .y = r.y.view(shape), .scale = scale});
        ht::kernel::log_softmax<Device>::template forward<X, Y>(
            device, {.x = x.const_view(shape), .y = r.log_y.view(shape), .scale = scale});
    };
    for (const double unit : {0.25, 8.0}) {
        for (const float scale : {1.0f, 0.125f, 0.7f, -0.7f, 0.08838835f, 0.0f}) {
            CAPTURE(unit);
            CAPTURE(scale);
            const double constant = std::ldexp(unit, digits);
            const result near_zero(rows * width), high(rows * width), low(rows * width);
            of(unit, 0, scale, near_zero);
            of(unit, constant, scale, high);
            of(unit, -constant - most * unit, scale, low);
            for (const result* r : {&high, &low}) {
                CHECK(r->y.same_bits(near_zero.y));
                CHECK(r->log_y.same_bits(near_zero.log_y));
            }
            if (scale == 0.0f) CHECK(near_zero.y[0] == Y(1.0f / static_cast<float>(width)));
        }
    }
}

}  // namespace softmax_checks
