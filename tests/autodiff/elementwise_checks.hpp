// SPDX-License-Identifier: MIT
/// \file
/// Named pointwise operations of several variables or with arguments, and losses, on any device: values compared with <cmath> in double,
/// gradients with central differences of it; results of kernels must be within the bound that the expression's operations state.
/// function_checks.hpp has the functions of one variable.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/number/classify.hpp>

#include "kernel/map/bounded.hpp"
#include "support/bounds.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"
#include "support/values.hpp"

namespace elementwise_checks {

namespace ht = halftone;
using support::bounded;
using support::guarded;
using support::values;

constexpr int count = 37;
constexpr int third = 3;  ///< operands at most

/// Numbers in [low, high], no two of an operand the same, and none near a corner at 0 or 1.
inline std::vector<float> numbers(int seed, double low, double high) {
    std::vector<float> x;
    support::random data(static_cast<std::uint64_t>(seed));
    while (x.size() < count) {
        const double v =
            low + (high - low) *
                      (static_cast<double>(x.size()) + 0.1 + 0.8 * std::fabs(std::fmod(data.normal(), 1.0))) / count;
        x.push_back(static_cast<float>(std::fabs(v) < 0.02 ? 0.05 : std::fabs(std::fabs(v) - 1) < 0.01 ? 1.02 * v : v));
    }
    return x;
}

/// A scalar out of y, whose gradient is `dy` exactly.
template <class Tape, class Y, int Rank>
auto weigh(Tape& tape, const ht::variable<Y, Rank>& y, const guarded<float>& dy) {
    return ht::sum(tape, ht::mul(tape, y, tape.constant(ht::view<float, Rank>(dy.data(), y.shape()))));
}

/// How much of an operation is run, since each kernel costs time to compile: gradients of maps are kernel/map's to
/// test.
enum class depth { value, gradient };

/// operation(context, x...) is f, an expression; definition is the same in double. Operand i is in [low[i], high[i]].
template <int Operands, depth Depth, class Device, class Operation, class F, class Definition>
void check(Device& device, const char* name, const Operation& operation, const F& f, const Definition& definition,
           std::vector<double> low, std::vector<double> high, double constants = 0) {
    CAPTURE(std::string(name));
    const auto e = ht::trace<Operands>(f);
    const std::vector<float> data[third] = {numbers(1, low[0], high[0]),
                                            numbers(2, low[Operands > 1 ? 1 : 0], high[Operands > 1 ? 1 : 0]),
                                            numbers(3, low[Operands > 2 ? 2 : 0], high[Operands > 2 ? 2 : 0])};
    const guarded<float> in[third] = {data[0], data[1], data[2]}, dy(support::random(4).normals<float>(count));
    std::conditional_t<Depth == depth::gradient, ht::tape<Device>, ht::inference<Device>> ctx{device};
    const ht::shape<1> s{count};
    const ht::variable<float, 1> x[third] = {ctx.leaf(in[0].view(s)), ctx.leaf(in[1].view(s)), ctx.leaf(in[2].view(s))};
    const auto y = operation(ctx, x);
    const std::vector<double> got = values(device, y.view());
    if constexpr (Depth == depth::gradient) ctx.backward(weigh(ctx, y, dy));

    support::comparison result, of_definition, of_gradient, slopes;
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<double> at(third);
        bounded with_error[third];
        for (int k = 0; k < third; ++k)
            with_error[k] = at[static_cast<std::size_t>(k)] = static_cast<double>(data[k][i]);
        const bounded want = ht::scalar::evaluate(e, with_error);
        result.expect(got[i], want.value, want.error);
        const double exact = definition(at);
        of_definition.expect(want.value, exact, (1e-14 + constants) * std::fabs(exact) + 1e-14);
    }
    CHECK_WITHIN(result);
    CHECK_WITHIN(of_definition);
    const auto by = [&]<int Index>(std::integral_constant<int, Index>) {
        const auto derivative = ht::derivative<Index>(e);
        std::vector<double> gradient;
        if constexpr (Depth == depth::gradient) gradient = values(device, ctx.gradient(x[Index]));
        for (std::size_t i = 0; i < count; ++i) {
            std::vector<double> at(third);
            bounded with_error[third];
            for (int k = 0; k < third; ++k)
                with_error[k] = at[static_cast<std::size_t>(k)] = static_cast<double>(data[k][i]);
            const bounded slope = ht::scalar::evaluate(derivative, with_error);
            double error = 0;
            const double difference = support::central_difference(definition, at, Index, error);
            slopes.expect(slope.value, difference, error + constants * std::fabs(difference));
            const bounded want = bounded(static_cast<double>(dy[static_cast<ht::extent>(i)])) * slope;
            if constexpr (Depth == depth::gradient) of_gradient.expect(gradient[i], want.value, want.error);
        }
    };
    by(std::integral_constant<int, 0>{});
    if constexpr (Operands > 1) by(std::integral_constant<int, 1>{});
    if constexpr (Operands > 2) by(std::integral_constant<int, 2>{});
    if constexpr (Depth == depth::gradient) CHECK_WITHIN(of_gradient);
    CHECK_WITHIN(slopes);
}

