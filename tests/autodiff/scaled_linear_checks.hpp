// SPDX-License-Identifier: MIT
/// \file
/// Tests of linear layers with eight-bit products, for every device.
///
///     scaled_linear_checks::exact(device, {6, 5, 7});
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/linear.hpp>
#include <halftone/kernel/quantize/reference.hpp>

#include "autodiff/compare.hpp"
#include "autodiff/weigh.hpp"
#include "support/gradient_sink.hpp"
#include "support/guarded.hpp"
#include "support/layers.hpp"
#include "support/random.hpp"
#include "support/values.hpp"

namespace scaled_linear_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using doubles = std::vector<double>;
using support::guarded;
using support::matrix;
using support::tracked;
using support::values;

struct sizes {
    int rows, in, out;
};

/// A layer with its numbers, as bf16 and so the same in masters and copies.
template <class P, class Device>
struct fixture {
    using storage = ht::storage_signature<P, ht::op::linear>;
    using roles = ht::layer_roles<P, ht::op::linear, ht::tape<Device>>;

    Device& device;
    sizes n;
    ht::store parameters{device.memory()};
    ht::parameter<storage, 2> weight = parameters.add<P, ht::op::linear>("weight", ht::shape<2>{n.out, n.in}, {});
    ht::parameter<storage, 1> bias = parameters.add<P, ht::op::linear>("bias", ht::shape<1>{n.out}, {});
    std::vector<float> w, b;
    guarded<bfloat16> x, r, dy;

    fixture(Device& d, const sizes& s, const std::vector<float>& weights, const std::vector<float>& biases,
            const std::vector<bfloat16>& input, const std::vector<bfloat16>& residual,
            const std::vector<bfloat16>& gradient)
        : device(d), n(s), w(weights), b(biases), x(input), r(residual), dy(gradient) {
        parameters.commit();
        weight.assign(w), bias.assign(b);
    }
    ht::view<bfloat16, 2> input() const { return x.view(ht::shape<2>{n.rows, n.in}); }
    ht::view<bfloat16, 2> residual() const { return r.view(ht::shape<2>{n.rows, n.out}); }
};

/// Integers that both formats hold, at scales that are powers of two: every product and sum is exact, and the roundings
/// are none.
template <class P, class Device>
void exact(Device& device, const sizes& n, int most) {
    CAPTURE(n.rows);
    CAPTURE(n.in);
    support::random data{1};
    fixture<P, Device> f(device, n, data.integers<float>(n.out * n.in, most), data.integers<float>(n.out, most),
                         data.integers<bfloat16>(n.rows * n.in, most), data.integers<bfloat16>(n.rows * n.out, most),
                         data.integers<bfloat16>(n.rows * n.out, most));
    using roles = typename fixture<P, Device>::roles;
    const matrix<double> x(n.rows, n.in, f.x.data()), w(n.out, n.in, f.w.data()), dy(n.rows, n.out, f.dy.data());
    const matrix<double> plain = product(x, transposed(w)), r(n.rows, n.out, f.r.data());
    const matrix<double> with_bias = plus_row(plain, matrix<double>(1, n.out, f.b.data()));

    ht::tape<Device> tape{device};
    support::gradient_sink sink(f.parameters);
    const auto leaf = tape.leaf(f.input()), residual = tape.leaf(f.residual());
    if constexpr (!ht::simt_device<Device>) {  // each is a kernel of its own, and large
        CHECK(values(device, ht::linear<roles>(tape, leaf, f.weight, ht::absent{}).view()) == plain.values);
        CHECK(values(device, ht::linear<roles>(tape, leaf, f.weight, f.bias).view()) == with_bias.values);
        CHECK(values(device, ht::linear<roles>(tape, leaf, f.weight, ht::absent{}, residual).view()) ==
              plus(plain, r).values);
        tape.clear();
    }
    for (int pass = 1; pass <= 2; ++pass) {  // the second one adds
        const auto y = ht::linear<roles>(tape, leaf, f.weight, f.bias, residual);
        CHECK(values(device, y.view()) == plus(with_bias, r).values);
        tape.backward(autodiff_test::weigh(tape, y, f.dy.view()), sink);
        const auto times = [&](const matrix<double>& m) { return each(m, [&](double v) { return pass * v; }).values; };
        CHECK(values(device, tape.gradient(leaf)) == times(product(dy, w)));
        CHECK(values(device, tape.gradient(residual)) == times(dy));
        CHECK(sink.of(f.weight) == times(product(transposed(dy), x)));
        CHECK(sink.of(f.bias) == times(column_sums(dy)));
    }
    ht::inference<Device> eval{device};
    CHECK(
        values(
            device,
            ht::linear<roles>(eval, eval.constant(f.input()), f.weight, f.bias, eval.constant(f.residual())).view()) ==
        plus(with_bias, r).values);
}

