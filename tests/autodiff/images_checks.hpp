// SPDX-License-Identifier: MIT
/// \file
/// Pooling, batch norm and group norm on tapes of any device: gradients against differences in double, types of
/// results, what is kept and what is not.
///
///     images_checks::gradients(device);
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/channel_norm.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/pooling.hpp>
#include <halftone/observe/check_gradients.hpp>
#include <halftone/tensor/host_tensor.hpp>

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

}  // namespace images_checks