/// The functions with vector code of their own, and their slopes, in one kernel.
template <class Device>
void gradients(Device& device) {
    check<2, depth::gradient>(
        device, "map of functions",
        [](auto& tape, const auto* x) {
            return ht::map(
                tape,
                [](auto a, auto b) {
                    return ht::expm1(a) * ht::softplus(b) + ht::log1p(b) * ht::sinh(a) + ht::tan(a) * ht::cosh(b) +
                           ht::atan2(a, b) * ht::pow(b, a);
                },
                x[0], x[1]);
        },
        [](auto a, auto b) {
            return ht::expm1(a) * ht::softplus(b) + ht::log1p(b) * ht::sinh(a) + ht::tan(a) * ht::cosh(b) +
                   ht::atan2(a, b) * ht::pow(b, a);
        },
        [](const std::vector<double>& at) {
            const double a = at[0], b = at[1];
            return std::expm1(a) * std::log1p(std::exp(b)) + std::log1p(b) * std::sinh(a) + std::tan(a) * std::cosh(b) +
                   std::atan2(a, b) * std::pow(b, a);
        },
        {-1.2, 0.3}, {1.2, 2});
}

template <class Device>
void of_two_and_three(Device& device) {
    check<2, depth::value>(
        device, "div", [](auto& tape, const auto* x) { return ht::div(tape, x[0], x[1]); },
        [](auto a, auto b) { return a / b; }, [](const std::vector<double>& at) { return at[0] / at[1]; }, {-3, 0.5},
        {3, 4});
    check<2, depth::value>(
        device, "pow", [](auto& tape, const auto* x) { return ht::pow(tape, x[0], x[1]); },
        [](auto a, auto b) { return ht::pow(a, b); },
        [](const std::vector<double>& at) { return std::pow(at[0], at[1]); }, {0.2, -3}, {4, 3});
    check<2, depth::value>(
        device, "atan2", [](auto& tape, const auto* x) { return ht::atan2(tape, x[0], x[1]); },
        [](auto a, auto b) { return ht::atan2(a, b); },
        [](const std::vector<double>& at) { return std::atan2(at[0], at[1]); }, {-3, 0.5}, {3, 4});
    check<2, depth::value>(
        device, "prelu", [](auto& tape, const auto* x) { return ht::prelu(tape, x[0], x[1]); },
        [](auto a, auto b) { return ht::where(a > 0, a, b * a); },
        [](const std::vector<double>& at) { return at[0] > 0 ? at[0] : at[1] * at[0]; }, {-3, 0.1}, {3, 0.5});
    check<3, depth::value>(
        device, "addcmul", [](auto& tape, const auto* x) { return ht::addcmul(tape, x[0], x[1], x[2], 0.5f); },
        [](auto a, auto b, auto c) { return a + 0.5f * b * c; },
        [](const std::vector<double>& at) { return at[0] + 0.5 * at[1] * at[2]; }, {-3, -2, -1}, {3, 2, 1});
    check<3, depth::value>(
        device, "addcdiv", [](auto& tape, const auto* x) { return ht::addcdiv(tape, x[0], x[1], x[2], 0.5f); },
        [](auto a, auto b, auto c) { return a + 0.5f * b / c; },
        [](const std::vector<double>& at) { return at[0] + 0.5 * at[1] / at[2]; }, {-3, -2, 0.5}, {3, 2, 4});
    check<1, depth::value>(
        device, "leaky_relu", [](auto& tape, const auto* x) { return ht::leaky_relu(tape, x[0], 0.25f); },
        [](auto a) { return ht::where(a > 0, a, 0.25f * a); },
        [](const std::vector<double>& at) { return at[0] > 0 ? at[0] : 0.25 * at[0]; }, {-3}, {3});
    check<1, depth::value>(
        device, "pow of a number", [](auto& tape, const auto* x) { return ht::pow(tape, x[0], 3); },
        [](auto a) { return ht::pow(a, 3); }, [](const std::vector<double>& at) { return at[0] * at[0] * at[0]; },
        {0.2}, {4});
    check<1, depth::value>(
        device, "numbers",
        [](auto& tape, const auto* x) {
            return ht::div(tape, ht::mul(tape, ht::add(tape, ht::sub(tape, x[0], 1), 0.5f), 3), 2);
        },
        [](auto a) { return (a - 1 + 0.5f) * 3 / 2; },
        [](const std::vector<double>& at) { return (at[0] - 0.5) * 1.5; }, {-3}, {3});
}