/// The errors of numbers that are read in eight bits, Q: half a unit in Q's last place, and half of Q's smallest number if they are
/// small compared with the largest; the product with the scale is rounded to float, as are the scale's inverse and its product.
template <class Q>
matrix<tracked> in_eight_bits(matrix<tracked> m) {
    double amax = 0, beyond = 0;
    for (const tracked& v : m.values)
        amax = std::max(amax, std::fabs(v.value)), beyond = std::max(beyond, std::fabs(v.value) + v.error);
    // For computed numbers the amax is known within bounds only, and so is the scale.
    const double least = ht::number_traits<Q>::min_subnormal * beyond / ht::number_traits<Q>::max;
    for (tracked& v : m.values) {
        const double magnitude = std::fabs(v.value) + v.error;
        v.error += std::max(ht::unit_roundoff<Q> * magnitude, least / 2) * (1 + 8 * support::u) +
                   support::gamma(4) * magnitude;
    }
    return m;
}
template <class Q>
matrix<tracked> read_as(const matrix<tracked>& m) {
    if constexpr (ht::eight_bit<Q>) {
        return in_eight_bits<Q>(m);
    } else {
        return each(m, support::stored_as<Q>{});
    }
}

/// Random numbers, of one sign in each sum so that sums do not cancel: within the bounds of the formats, forward and
/// backward.
template <class P, class Device>
void within_bounds(Device& device, const sizes& n) {
    support::random data{2};
    const auto numbers = [&](int count, int columns, double magnitude) {
        std::vector<bfloat16> v;
        for (int i = 0; i < count; ++i)
            v.push_back(bfloat16(static_cast<float>((columns > 0 && i % columns % 2 == 1 ? -magnitude : magnitude) *
                                                    data.uniform(0.02, 1))));
        return v;
    };
    std::vector<float> weights, biases(static_cast<std::size_t>(n.out), 0.25f);
    for (int i = 0; i < n.out * n.in; ++i)
        weights.push_back(static_cast<float>(
            bfloat16(static_cast<float>((i / n.in % 2 == 1 ? -0.05 : 0.05) * data.uniform(0.02, 1)))));
    fixture<P, Device> f(device, n, weights, biases, numbers(n.rows * n.in, 0, 300), numbers(n.rows * n.out, 0, 0),
                         numbers(n.rows * n.out, n.out, 1e-6));
    using roles = typename fixture<P, Device>::roles;
    using m = matrix<tracked>;
    const m dy(n.rows, n.out, f.dy.data());
    const m x = in_eight_bits<ht::float8_e4m3>(m(n.rows, n.in, f.x.data())),
            w = in_eight_bits<ht::float8_e4m3>(m(n.out, n.in, f.w.data()));
    // The two inverse scales: their product, and the sum's with it.
    const auto scaled_back = [](const m& v) {
        return each(v, [](const tracked& t) { return support::further_roundings(t, 4); });
    };

    ht::tape<Device> tape{device};
    support::gradient_sink sink(f.parameters);
    const auto leaf = tape.leaf(f.input());
    const auto y = ht::linear<roles>(tape, leaf, f.weight, f.bias);
    const auto check = [&](const doubles& got, const m& want, auto stored) {
        using T = decltype(stored);
        support::comparison c;
        for (std::size_t i = 0; i < got.size(); ++i)
            c.expect(got[i], want.values[i].value, support::rounded<T>(want.values[i].value, want.values[i].error));
        CHECK_WITHIN(c);
    };
    check(values(device, y.view()), plus_row(scaled_back(product(x, transposed(w))), m(1, n.out, f.b.data())),
          bfloat16{});
    tape.backward(autodiff_test::weigh(tape, y, f.dy.view()), sink);
    const m for_input = read_as<typename roles::input_grad>(dy), for_weight = read_as<typename roles::weight_grad>(dy);
    check(values(device, tape.gradient(leaf)), scaled_back(product(for_input, w)), bfloat16{});
    check(sink.of(f.weight), scaled_back(product(transposed(for_weight), x)), float{});
    check(sink.of(f.bias), column_sums(dy), float{});
}

}  // namespace scaled_linear_checks
