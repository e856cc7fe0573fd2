// SPDX-License-Identifier: MIT
/// \file
/// Pooling, batch norm and group norm on tapes of any device: gradients against differences in double, types of
/// results, what is kept and what is not.
///
///     images_checks::gradients(device);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/channel_norm.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/pooling.hpp>
#include <halftone/observe/check_gradients.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "support/bounds.hpp"
#include "support/random.hpp"

namespace images_checks {

namespace ht = halftone;
using ht::extent;
using doubles = std::vector<double>;

/// Numbers no two of which are equally large, nor become so where one is moved a little.
inline ht::host_tensor<double, 4> distinct(const ht::shape<4>& s) {
    support::random data(4);
    ht::host_tensor<double, 4> x(s);
    for (extent i = 0; i < s.size(); ++i)
        x.data()[i] = static_cast<double>((i * 7 + 3) % s.size()) / 8 + data.uniform(-0.02, 0.02);
    return x;
}

template <class Device, class F, class... Inputs>
void check(Device& device, const char* name, const F& f, const Inputs&... inputs) {
    const auto report = ht::check_gradients(device, f, inputs.view()...);
    CHECK_MESSAGE(report.agrees(), name, ": ", report.text());
}

/// Also of a second use, so that gradients are added to what is there.
template <class Device>
void gradients(Device& device) {
    const auto x = distinct({2, 2, 4, 5});
    check(
        device, "max_pool2d",
        [](auto& t, auto v) {
            return ht::add(t, ht::max_pool2d(t, v, {3, 2, 1}), ht::max_pool2d(t, v, {{2, 3}, {2, 2}, {1, 1}, {3, 1}}));
        },
        x);
    check(
        device, "avg_pool2d",
        [](auto& t, auto v) {
            return ht::add(
                t, ht::avg_pool2d(t, v, {3, 2, 1}),
                ht::avg_pool2d(t, v, {.kernel_size = 3, .stride = 2, .padding = 1, .count_include_pad = false}));
        },
        x);
    check(
        device, "adaptive_avg_pool2d",
        [](auto& t, auto v) {
            return ht::add(t, ht::adaptive_avg_pool2d(t, v, {3, 2}), ht::adaptive_avg_pool2d(t, v, 1));
        },
        x);

    ht::host_tensor<double, 1> weight(ht::shape<1>{2}), bias(ht::shape<1>{2}), mean(ht::shape<1>{2}),
        var(ht::shape<1>{2});
    weight.data()[0] = 1.5, weight.data()[1] = -0.75, bias.data()[0] = 0.25, bias.data()[1] = 2;
    mean.data()[0] = 0.5, mean.data()[1] = 1, var.data()[0] = 0.75, var.data()[1] = 2;
    const auto on_device_mean = ht::to_device(device, mean.view()), on_device_var = ht::to_device(device, var.view());
    check(
        device, "batch_norm",
        [](auto& t, auto v, auto w, auto b) {
            return ht::mul(t, v, ht::batch_norm(t, v, ht::absent{}, ht::absent{}, w, b, {.training = true}));
        },
        x, weight, bias);
    check(
        device, "batch_norm by running statistics",
        [&](auto& t, auto v, auto w, auto b) {
            return ht::mul(t, v, ht::batch_norm(t, v, ht::as_view(on_device_mean), ht::as_view(on_device_var), w, b));
        },
        x, weight, bias);
    check(
        device, "group_norm",
        [](auto& t, auto v, auto w, auto b) {
            return ht::add(t, ht::group_norm(t, v, 1, w, b), ht::group_norm(t, v, 2, w, ht::absent{}));
        },
        x, weight, bias);
    check(
        device, "group_norm without weight", [](auto& t, auto v) { return ht::group_norm(t, v, 2); }, x);
}

/// Batch norm and group norm of values whose mean is 1e4 and whose deviation is 0.011, in float, and in double: what the stored
/// means lack is kept for the gradients.
template <class Device>
void far_from_zero(Device& device) {
    const ht::shape<4> s{2, 4, 3, 7};
    support::random data(8);
    ht::host_tensor<float, 4> x(s);
    ht::host_tensor<double, 4> exact(s);
    for (extent i = 0; i < s.size(); ++i) {
        x.data()[i] = 1e4f + static_cast<float>(0.011 * data.normal());
        exact.data()[i] = static_cast<double>(x.data()[i]);
    }
    const auto run = [&](const auto& host, const auto& f) {
        const auto memory = ht::to_device(device, host);
        ht::tape tape{device};
        const auto leaf = tape.leaf(memory.view());
        const auto y = f(tape, leaf);
        tape.backward(ht::sum(tape, ht::mul(tape, y, ht::mul(tape, y, y))));
        const auto result = ht::to_host(device, y), dx = ht::to_host(device, tape.gradient(leaf));
        std::vector<double> all;
        for (extent i = 0; i < s.size(); ++i) all.push_back(static_cast<double>(result.data()[i]));
        for (extent i = 0; i < s.size(); ++i) all.push_back(static_cast<double>(dx.data()[i]));
        return all;
    };
    const auto compare = [&](const auto& f) {
        const std::vector<double> got = run(x, f), want = run(exact, f);
        const auto n = static_cast<std::size_t>(s.size());
        double largest = 0, largest_slope = 0;
        for (std::size_t i = 0; i < n; ++i)
            largest = std::fmax(largest, std::fabs(want[i])), largest_slope = std::fmax(largest_slope, std::fabs(want[n + i]));
        for (std::size_t i = 0; i < n; ++i) {
            CHECK(std::fabs(got[i] - want[i]) <= 16 * support::u * largest);
            CHECK(std::fabs(got[n + i] - want[n + i]) <= 64 * support::u * largest_slope);
        }
    };
    const ht::absent none;
    compare([&](auto& t, auto v) { return ht::batch_norm(t, v, none, none, none, none, {.training = true}); });
    compare([&](auto& t, auto v) { return ht::group_norm(t, v, 2); });
}

}  // namespace images_checks
