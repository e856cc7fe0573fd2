// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on a tape, on any device: gradients compared with differences in double, shapes and types of results,
/// values compared with PyTorch's.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/axis_reduction.hpp>
#include <halftone/observe/check_gradients.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "support/bounds.hpp"
#include "support/random.hpp"

namespace axis_tape_checks {

namespace ht = halftone;
using ht::axes, ht::keepdim;
using ht::bfloat16;

/// No two elements are equally large, nor as near as differences step.
template <int Rank>
ht::host_tensor<double, Rank> distinct(const ht::shape<Rank>& s) {
    support::random data(9);
    ht::host_tensor<double, Rank> x(s);
    for (ht::extent i = 0; i < s.size(); ++i)
        x.data()[i] = static_cast<double>((i * 7 + 3) % s.size()) / 8 + data.uniform(-0.02, 0.02);
    return x;
}

template <class Device, int Rank, int... Axes>
void gradients_along(Device& device, const ht::shape<Rank>& s, ht::axis_list<Axes...> along) {
    CAPTURE(s);
    const auto x = distinct(s);
    const auto check = [&](const char* name, const auto& f) {
        const auto report = ht::check_gradients(device, f, x.view());
        CHECK_MESSAGE(report.agrees(), name, ": ", report.text());
    };
    check("sum", [&](auto& c, auto v) { return ht::sum(c, v, along); });
    check("mean", [&](auto& c, auto v) { return ht::mean(c, v, along, keepdim); });
    check("var", [&](auto& c, auto v) { return ht::var(c, v, along); });
    check("var, biased", [&](auto& c, auto v) { return ht::var(c, v, along, keepdim, {.correction = 0}); });
    check("std", [&](auto& c, auto v) { return ht::std(c, v, along); });
    check("logsumexp", [&](auto& c, auto v) { return ht::logsumexp(c, v, along); });
    check("amax", [&](auto& c, auto v) { return ht::amax(c, v, along); });
    check("amin", [&](auto& c, auto v) { return ht::amin(c, v, along, keepdim); });
    check("prod", [&](auto& c, auto v) { return ht::prod(c, v, along); });
    check("softmax", [&](auto& c, auto v) { return ht::softmax(c, v, along); });
    check("log_softmax", [&](auto& c, auto v) { return ht::log_softmax(c, v, along); });
    // A second use, so that gradients are added to the first ones.
    check("twice", [&](auto& c, auto v) {
        return ht::add(c, ht::logsumexp(c, v, along), ht::mul(c, ht::var(c, v, along), ht::amax(c, v, along)));
    });
}

template <class Device>
void all_gradients(Device& device) {
    gradients_along(device, ht::shape<1>{5}, axes<0>);
    gradients_along(device, ht::shape<2>{3, 4}, axes<1>);
    gradients_along(device, ht::shape<2>{3, 4}, axes<0>);
    gradients_along(device, ht::shape<3>{2, 3, 4}, axes<0, 2>);
    gradients_along(device, ht::shape<4>{2, 3, 2, 2}, axes<1, -1>);
    const auto x = distinct(ht::shape<3>{2, 3, 4});
    const auto along = [&](auto axis) {
        const auto report = ht::check_gradients(
            device, [&](auto& c, auto v) { return ht::cumsum(c, v, axis); }, x.view());
        CHECK_MESSAGE(report.agrees(), report.text());
    };
    along(axes<0>), along(axes<1>), along(axes<2>);
}

/// The elements of a result, as doubles.
template <class Device, class T, int Rank>
std::vector<double> values(Device& device, const ht::variable<T, Rank>& v) {
    const auto host = ht::to_host(device, v);
    std::vector<double> all;
    for (ht::extent i = 0; i < v.size(); ++i) all.push_back(static_cast<double>(host.data()[i]));
    return all;
}

template <class Device>
void shapes_and_values(Device& device) {
    const float in[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    ht::host_tensor<float, 3> host(ht::shape<3>{2, 3, 2});
    std::copy(std::begin(in), std::end(in), host.data());
    const auto memory = ht::to_device(device, host);
    ht::inference eval{device};
    const auto x = eval.constant(memory.view());
    using doubles = std::vector<double>;
    const auto total = ht::sum(eval, x, axes<0, 2>);
    CHECK((total.shape() == ht::shape<1>{3} && values(device, total) == doubles{18, 26, 34}));
    const auto kept = ht::sum(eval, x, axes<2, 0>, keepdim);
    CHECK((kept.shape() == ht::shape<3>{1, 3, 1} && values(device, kept) == doubles{18, 26, 34}));
    CHECK(values(device, ht::mean(eval, x, axes<1>)) == doubles{3, 4, 9, 10});
    CHECK(values(device, ht::var(eval, x, axes<-2>)) == doubles{4, 4, 4, 4});
    CHECK(values(device, ht::std(eval, x, axes<1>)) == doubles{2, 2, 2, 2});
    CHECK(values(device, ht::amax(eval, x)) == doubles{12});
    CHECK(values(device, ht::amin(eval, x, axes<0>)) == doubles{1, 2, 3, 4, 5, 6});
    CHECK(values(device, ht::prod(eval, x, axes<1>, keepdim)) == doubles{15, 48, 693, 960});
    CHECK(values(device, ht::prod(eval, x)) == doubles{479001600});
    CHECK(values(device, ht::argmax(eval, x)) == doubles{11});
    const auto at = ht::argmin(eval, x, axes<1>, keepdim);
    static_assert(std::is_same_v<typename decltype(at)::value_type, std::int32_t>);
    CHECK((at.shape() == ht::shape<3>{2, 1, 2} && values(device, at) == doubles{0, 0, 0, 0}));
    CHECK(values(device, ht::cumsum(eval, x, axes<1>)) == doubles{1, 2, 4, 6, 9, 12, 7, 8, 16, 18, 27, 30});
    CHECK(values(device, ht::var(eval, x, {.correction = 0}))[0] == doctest::Approx(143.0 / 12));
    CHECK(values(device, ht::std(eval, x))[0] == doctest::Approx(std::sqrt(13.0)));
    CHECK(values(device, ht::logsumexp(eval, x))[0] == doctest::Approx(12.458675).epsilon(1e-6));
    // Softmax along the middle axis is softmax along the last axis of the transposed input.
    const auto p = values(device, ht::softmax(eval, x, axes<1>)),
               logs = values(device, ht::log_softmax(eval, x, axes<1>));
    const double sum = 1 + std::exp(-2) + std::exp(-4);
    for (std::size_t i = 0; i < 12; ++i) {
        const double want = std::exp(-4 + 2 * static_cast<double>(i / 2 % 3)) / sum;
        CHECK(std::fabs(p[i] - want) <= 16 * support::u * want);
        CHECK(std::fabs(logs[i] - std::log(want)) <= 32 * support::u);
    }
    // The gradient of a deviation of 0 is 0.
    ht::tape tape{device};
    ht::host_tensor<float, 2> equal(ht::shape<2>{1, 3});
    std::fill_n(equal.data(), 3, 2.0f);
    const auto equal_memory = ht::to_device(device, equal);
    const auto leaf = tape.leaf(equal_memory.view());
    tape.backward(ht::sum(tape, ht::std(tape, leaf, axes<1>)));
    const auto slope = ht::to_host(device, tape.gradient(leaf));
    for (int i = 0; i < 3; ++i) CHECK(slope.data()[i] == 0);
}

/// Variances of finite elements whose sum is beyond float's range: 0 if they are equal, and infinity if their squares are
/// beyond it, too; never NaN.
template <class Device>
void variances_beyond_sums(Device& device) {
    const auto check = [&](bool are_equal) {
        CAPTURE(are_equal);
        ht::host_tensor<float, 2> in(ht::shape<2>{5, 5});
        for (int i = 0; i < 25; ++i) in.data()[i] = are_equal || i % 5 != i / 5 ? -3e38f : 3e38f;
        const auto memory = ht::to_device(device, in);
        ht::inference eval{device};
        const auto x = eval.constant(memory.view());
        const double want = are_equal ? 0 : std::numeric_limits<double>::infinity();
        for (const double v : values(device, ht::var(eval, x, axes<1>))) CHECK(v == want);
        for (const double v : values(device, ht::var(eval, x, axes<0>))) CHECK(v == want);
    };
    check(true), check(false);
}

/// Standard deviations of two elements a and -a whose squares float does not hold: sqrt(2) a, with gradients of +-1 / sqrt(2).
template <class Device>
void deviations_beyond_squares(Device& device) {
    for (const float a : {1e-40f, 1e-25f, 1.0f, 1e25f, 1e38f}) {
        CAPTURE(a);
        ht::host_tensor<float, 2> in(ht::shape<2>{1, 2});
        in.data()[0] = a, in.data()[1] = -a;
        const auto memory = ht::to_device(device, in);
        ht::tape tape{device};
        const auto x = tape.leaf(memory.view());
        const auto y = ht::std(tape, x, axes<1>);
        const double want = std::sqrt(2.0) * static_cast<double>(a);
        CHECK(std::fabs(values(device, y)[0] - want) <= support::rounded<float>(want, 2 * support::u * want));
        tape.backward(ht::sum(tape, y));
        const auto dx = ht::to_host(device, tape.gradient(x));
        for (int i = 0; i < 2; ++i)
            CHECK(std::fabs(static_cast<double>(dx.data()[i]) - (i == 0 ? 1 : -1) / std::sqrt(2.0)) <= 8 * support::u);
    }
}

/// A result of 16 bits keeps what its gradient reads in float: a softmax of bf16 logits whose sum of exponentials is far from
/// one.
template <class Device>
void narrow_results(Device& device) {
    ht::host_tensor<bfloat16, 2> in(ht::shape<2>{1, 4});
    for (int i = 0; i < 4; ++i) in.data()[i] = bfloat16(101.0f + static_cast<float>(i) / 2);
    const auto memory = ht::to_device(device, in);
    ht::tape tape{device};
    const auto x = tape.leaf(memory.view());
    const auto y = ht::logsumexp(tape, x, axes<1>);
    static_assert(std::is_same_v<typename decltype(y)::value_type, bfloat16>);
    tape.backward(ht::sum<float>(tape, y));
    const auto dx = ht::to_host(device, tape.gradient(x));
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += std::exp(static_cast<double>(i) / 2);
    for (int i = 0; i < 4; ++i) {
        const double want = std::exp(static_cast<double>(i) / 2) / sum;
        CHECK(std::fabs(static_cast<double>(dx.data()[i]) - want) <=
              support::rounded<bfloat16>(want, 110 * 4 * support::u * want));
    }
}

}  // namespace axis_tape_checks
