// SPDX-License-Identifier: MIT
/// \file
/// Binary cross-entropy at the ends of the probabilities and between them, against PyTorch's definition in double: each
/// logarithm at least -100, the gradient (p - t) / max(p (1 - p), 1e-12), and the derivative of that.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/kernel/map/map.hpp>
#include <halftone/tensor/host_tensor.hpp>

namespace probability_checks {

namespace ht = halftone;

/// |got - expected| is at most so many units of T's roundoff of it.
template <class T>
bool is_near(T got, double expected, double units) {
    return std::abs(static_cast<double>(got) - expected) <= units * ht::unit_roundoff<T> * std::abs(expected);
}

template <class T, class Device>
void check(Device& device) {
    // Numbers that every type here represents exactly, p above t, below t and close to t; 0 and 1 with all targets.
    std::vector<T> p, t;
    for (const float x : {0.0f, 1.0f, 0.5f, 0.25f, 0.96875f, 0x1p-14f}) {
        for (const float y : {0.0f, 1.0f, 0.5f}) p.push_back(T(x)), t.push_back(T(y));
    }
    const auto n = static_cast<ht::extent>(p.size());
    const auto at = ht::to_device(device, ht::const_view<T, 1>(p.data(), {n}));
    const auto target = ht::to_device(device, ht::const_view<T, 1>(t.data(), {n}));
    using S = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const ht::tensor<S, 1> loss{device.memory(), {n}}, slope{device.memory(), {n}}, curve{device.memory(), {n}};
    const auto e = ht::symbolic::binary_cross_entropy(ht::symbolic::argument<0>{}, ht::symbolic::argument<1>{});
    ht::kernel::map<Device>::run(
        device, ht::make_pack(e, ht::derivative<0>(e), ht::derivative<0>(ht::derivative<0>(e))),
        ht::make_pack(loss.view(), slope.view(), curve.view()), ht::make_pack(at.const_view(), target.const_view()));
    const auto losses = ht::to_host(device, loss), slopes = ht::to_host(device, slope),
               curves = ht::to_host(device, curve);
    for (ht::extent i = 0; i < n; ++i) {
        const auto x = static_cast<double>(p[static_cast<std::size_t>(i)]),
                   y = static_cast<double>(t[static_cast<std::size_t>(i)]);
        const double divisor = std::max(x * (1 - x), static_cast<double>(S(1e-12)));
        const double growth = x * (1 - x) < divisor ? 0 : 1 - 2 * x;
        CAPTURE(x);
        CAPTURE(y);
        const double hit = std::max(std::log(x), -100.0), miss = std::max(std::log1p(-x), -100.0);
        // Two logarithms of 3 ulp, which are two units each; products and a sum.
        CHECK(is_near(losses(i), -(y * hit + (1 - y) * miss), 10));
        CHECK(is_near(slopes(i), (x - y) / divisor, 5));
        CHECK(std::abs(static_cast<double>(curves(i)) - (divisor - (x - y) * growth) / (divisor * divisor)) <=
              8 * ht::unit_roundoff<S> * (divisor + std::abs((x - y) * growth)) / (divisor * divisor));
    }
}

/// A probability that is as wrong as can be has a gradient: through the loss on a tape.
template <class T, class Device>
void gradients(Device& device) {
    ht::tape tape{device};
    const std::vector<T> p{T(0.0f), T(1.0f), T(0.0f), T(1.0f)}, t{T(1.0f), T(0.0f), T(0.0f), T(1.0f)};
    const auto at = ht::to_device(device, ht::const_view<T, 1>(p.data(), {4}));
    const auto x = tape.leaf(at.view());
    const auto loss = ht::binary_cross_entropy(tape, x, ht::const_view<T, 1>(t.data(), {4}));
    CHECK(static_cast<double>(loss.item()) == 50.0);
    tape.backward(loss);
    const auto dx = ht::to_host(device, tape.gradient(x));
    CHECK(is_near(dx(0), -0.25e12, 4));
    CHECK(is_near(dx(1), 0.25e12, 4));
    CHECK(static_cast<double>(dx(2)) == 0.0);
    CHECK(static_cast<double>(dx(3)) == 0.0);
}

template <class Device>
void all(Device& device) {
    check<float>(device);
    check<double>(device);
    check<ht::bfloat16>(device);
    gradients<float>(device);
    gradients<double>(device);
}

}  // namespace probability_checks