/// A mean of f over all elements, its gradient by the prediction and by the target.
template <depth Depth, class Device, class Operation, class F, class Definition>
void check_loss(Device& device, const char* name, const Operation& operation, const F& f, const Definition& definition,
                double low, double high, double target_low, double target_high) {
    CAPTURE(std::string(name));
    const auto e = ht::trace<2>(f);
    const std::vector<float> p = numbers(1, low, high), t = numbers(7, target_low, target_high);
    const guarded<float> prediction(p), target(t);
    std::conditional_t<Depth == depth::gradient, ht::tape<Device>, ht::inference<Device>> ctx{device};
    const ht::shape<1> s{count};
    const auto x = ctx.leaf(prediction.view(s)), z = ctx.leaf(target.view(s));
    const auto loss = operation(ctx, x, z);
    static_assert(std::is_same_v<decltype(loss), const ht::variable<float, 0>>);
    const double got = values(device, loss.view())[0];
    std::vector<double> dx(count), dz(count);
    if constexpr (Depth == depth::gradient) {
        ctx.backward(loss);
        dx = values(device, ctx.gradient(x));
        dz = values(device, ctx.gradient(z));
    }
    bounded sum;
    double total = 0, magnitude = 0;
    support::comparison gradients, slopes;
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<double> at{static_cast<double>(p[i]), static_cast<double>(t[i])};
        const bounded with_error[] = {at[0], at[1]};
        const bounded value = ht::scalar::evaluate(e, with_error);
        sum = {sum.value + value.value, sum.error + value.error};
        magnitude += std::fabs(value.value) + value.error;
        total += definition(at);
        const auto look = [&](const auto& derivative, int by, double gradient) {
            const bounded slope = ht::scalar::evaluate(derivative, with_error);
            // The factor 1 / count is a rounded float.
            const bounded want = bounded(1.0 / count, 0x1p-25 / count) * slope;
            if constexpr (Depth == depth::gradient)
                gradients.expect(gradient, want.value, want.error + 0x1p-23 * std::fabs(want.value));
            double error = 0;
            const double difference = support::central_difference(definition, at, static_cast<std::size_t>(by), error);
            slopes.expect(slope.value, difference, error + 0x1p-22 * std::fabs(difference));
        };
        look(ht::derivative<0>(e), 0, dx[i]);
        look(ht::derivative<1>(e), 1, dz[i]);
    }
    if constexpr (Depth == depth::gradient) CHECK_WITHIN(gradients);
    CHECK_WITHIN(slopes);
    // At most one rounding for each addend, and those of the mean.
    CHECK(std::fabs(got - sum.value / count) <= (sum.error + (count + 2) * 0x1p-24 * magnitude) / count);
    CHECK(std::fabs(total - sum.value) <= 1e-6 * magnitude);
}

template <class Device>
void losses(Device& device) {
    check_loss<depth::value>(
        device, "l1_loss", [](auto& tape, const auto& x, const auto& t) { return ht::l1_loss(tape, x, t); },
        [](auto x, auto t) { return ht::abs(x - t); },
        [](const std::vector<double>& at) { return std::fabs(at[0] - at[1]); }, -3, 3, 4, 5);
    const auto smooth = [](const std::vector<double>& at) {
        const double d = std::fabs(at[0] - at[1]);
        return d < 0.5 ? d * d : d - 0.25;
    };
    check_loss<depth::value>(
        device, "smooth_l1_loss",
        [](auto& tape, const auto& x, const auto& t) { return ht::smooth_l1_loss(tape, x, t, 0.5f); },
        [](auto x, auto t) {
            return ht::where(ht::abs(x - t) < 0.5f, 1.0f * ht::square(x - t), ht::abs(x - t) - 0.25f);
        },
        smooth, -3, 3, 2.2, 2.3);
    const auto huber = [](const std::vector<double>& at) {
        const double d = std::fabs(at[0] - at[1]);
        return d < 0.75 ? d * d / 2 : 0.75 * (d - 0.375);
    };
    check_loss<depth::gradient>(
        device, "huber_loss",
        [](auto& tape, const auto& x, const auto& t) { return ht::huber_loss(tape, x, t, 0.75f); },
        [](auto x, auto t) {
            return ht::where(ht::abs(x - t) < 0.75f, 0.5f * ht::square(x - t), 0.75f * (ht::abs(x - t) - 0.375f));
        },
        huber, -3, 3, 2.2, 2.3);
    const auto entropy = [](double p, double t) { return -t * std::log(p) - (1 - t) * std::log(1 - p); };
    check_loss<depth::value>(
        device, "binary_cross_entropy_with_logits",
        [](auto& tape, const auto& x, const auto& t) { return ht::binary_cross_entropy_with_logits(tape, x, t); },
        [](auto x, auto t) { return (ht::max(x, 0) - x * t) + ht::softplus(-ht::abs(x)); },
        [=](const std::vector<double>& at) { return entropy(1 / (1 + std::exp(-at[0])), at[1]); }, -4, 4, 0.1, 0.9);
    check_loss<depth::value>(
        device, "binary_cross_entropy",
        [](auto& tape, const auto& x, const auto& t) { return ht::binary_cross_entropy(tape, x, t); },
        [](auto x, auto t) { return -(t * ht::max(ht::log(x), -100) + (1 - t) * ht::max(ht::log1p(-x), -100)); },
        [=](const std::vector<double>& at) { return entropy(at[0], at[1]); }, 0.1, 0.9, 0.1, 0.9);
}

