// SPDX-License-Identifier: MIT
/// \file
/// Convolutions on tapes of any device: values and gradients against the definition, on small whole numbers which are exact.
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/conv2d.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel/conv2d/reference.hpp>

#include "support/gradient_sink.hpp"
#include "support/random.hpp"
#include "support/values.hpp"

namespace conv2d_tape_checks {

namespace ht = halftone;
using ht::bfloat16, ht::extent;
using support::values;
using doubles = std::vector<double>;

inline constexpr ht::conv2d_options halves{.stride = {2, 2}, .padding = {1, 1}, .groups = 2};
inline constexpr ht::shape<4> in{2, 4, 5, 6}, filter{6, 2, 3, 3}, out{2, 6, 3, 3};

/// The sum of y times dy, whose gradient by y is dy.
template <class Tape, class Y, int Rank>
auto weigh(Tape& tape, const ht::variable<Y, Rank>& y, const std::vector<float>& dy) {
    const auto weights = tape.template make<float>(y.shape(), false);
    tape.device().memory().write(weights.view().data(), dy.data(), dy.size() * sizeof(float));
    return ht::sum<float>(tape, ht::mul<float>(tape, y, weights));
}

/// What the definition gives of x, weight and dy, with a bias of 1, 2, ….
struct expected {
    doubles y, dx, dw, db;

    template <class X, class W>
    expected(const std::vector<X>& x, const std::vector<W>& w, const std::vector<float>& dy)
        : y(dy.size()), dx(x.size()), dw(w.size()), db(static_cast<std::size_t>(filter[0])) {
        const ht::const_view<X, 4> of_x(x.data(), in);
        const ht::const_view<W, 4> of_w(w.data(), filter);
        const ht::const_view<float, 4> of_y(dy.data(), out);
        ht::reference::conv2d(of_x, of_w, halves, ht::view<double, 4>(y.data(), out));
        ht::reference::conv2d_input(of_w, of_y, halves, ht::view<double, 4>(dx.data(), in));
        ht::reference::conv2d_weight(of_x, of_y, halves, ht::view<double, 4>(dw.data(), filter));
        for (std::size_t i = 0; i < dy.size(); ++i) {
            const std::size_t channel = i / static_cast<std::size_t>(out[2] * out[3]) % db.size();
            y[i] += static_cast<double>(channel + 1), db[channel] += static_cast<double>(dy[i]);
        }
    }
};
inline doubles twice(doubles v) {
    for (double& x : v) x *= 2;
    return v;
}

/// Of variables: all of them leaves, used once and then again.
template <class T, class Device>
void of_variables(Device& device) {
    support::random data(21);
    std::vector<T> x = data.integers<T>(in.size(), 3), w = data.integers<T>(filter.size(), 2), b;
    for (extent o = 0; o < filter[0]; ++o) b.push_back(T(static_cast<float>(o + 1)));
    const std::vector<float> dy = data.integers<float>(out.size(), 2);
    const expected want(x, w, dy);
    ht::tape tape{device};
    const auto vx = tape.leaf(ht::view<T, 4>(x.data(), in)), vw = tape.leaf(ht::view<T, 4>(w.data(), filter));
    const auto vb = tape.leaf(ht::view<T, 1>(b.data(), {filter[0]}));
    const auto y = ht::conv2d(tape, vx, vw, vb, halves);
    static_assert(std::is_same_v<decltype(y), const ht::variable<T, 4>>);
    CHECK(y.shape() == out);
    CHECK(values(device, y.view()) == want.y);
    const auto z = ht::conv2d(tape, vx, vw, vb, halves);
    tape.backward(ht::add(tape, weigh(tape, y, dy), weigh(tape, z, dy)));
    CHECK(values(device, tape.gradient(vx)) == twice(want.dx));
    CHECK(values(device, tape.gradient(vw)) == twice(want.dw));
    CHECK(values(device, tape.gradient(vb)) == twice(want.db));
}

/// Of a layer's parameters, in its policy: twice into one window.
template <class P, class Device>
void of_parameters(Device& device) {
    using T = typename P::output;
    using roles = ht::roles<typename P::compute, T, typename P::grad>;
    ht::store parameters(device.memory());
    const auto weight = parameters.add<P, ht::op::conv2d>("weight", filter, {});
    const auto bias = parameters.add<P, ht::op::conv2d>("bias", ht::shape<1>{filter[0]}, {});
    parameters.commit();
    support::random data(22);
    std::vector<T> x = data.integers<T>(in.size(), 3);
    const std::vector<float> w = data.integers<float>(filter.size(), 2), dy = data.integers<float>(out.size(), 2);
    std::vector<float> b;
    for (extent o = 0; o < filter[0]; ++o) b.push_back(static_cast<float>(o + 1));
    weight.assign(w), bias.assign(b);
    const expected want(x, w, dy);
    ht::tape tape{device};
    support::gradient_sink sink(parameters);
    const auto vx = tape.leaf(ht::view<T, 4>(x.data(), in));
    const auto y = ht::conv2d<roles>(tape, vx, weight, bias, halves);
    CHECK(values(device, y.view()) == want.y);
    tape.backward(weigh(tape, y, dy), sink);
    CHECK(values(device, tape.gradient(vx)) == want.dx);
    CHECK(sink.of(weight) == want.dw);
    CHECK(sink.of(bias) == want.db);
    tape.backward(weigh(tape, ht::conv2d<roles>(tape, vx, weight, ht::absent{}, halves), dy), sink);
    CHECK(sink.of(weight) == twice(want.dw));
    // What is frozen takes no gradient, and x is not kept for it.
    parameters.freeze("weight");
    support::gradient_sink others(parameters);
    const auto again = tape.leaf(ht::view<T, 4>(x.data(), in));
    tape.backward(weigh(tape, ht::conv2d<roles>(tape, again, weight, bias, halves), dy), others);
    CHECK(values(device, tape.gradient(again)) == want.dx);
    CHECK(others.of(bias) == want.db);
}

}  // namespace conv2d_tape_checks
