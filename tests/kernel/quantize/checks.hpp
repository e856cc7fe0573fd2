// SPDX-License-Identifier: MIT
/// \file
/// Tests of tensors in eight bits, for every device.
///
///     quantize_checks::equals_definition<ht::bfloat16, ht::float8_e4m3>(device);
#pragma once

#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/quantize/quantize.hpp>
#include <halftone/kernel/quantize/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/policy/presets.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace quantize_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using ht::extent;
using support::guarded;

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
inline constexpr ht::scaling_rule plain{}, powers{0, ht::amax_rule::max, 0, ht::scale_steps::powers_of_two},
    margin{0, ht::amax_rule::max, 2, ht::scale_steps::any};

template <class Y>
bool same(Y a, Y b) {
    return a.bits() == b.bits() || (ht::is_nan(a) && ht::is_nan(b));
}

/// Scales are within the rounding of one division, inverse scales within two; numbers are within one rounding of the definition's,
/// and equal to them if the scale is a power of two.
template <class X, class Y, class Device>
void equals_definition(Device& device) {
    using quantize = kernel::quantize<Device>;
    constexpr double largest = ht::number_traits<Y>::max;
    support::random data{3};
    support::comparison scales, numbers;
    for (const extent n : {extent{1}, extent{7}, extent{67}, extent{16385}, extent{4 * 16384 + 131}}) {
        for (const extent offset : {extent{0}, 1 + n % 3}) {
            CAPTURE(n);
            CAPTURE(offset);
            // Over enough binades that some become subnormal numbers in eight bits, and some become zero.
            std::vector<X> some = data.normals<X>(n, 3e-5);
            for (std::size_t i = 0; i < some.size(); i += 3)
                some[i] = X(static_cast<float>(some[i]) * (i % 2 == 0 ? 0x1p-9f : 0x1p-18f));
            const guarded<X> x(some, offset);
            const guarded<Y> y(n, offset), want(n, 0), again(n, 2);
            const ht::scaling_rule rules[] = {plain, powers, margin};
            for (const ht::scaling_rule& rule : rules) {
                ht::tensor_scale scale{0, 0};
                const auto by_policy = [&]<class Scaling>(Scaling) {
                    ht::quantize<ht::with_scaling<ht::fp8_hybrid, Scaling>>(device, x.const_view(), y.view(), &scale);
                };
                if (&rule == &rules[0]) by_policy(ht::current_scaling<>{});
                if (&rule == &rules[1]) by_policy(ht::current_scaling<0, ht::scale_steps::powers_of_two>{});
                if (&rule == &rules[2]) by_policy(ht::current_scaling<2>{});
                const double right = ht::reference::scale(ht::reference::amax(x.const_view()), largest, rule, 1);
                scales.expect(static_cast<double>(scale.scale), right,
                              rule.steps == ht::scale_steps::powers_of_two ? 0 : support::u * right);
                scales.expect(static_cast<double>(scale.inverse), 1 / right, 2 * support::gamma(2) / right);
                // The expected number, with the kernel's rounded scale.
                const auto by = static_cast<double>(scale.scale);
                ht::reference::quantize(x.const_view(), by, want.view());
                extent others = 0;
                for (extent i = 0; i < n; ++i) {
                    const double exact = static_cast<double>(x[i]) * by;
                    // A product next to a tie may be rounded to the tie in float.
                    numbers.expect(static_cast<double>(y[i]),
                                   std::fabs(exact) > largest ? std::copysign(largest, exact) : exact,
                                   support::rounded<Y>(exact, support::u * std::fabs(exact)));
                    others += same(y[i], want[i]) ? 0 : 1;
                }
                if (rule.steps == ht::scale_steps::powers_of_two) CHECK(others == 0);
                quantize::again(device, x.const_view(), again.view(), &scale);
                CHECK(again.same_bits(y));
            }
            CHECK(y.intact());
            CHECK(again.intact());
        }
    }
    CHECK_MESSAGE(scales.within(), scales);
    CHECK_WITHIN(numbers);
}

