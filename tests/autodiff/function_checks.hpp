// SPDX-License-Identifier: MIT
/// \file
/// Every function of one variable in policy/operation_table.hpp, on any device: values and derivatives are PyTorch's (golden/operations.txt),
/// in float within the bound that the function's expression states.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/autodiff/engine/hook.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/pointwise.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "kernel/map/bounded.hpp"
#include "support/bounds.hpp"
#include "support/golden_operations.hpp"
#include "support/values.hpp"

namespace function_checks {

namespace ht = halftone;
using support::bounded;
using support::golden_operation;
using support::values;

/// Calls f<tag>(call), where call(context, x) calls the function.
template <class F>
void for_each_function(const F& f) {
#define HALFTONE_FUNCTION(tag, category) \
    f.template operator()<ht::op::tag>([](auto& context, const auto& x) { return ht::tag(context, x); });
#include <halftone/policy/operation_table.hpp>
}

/// The expression of an operation of a tape, and its derivatives, as functions of a number with its error.
struct expressions {
    std::function<bounded(bounded)> value, slope, curvature;
};
struct expression_hook : ht::detail::tape_hook, expressions {
    using tape_hook::tape_hook;

    /// Keeps the first.
    template <class Record>
    void record(const Record& r) {
        if (value) return;
        const auto e = ht::detail::as_pack(r.expression).template at<0>();
        const auto of = [](const auto& function) {
            return [function](bounded x) { return ht::scalar::evaluate(function, &x); };
        };
        value = of(e), slope = of(ht::derivative<0>(e)), curvature = of(ht::derivative<0>(ht::derivative<0>(e)));
    }
};

template <class T>
std::vector<T> places_of(const std::vector<golden_operation::point>& points) {
    std::vector<T> x;
    for (const auto& p : points) x.push_back(static_cast<T>(p.x));
    return x;
}
/// What a value in double may differ from PyTorch's by: both round a few times.
inline double in_double(double want) { return 16 * ht::unit_roundoff<double> * (std::fabs(want) + 1); }

/// Equal infinities, NaNs and signs of zero, or close to it.
inline void check_other(double got, double want, double bound) {
    if (std::isnan(want) || std::isinf(want)) {
        CHECK(std::isnan(got) == std::isnan(want));
        if (std::isinf(want)) CHECK(got == want);
    } else {
        CHECK(std::fabs(got - want) <= bound);
        if (want == 0) CHECK(std::signbit(got) == std::signbit(want));
    }
}

/// Values in T at the other places: zeros, infinities, NaN.
template <class T, class Device, class Call>
void check_others(Device& device, const golden_operation& golden, const Call& call) {
    const std::vector<T> x = places_of<T>(golden.others);
    ht::inference<Device> context{device};
    const auto n = static_cast<ht::extent>(x.size());
    const auto in = ht::to_device(device, ht::const_view<T, 1>(x.data(), {n}));
    const auto y = values(device, call(context, context.constant(in.const_view())).view());
    for (std::size_t i = 0; i < x.size(); ++i) {
        CAPTURE(golden.others[i].x);
        check_other(y[i], golden.others[i].value, 8 * ht::unit_roundoff<T> * std::fabs(golden.others[i].value));
    }
}

/// In float: values and gradients of the kernels, which between PyTorch's numbers are compared with the expression in double; and both
/// derivatives of the expression.
template <class Device, class Call>
void check_in_float(Device& device, const golden_operation& golden, const Call& call) {
    std::vector<float> x = places_of<float>(golden.points);
    for (const auto& range : golden.ranges) {
        for (int i = 0; i < 200; ++i) x.push_back(static_cast<float>(range.low + (range.high - range.low) * (i + 0.37) / 200));
    }
    const auto n = static_cast<ht::extent>(x.size());
    const auto in = ht::to_device(device, ht::const_view<float, 1>(x.data(), {n}));
    ht::detail::hooked_tape<Device, expression_hook> tape{device};
    const auto leaf = tape.leaf(in.const_view());
    const auto result = call(tape, leaf);
    const std::vector<double> y = values(device, result.view());
    const expressions e = tape.hook();
    REQUIRE(e.value);
    tape.backward(ht::sum(tape, result));
    const std::vector<double> gradients = values(device, tape.gradient(leaf));
    support::comparison values, slopes, curvatures;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const bounded slope = e.slope(static_cast<double>(x[i]));
        slopes.expect(gradients[i], slope.value, slope.error + 2 * support::unit * std::fabs(slope.value));
    }
    for (std::size_t i = golden.points.size(); i < x.size(); ++i) {
        const bounded want = e.value(static_cast<double>(x[i]));
        values.expect(y[i], want.value, want.error);
    }
    for (std::size_t i = 0; i < golden.points.size(); ++i) {
        const auto& p = golden.points[i];
        const bounded slope = e.slope(p.x), curvature = e.curvature(p.x);
        values.expect(y[i], p.value, e.value(p.x).error + in_double(p.value));
        // A constant of an expression is a float.
        const double constant = 2 * support::unit;
        slopes.expect(slope.value, p.slope, slope.error + constant * std::fabs(p.slope) + in_double(p.slope));
        curvatures.expect(curvature.value, p.curvature,
                          curvature.error + constant * std::fabs(p.curvature) + in_double(p.curvature));
    }
    CHECK(values.within());
    CHECK(slopes.within());
    CHECK(curvatures.within());
}

