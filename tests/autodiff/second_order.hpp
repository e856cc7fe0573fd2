// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives of a tape against differences of a definition in double.
///
///     second_order::check(device, &parameters, x, longest, forward, definition);
///
/// The tape differentiates the sum of its first gradients times given weights w; that is the Hessian times w. The
/// definition is only the loss: it contains none of the formulas under test.
#pragma once

#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/double_backward/double_backward.hpp>

#include "support/bounds.hpp"
#include "support/gradient_sink.hpp"
#include "support/random.hpp"

namespace second_order {

namespace ht = halftone;
using doubles = std::vector<double>;

/// What gradients() takes for a model.
struct parameters_of {
    const ht::store& owner;
    const ht::store& parameters() const { return owner; }
};

template <class Device>
using tape_on = ht::tape<Device, ht::double_backward_tape>;
template <class Device>
using forward_on = std::function<ht::variable<float, 0>(tape_on<Device>&, const ht::variable<float, 2>&)>;

using definition_of = std::function<double(const doubles&)>;

/// (d/dt)(d/ds) of f at x + t v + s w by differences at h and h / 2, combined so that the error is of order h^4.
inline double mixed_difference(const definition_of& f, const doubles& x, const doubles& v, const doubles& w,
                               double& error) {
    const auto at = [&](double t, double s) {
        doubles moved = x;
        for (std::size_t i = 0; i < x.size(); ++i) moved[i] += t * v[i] + s * w[i];
        return f(moved);
    };
    double slope[2], largest = 0;
    const double h = 4e-3;
    for (int halving = 0; halving < 2; ++halving) {
        const double d = std::ldexp(h, -halving);
        const double corners[] = {at(d, d), at(d, -d), at(-d, d), at(-d, -d)};
        for (const double c : corners) largest = std::max(largest, std::fabs(c));
        slope[halving] = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * d * d);
    }
    const double correction = (slope[1] - slope[0]) / 3;
    // A thousand roundings are more than any definition here makes for one value.
    error = std::fabs(correction) * h + 4000 * ht::unit_roundoff<double> * std::max(1.0, largest) / (h * h);
    return slope[1] + correction;
}

/// forward(tape, x) and definition(x and all parameters, one behind the other) are a loss, x (rows, columns) is a leaf;
/// `longest` is the length of the longest sum in any operation.
///
/// The bound: each operation on the tape passes its values through one sum and a few functions at most, that is through
/// longest + 8 roundings, relative to the magnitudes that it adds. Those of the last result are second derivatives
/// times w, and what cancels within one of them is no larger than the first derivatives.
template <class Device>
void check(Device& device, ht::store* parameters, const ht::shape<2>& s, double longest,
           const std::type_identity_t<forward_on<Device>>& forward, const definition_of& definition, double low = -1,
           double high = 1) {
    support::random data(5);
    std::vector<float> x(static_cast<std::size_t>(s.size()));
    for (float& v : x) v = static_cast<float>(data.uniform(low, high));
    doubles all(x.begin(), x.end());
    if (parameters != nullptr) {
        for (std::size_t i = 0; i < parameters->entries().size(); ++i) {
            for (const float v : support::read_masters(*parameters, i)) all.push_back(static_cast<double>(v));
        }
    }
    std::vector<float> w(all.size());
    for (float& v : w) v = static_cast<float>(data.uniform(-1, 1));

    ht::tape tape{device, ht::double_backward};
    doubles got;
    std::size_t operations = 0;
    {
        const auto leaf = tape.leaf(ht::const_view<float, 2>(x.data(), s));
        const auto loss = forward(tape, leaf);
        double value = static_cast<double>(loss.item());
        CHECK(value == doctest::Approx(definition(all)).epsilon(1e-4));
        const auto grads = [&] {
            if (parameters == nullptr) return tape.gradients(loss, leaf);
            return tape.gradients(loss, leaf, parameters_of{*parameters});
        }();
        ht::variable<float, 0> total;
        std::size_t first = 0;
        for (std::size_t i = 0; i < grads.size(); ++i) {
            const auto weights = tape.constant(ht::const_view<float, 1>(w.data() + first, grads[i].shape()));
            const auto part = ht::sum(tape, ht::mul(tape, grads[i], weights));
            total = i == 0 ? part : ht::add(tape, total, part);
            first += static_cast<std::size_t>(grads[i].size());
        }
        REQUIRE(first == all.size());
        operations = tape.graph().records();
        std::vector<float> dx(x.size());
        if (parameters == nullptr) {
            tape.backward(total);
        } else {
            support::gradient_sink sink(*parameters);
            tape.backward(total, sink);
            for (std::size_t i = 0; i < parameters->entries().size(); ++i) {
                for (const float v : sink.entry(i)) got.push_back(static_cast<double>(v));
            }
        }
        device.memory().read(dx.data(), tape.gradient(leaf).data(), dx.size() * sizeof(float));
        got.insert(got.begin(), dx.begin(), dx.end());
    }
    CHECK(tape.memory().live() == 0);

    const std::size_t n = all.size();
    const doubles direction(w.begin(), w.end());
    const auto axis = [n](std::size_t i) {
        doubles e(n);
        e[i] = 1;
        return e;
    };
    doubles want(n), inexact(n);
    double largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
        want[i] = mixed_difference(definition, all, axis(i), direction, inexact[i]);
        double magnitudes = 0, unused = 0;
        for (std::size_t j = 0; j < n; ++j)
            magnitudes += std::fabs(direction[j] * mixed_difference(definition, all, axis(i), axis(j), unused));
        doubles moved = all;
        moved[i] += 1e-5;
        largest = std::max({largest, magnitudes, std::fabs(definition(moved) - definition(all)) / 1e-5});
    }
    support::comparison c;
    for (std::size_t i = 0; i < n; ++i)
        c.expect(got[i], want[i],
                 inexact[i] + support::gamma(static_cast<double>(operations) * (longest + 8)) * largest);
    CHECK_WITHIN(c);
}

/// The sum of u y^2 over the elements of a result, u = 1, 3/2, 2, 5/2, 1, …: a loss whose gradient depends on every one
/// of them.
inline double weight_of(std::size_t i) { return 1 + 0.5 * static_cast<double>(i % 4); }
inline double weighed(const doubles& y) {
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += weight_of(i) * y[i] * y[i];
    return sum;
}
template <class Tape, int Rank>
ht::variable<float, 0> weigh(Tape& tape, const ht::variable<float, Rank>& y) {
    std::vector<float> weights(static_cast<std::size_t>(y.size()));
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(weight_of(i));
    auto u = tape.template make<float>(ht::shape<1>{y.size()}, false);
    tape.device().memory().write(u.view().data(), weights.data(), weights.size() * sizeof(float));
    const auto flat = ht::detail::flat(y);
    return ht::sum(tape, ht::map(tape, [](auto a, auto b) { return b * a * a; }, flat, u));
}

}  // namespace second_order