/// Numbers that are too large saturate; infinities and NaNs remain, and do not affect the amax.
template <class Y, class Device>
void keeps_what_is_not_finite(Device& device) {
    using quantize = kernel::quantize<Device>;
    constexpr float largest = static_cast<float>(ht::number_traits<Y>::max);
    const auto code = [](float v) { return Y(v); };
    for (const float odd : {infinity, -infinity, not_a_number}) {
        for (const extent at : {extent{0}, extent{40}, extent{16384 + 5}}) {
            std::vector<float> values(16384 + 41, 0.5f);
            values[static_cast<std::size_t>(at)] = odd;
            values[20] = 1e30f, values[21] = -3e38f;
            const guarded<float> x(values);
            const guarded<Y> y(x.size());
            ht::tensor_scale scale{};
            quantize::current(device, x.const_view(), y.view(), &scale, plain);
            CHECK(scale.scale == 1);
            CHECK(same(y[at], code(odd)));
            CHECK(!ht::is_finite(y[at]));
            CHECK(same(y[20], code(largest)));
            CHECK(same(y[21], code(-largest)));
            CHECK(same(y[30], code(0.5f)));

            // It does not affect the record.
            ht::amax_record record{.now = {1e10f, 1e-10f}, .amax = 7, .largest = largest};
            quantize::delayed(device, x.const_view(), y.view(), &scale, &record, kernel::gathering::on);
            CHECK(record.amax == 7);
            CHECK(same(y[at], code(odd)));
            CHECK(same(y[21], code(-largest)));  // -3e48 exceeds float's range
            CHECK(same(y[30], code(largest)));
        }
    }
    // Zeros, and an empty tensor: amax 0.
    for (const extent n : {extent{0}, extent{77}}) {
        const guarded<float> x(std::vector<float>(static_cast<std::size_t>(n), -0.0f));
        const guarded<Y> y(n);
        ht::tensor_scale scale{};
        ht::amax_record record{.now = {8, 0.125f}};
        quantize::current(device, x.const_view(), y.view(), &scale, plain);
        CHECK((scale.scale == 1 && scale.inverse == 1));
        quantize::delayed(device, x.const_view(), y.view(), &scale, &record, kernel::gathering::on);
        CHECK((scale.scale == 8 && scale.inverse == 0.125f && record.amax == 0));
        for (extent i = 0; i < n; ++i) CHECK(y[i].bits() == 0x80);
    }
    // So small that its scale is not a float.
    const guarded<float> tiny(std::vector<float>{1e-45f, -3e-44f});
    const guarded<Y> y(2);
    ht::tensor_scale scale{};
    quantize::current(device, tiny.const_view(), y.view(), &scale, plain);
    CHECK(scale.scale == std::numeric_limits<float>::max());
    // So large that the inverse of its scale would not be a float.
    const guarded<float> huge(std::vector<float>{1e38f, -3e38f});
    quantize::current(device, huge.const_view(), y.view(), &scale, ht::scaling_rule{.margin = 15});
    CHECK(ht::is_finite(scale.inverse));
    CHECK(scale.scale * scale.inverse == 1);
}

/// A record's scale is used and returned; the record gathers the amax of several tensors, or none if gathering is off.
template <class X, class Y, class Device>
void gathers(Device& device) {
    using quantize = kernel::quantize<Device>;
    support::random data{4};
    ht::amax_record record{.now = {4, 0.25f}, .largest = static_cast<float>(ht::number_traits<Y>::max)};
    double most = 0;
    for (const extent n : {extent{16384 + 77}, extent{5}, extent{300}, extent{3 * 16384}}) {
        const guarded<X> x(data.normals<X>(n), n % 2);
        const guarded<Y> y(n, n % 4), want(n, 0);
        ht::tensor_scale used{};
        const std::uint32_t before = record.amax;
        quantize::delayed(device, x.const_view(), y.view(), &used, &record, kernel::gathering::off);
        CHECK(record.amax == before);
        quantize::delayed(device, x.const_view(), y.view(), &used, &record, kernel::gathering::on);
        most = std::max(most, ht::reference::amax(x.const_view()));
        CHECK(static_cast<double>(ht::bit_cast<float>(record.amax)) == most);
        CHECK((used.scale == 4 && used.inverse == 0.25f));
        ht::reference::quantize(x.const_view(), 4.0, want.view());
        bool all = true;
        for (extent i = 0; i < n; ++i) all = all && same(y[i], want[i]);
        CHECK(all);
        CHECK(y.intact());
    }
}