/// What no bound shows: extremes, targets that are views, refusals, reductions.
template <class Device>
void further(Device& device) {
    ht::tape tape{device};
    const guarded<float> x(std::vector<float>{3, -4, 0, 0, 12, 0}), z(std::vector<float>{1, 2, 3, 4, 5, 6}),
        large(std::vector<float>{200, -200, 0}), labels(std::vector<float>{1, 0, 1}), zero(std::vector<float>{0, 0, 0});
    const ht::shape<2> s{2, 3};
    const auto a = tape.leaf(x.view(s)), b = tape.leaf(z.view(s));
    CHECK(ht::norm(tape, a).item() == 13.0f);
    CHECK(ht::dot(tape, a, b).item() == 55.0f);
    tape.backward(ht::norm(tape, a));
    const std::vector<double> direction = values(device, tape.gradient(a));
    for (int i = 0; i < 6; ++i)
        CHECK(std::fabs(direction[static_cast<std::size_t>(i)] - static_cast<double>(x[i]) / 13) <= 4 * 0x1p-24);
    const auto nothing = tape.leaf(zero.view());
    tape.backward(ht::norm(tape, nothing));
    for (const double g : values(device, tape.gradient(nothing))) CHECK(g == 0);
    // The limits of squares in float.
    const guarded<float> small(std::vector<float>{1e-25f, 1e-25f}), huge(std::vector<float>{1e25f, 1e25f});
    CHECK(ht::norm(tape, tape.leaf(small.view())).item() == 0);
    CHECK(ht::is_inf(ht::norm(tape, tape.leaf(huge.view())).item()));
    tape.backward(ht::dot(tape, b, b));
    for (int i = 0; i < 6; ++i)
        CHECK(values(device, tape.gradient(b))[static_cast<std::size_t>(i)] == 2 * static_cast<double>(z[i]));

    // Logits whose exponential overflows; the derivative at 0 is 1/2 - t.
    const auto logits = tape.leaf(large.view());
    const auto loss = ht::binary_cross_entropy_with_logits(tape, logits, labels.const_view());
    CHECK(std::fabs(static_cast<double>(loss.item()) - std::log(2.0) / 3) <= 8 * 0x1p-24);
    tape.backward(loss);
    const std::vector<double> slopes = values(device, tape.gradient(logits));
    CHECK(slopes[0] == 0);
    CHECK(slopes[1] == 0);
    CHECK(slopes[2] == static_cast<double>(-0.5f * static_cast<float>(1.0 / 3)));
    // Probabilities of 0 and 1 with the opposite target.
    const guarded<float> sure(std::vector<float>{1, 0, 0});
    CHECK(ht::binary_cross_entropy(tape, tape.constant(sure.view()), labels.const_view()).item() ==
          static_cast<float>(100.0 / 3));

    CHECK_THROWS_AS(ht::l1_loss(tape, a, z.const_view(ht::shape<2>{3, 2})), ht::shape_error);
    CHECK_THROWS_AS(ht::huber_loss(tape, a, b, 0), ht::argument_error);
    CHECK_THROWS_AS(ht::smooth_l1_loss(tape, a, b, -1), ht::argument_error);
    CHECK_THROWS_AS(ht::dot(tape, a, tape.constant(z.view(ht::shape<2>{3, 2}))), ht::shape_error);

    // A cast rounds once, and its gradient widens.
    const guarded<float> fine(std::vector<float>{1.00390625f, 3, -2});
    const auto v = tape.leaf(fine.view());
    const auto w = ht::cast<ht::bfloat16>(tape, v);
    static_assert(std::is_same_v<decltype(w), const ht::variable<ht::bfloat16, 1>>);
    CHECK(values(device, w.view()) == std::vector<double>{1, 3, -2});
    CHECK(ht::cast<float>(tape, v).slot() == v.slot());
    tape.backward(ht::sum<float>(tape, ht::mul(tape, w, w)));
    CHECK(values(device, tape.gradient(v)) == std::vector<double>{2, 6, -4});
}

}  // namespace elementwise_checks
