// SPDX-License-Identifier: MIT
/// \file
/// Steps over parameters that float does not hold, and their copies, against the definitions in double; and conversions of such
/// numbers.
///
///     wide_checks::steps(device);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/convert/convert.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "kernel/optimizer_step/step_checks.hpp"
#include "optim/ademamix.hpp"
#include "support/guarded.hpp"
#include "support/own_numbers.hpp"
#include "support/random.hpp"

namespace wide_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using support::fixed32;
using support::guarded;

/// Numbers between -32 and 32 of all bits, as much as float would drop.
inline std::vector<fixed32> numbers(ht::extent n, std::uint64_t seed) {
    support::random data(seed);
    std::vector<fixed32> all;
    for (ht::extent i = 0; i < n; ++i) all.emplace_back(data.normal() * 9 + 0x1p-26 * static_cast<double>(i));
    return all;
}

/// One step by a rule with moments of State beside its definition.
template <class State, class Rule, class Device>
void step(Device& device, const Rule& rule, ht::extent n) {
    support::random data(static_cast<std::uint64_t>(n));
    step_checks::slabs<Rule, fixed32, ht::bfloat16, float, State> s(data, n);
    s.rule = rule;
    const std::vector<fixed32> begin = numbers(n, 1);
    std::copy(begin.begin(), begin.end(), s.master.data());
    step_checks::in_doubles want(s);
    want.step(rule, step_checks::third);
    step_checks::step(device, s);
    const double half = ht::number_traits<fixed32>::min_subnormal / 2, u = ht::unit_roundoff<State>;
    for (ht::extent i = 0; i < n; ++i) {
        CAPTURE(i);
        const auto at = static_cast<std::size_t>(i);
        // The parameter's own rounding alone, but for the last bits of the arithmetic in double.
        CHECK(std::abs(static_cast<double>(s.master[i]) - want.w[at]) <= half * (1 + 1e-6));
        CHECK(s.copy[i] == ht::bfloat16(static_cast<double>(s.master[i])));
        for (int k = 0; k < Rule::moments; ++k)
            CHECK(std::abs(static_cast<double>(s.moment(k)[i]) - want.m[k][at]) <=
                  2.01 * u * std::abs(want.m[k][at]) + 1e-40);
    }
}

template <class Device>
void steps(Device& device) {
    for (const ht::extent n : {1, 3, 67, 2053}) {
        CAPTURE(n);
        step<float>(device, kernel::adamw_rule{}, n);
        step<ht::bfloat16>(device, kernel::adamw_rule{}, n);
        step<float>(device, kernel::lion_rule{}, n);
        for (const auto kind : {kernel::momentum_kind::plain, kernel::momentum_kind::nesterov})
            step<float>(device, kernel::sgd_rule{.momentum = 0.9, .kind = kind}, n);
    }
}

/// AdEMAMix (optim/ademamix.hpp) over these parameters moves them as far as over floats, but for the last bits of floats.
template <class Device>
void own_rule(Device& device) {
    constexpr ht::extent n = 67;
    support::random data(3);
    std::vector<float> floats = data.normals<float>(n);
    guarded<fixed32> master(std::vector<fixed32>(floats.begin(), floats.end()), 1);
    guarded<float> narrow(floats, 1);
    const guarded<float> gradient(data.normals<float>(n), 3);
    const std::vector<float> before = floats;
    const auto step = [&]<class T>(guarded<T>& of) {
        guarded<float> fast(std::vector<float>(n, 0.5f), 0), slow(std::vector<float>(n, -0.5f), 1),
            second(std::vector<float>(n, 0.25f), 2);
        step_checks::run(device, kernel::optimizer_step_arguments<own::ademamix_rule, T, ht::bfloat16, float, float>{
                                     .master = of.view(),
                                     .gradient = gradient.const_view(),
                                     .moments = {fast.view(), slow.view(), second.view()},
                                     .rule = own::ademamix_options{}.rule(),
                                     .rates = {.weight_decay = 0.1},
                                     .factors = &step_checks::factors,
                                     .step = &step_checks::third});
    };
    step(master), step(narrow);
    double moved = 0;
    for (ht::extent i = 0; i < n; ++i) {
        const double exact = static_cast<double>(master[i]), as_float = static_cast<double>(narrow[i]);
        CHECK(std::abs(exact - as_float) <= 0x1p-22);
        moved += std::abs(exact - static_cast<double>(before[static_cast<std::size_t>(i)]));
    }
    CHECK(moved > n * 0x1p-14);
}

/// Each element in double, rounded once.
template <class Device>
void conversions(Device& device) {
    const std::vector<fixed32> values = numbers(12, 7);
    ht::host_tensor<fixed32, 2> host({3, 4});
    std::copy(values.begin(), values.end(), host.data());
    const auto wide = ht::to_device(device, host);
    const auto check = [&]<class Y>(Y, float factor, auto right) {
        const ht::tensor<Y, 2> narrow(device.memory(), ht::shape<2>{3, 8});
        const ht::view<Y, 2> left(narrow.data(), {3, 4}, {8, 1});  // rows with gaps
        ht::convert(device, wide, left, factor);
        std::vector<Y> got(24);
        device.memory().read(got.data(), narrow.data(), got.size() * sizeof(Y));
        for (std::size_t i = 0; i < 12; ++i) {
            CAPTURE(i);
            CHECK(static_cast<double>(got[i / 4 * 8 + i % 4]) == right(static_cast<double>(values[i])));
        }
    };
    check(0.0f, 1, [](double x) { return static_cast<double>(static_cast<float>(x)); });
    check(ht::bfloat16(), 0.1f,
          [](double x) { return static_cast<double>(ht::bfloat16(x * static_cast<double>(0.1f))); });
    check(fixed32(), 0.5f, [](double x) { return static_cast<double>(fixed32(x * 0.5)); });
    // There and back: a float is a number of 24 bits there.
    const ht::tensor<float, 2> floats(device.memory(), ht::shape<2>{3, 4});
    const ht::tensor<fixed32, 2> back(device.memory(), ht::shape<2>{3, 4});
    ht::convert(device, wide, floats);
    ht::convert(device, floats, back);
    std::vector<fixed32> got(12);
    device.memory().read(got.data(), back.data(), got.size() * sizeof(fixed32));
    for (std::size_t i = 0; i < 12; ++i) {
        CHECK(static_cast<double>(got[i]) ==
              static_cast<double>(fixed32(static_cast<double>(static_cast<float>(static_cast<double>(values[i]))))));
    }
    const ht::tensor<ht::float8_e4m3, 2> eighths(device.memory(), ht::shape<2>{3, 4});
    ht::convert_saturated(device, wide, eighths, 1e4f);
    std::vector<ht::float8_e4m3> stopped(12);
    device.memory().read(stopped.data(), eighths.data(), stopped.size());
    for (std::size_t i = 0; i < 12; ++i)
        CHECK(static_cast<float>(stopped[i]) ==
              static_cast<float>(ht::saturate<ht::float8_e4m3>(static_cast<double>(values[i]) * 1e4)));
}

}  // namespace wide_checks