/// Transformer Engine's delayed scaling, as in its Python code: the first entry of the history is the current window. A window with
/// amax 0 changes nothing (its #825).
struct delayed_definition {
    std::vector<float> history;
    ht::amax_rule rule;
    double largest, margin;
    float scale = 1;

    void operator()(float window) {
        if (window == 0) return;
        history[0] = window;
        float amax = history[0];
        if (rule == ht::amax_rule::max) {
            for (const float h : history) amax = h > amax ? h : amax;
        }
        std::rotate(history.begin(), history.begin() + 1, history.end());
        history[0] = 0;
        const float sf = static_cast<float>(largest) / amax / static_cast<float>(std::exp2(margin));
        if (amax > 0 && amax < infinity) scale = sf < infinity ? sf : std::numeric_limits<float>::max();
    }
};

/// A script of amaxes, including zeros, infinities and skipped windows.
template <class Device>
void follows_the_formula(Device& device) {
    ht::host_memory memory;
    for (const int length : {1, 3, 16}) {
        for (const ht::amax_rule rule : {ht::amax_rule::max, ht::amax_rule::most_recent}) {
            CAPTURE(length);
            support::random data{static_cast<std::uint64_t>(length)};
            const float formats[] = {448, 57344};
            // Two records with different formats, as the layers of a store have them.
            std::vector<ht::amax_record> records;
            std::vector<std::uint32_t> history(static_cast<std::size_t>(2 * length), 0);
            std::vector<delayed_definition> want;
            for (int i = 0; i < 2; ++i) {
                records.push_back(
                    {.largest = formats[i], .rule = {length, rule, i, ht::scale_steps::any}, .first = i * length});
                want.push_back({std::vector<float>(static_cast<std::size_t>(length), 0.0f), rule,
                                static_cast<double>(formats[i]), static_cast<double>(i)});
            }
            for (int window = 0; window < 60; ++window) {
                const std::int32_t skips = window % 7 == 3 ? 1 : 0;
                for (std::size_t i = 0; i < 2; ++i) {
                    const int kind = data.below(8);
                    const float amax = kind == 0                  ? 0.0f
                                       : kind == 1 && window > 40 ? infinity
                                       : kind == 2                ? 1e-40f
                                                                  : static_cast<float>(std::exp(6 * data.normal()));
                    records[i].amax = ht::bit_cast<std::uint32_t>(amax);
                    if (skips == 0) want[i](amax);
                }
                kernel::quantize<Device>::roll(device, records.data(), 2, history.data(), 2 * length, &skips);
                for (std::size_t i = 0; i < 2; ++i) {
                    CHECK(records[i].now.scale == want[i].scale);
                    CHECK(records[i].now.inverse == 1 / want[i].scale);
                    CHECK(records[i].amax == 0);
                }
            }
        }
    }
}

template <class Device>
void refuses(Device& device) {
    const guarded<float> x(10);
    const guarded<ht::float8_e4m3> y(10);
    ht::tensor_scale scale{};
    CHECK_THROWS_AS(kernel::quantize<Device>::current(device, x.const_view(),
                                                      ht::view<ht::float8_e4m3, 1>(y.data(), {9}), &scale, plain),
                    ht::shape_error);
    CHECK_THROWS_AS(kernel::quantize<Device>::again(device, ht::const_view<float, 1>(x.data(), {5}, {2}),
                                                    ht::view<ht::float8_e4m3, 1>(y.data(), {5}), &scale),
                    ht::shape_error);
}

}  // namespace quantize_checks