/// In double: values and gradients of the kernels.
template <class Device, class Call>
void check_in_double(Device& device, const golden_operation& golden, const Call& call) {
    const std::vector<double> x = places_of<double>(golden.points);
    const auto n = static_cast<ht::extent>(x.size());
    const auto in = ht::to_device(device, ht::const_view<double, 1>(x.data(), {n}));
    ht::tape tape{device};
    const auto leaf = tape.leaf(in.const_view());
    const auto y = call(tape, leaf);
    tape.backward(ht::sum(tape, y));
    const std::vector<double> values = support::values(device, y.view()),
                              slopes = support::values(device, tape.gradient(leaf));
    for (std::size_t i = 0; i < x.size(); ++i) {
        CAPTURE(x[i]);
        CHECK(std::fabs(values[i] - golden.points[i].value) <= in_double(golden.points[i].value));
        CHECK(std::fabs(slopes[i] - golden.points[i].slope) <= in_double(golden.points[i].slope));
    }
}

/// In float, on a tape for second derivatives: the sum of w f(x) f'(x), differentiated, which is w (f'(x)^2 + f(x) f''(x)).
template <class Device, class Call>
void check_second_derivative(Device& device, const golden_operation& golden, const Call& call) {
    const std::vector<float> x = places_of<float>(golden.points);
    std::vector<float> w;
    for (std::size_t i = 0; i < x.size(); ++i) w.push_back(i % 2 == 0 ? 0.5f : -2.0f);
    const auto n = static_cast<ht::extent>(x.size());
    const auto in = ht::to_device(device, ht::const_view<float, 1>(x.data(), {n}));
    const auto weights = ht::to_device(device, ht::const_view<float, 1>(w.data(), {n}));
    ht::detail::hooked_tape<Device, expression_hook> once{device};
    call(once, once.leaf(in.const_view()));
    ht::tape tape{device, ht::double_backward};
    const auto leaf = tape.leaf(in.const_view());
    const auto y = call(tape, leaf);
    const auto slopes = tape.gradients(ht::sum(tape, y), leaf);
    const auto weighed = ht::mul(tape, y, tape.constant(weights.const_view()));
    tape.backward(ht::sum(tape, ht::mul(tape, weighed, slopes.of(leaf))));
    const std::vector<double> got = values(device, tape.gradient(leaf));
    support::comparison curvatures;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const auto& p = golden.points[i];
        const expression_hook& e = once.hook();
        const bounded slope = e.slope(p.x), product = slope * slope + e.value(p.x) * e.curvature(p.x);
        const double want = p.slope * p.slope + p.value * p.curvature,
                     terms = p.slope * p.slope + std::fabs(p.value * p.curvature);
        // Each gradient and each product on the way is rounded once, and so is each constant.
        const auto weight = static_cast<double>(w[i]);
        curvatures.expect(got[i], weight * want, std::fabs(weight) * (product.error + 8 * support::unit * terms + in_double(want)));
    }
    CHECK(curvatures.within());
}

template <class Device>
void check_twice(Device& device) {
    const support::golden_operations golden = support::read_golden_operations();
    for_each_function([&]<class Op>(const auto& call) {
        CAPTURE(std::string(Op::name));
        check_second_derivative(device, golden.of(Op::name), call);
    });
}

template <class Device>
void check_functions(Device& device) {
    const support::golden_operations golden = support::read_golden_operations();
    for_each_function([&]<class Op>(const auto& call) {
        CAPTURE(std::string(Op::name));
        const golden_operation& of = golden.of(Op::name);
        REQUIRE_MESSAGE(of.points.size() > 3, "golden/operations.txt: the line has no range of x");
        check_in_float(device, of, call);
        check_in_double(device, of, call);
        check_others<float>(device, of, call);
        check_others<double>(device, of, call);
    });
}

}  // namespace function_checks
