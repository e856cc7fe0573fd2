// SPDX-License-Identifier: MIT
/// \file
/// Tests of statistics_of, for every device.
///
///     statistics_checks::all_values<ht::float16>(device);
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/exponent_counts/exponent_counts.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

namespace statistics_checks {

namespace ht = halftone;
using ht::extent;

template <class T>
ht::const_view<T, 1> view_of(const std::vector<T>& values) {
    return {values.data(), {static_cast<extent>(values.size())}};
}

/// Against the C library's words for the same.
template <class T>
ht::tensor_statistics expected(const std::vector<T>& values) {
    ht::tensor_statistics s;
    for (const T& value : values) {
        const double x = std::fabs(static_cast<double>(static_cast<float>(value)));
        if (std::isnan(x)) {
            ++s.nans;
        } else if (std::isinf(x)) {
            ++s.infinities;
        } else if (x == 0) {
            ++s.zeros;
        } else {
            ++s.by_exponent[std::ilogb(x) - s.least_exponent];
            if (x > static_cast<double>(s.largest)) s.largest = static_cast<float>(x);
        }
    }
    return s;
}

inline void same(const ht::tensor_statistics& found, const ht::tensor_statistics& wanted) {
    CHECK(found.zeros == wanted.zeros);
    CHECK(found.infinities == wanted.infinities);
    CHECK(found.nans == wanted.nans);
    CHECK(found.largest == wanted.largest);
    for (int e = 0; e < found.exponents; ++e) {
        CAPTURE(e + found.least_exponent);
        CHECK(found.by_exponent[e] == wanted.by_exponent[e]);
    }
}

template <class T, class Device>
void all_values(Device& device) {
    std::vector<T> values(65536);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = T::from_bits(static_cast<std::uint16_t>(i));
    const ht::tensor_statistics found = statistics_of(device, view_of(values));
    same(found, expected(values));
    CHECK(found.elements() == 65536);
    CHECK(found.largest == static_cast<float>(ht::number_traits<T>::max));
    CHECK(found.overflow<T>() == 0);
    CHECK(found.underflow<T>() == 0);
}

/// 2^e, and the numbers before and behind it; nothing at all.
template <class Device>
void all_exponents(Device& device) {
    constexpr float infinite = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> values{0.0f, -0.0f, infinite, -infinite, infinite, nan};
    for (int e = -149; e <= 127; ++e) {
        const float power = std::ldexp(1.0f, e);
        for (const float x : {power, std::nextafter(power, 0.0f), std::nextafter(power, infinite)}) {
            values.push_back(x);
            values.push_back(-x);
        }
    }
    same(statistics_of(device, view_of(values)), expected(values));
    for (extent count : {0, 1, 2, 7}) {
        const std::vector<float> few(values.begin() + 20, values.begin() + 20 + count);
        same(statistics_of(device, view_of(few)), expected(few));
    }
}

/// Many, not from a multiple of 16 bytes on: every exponent about as often, and more zeros than anything else.
template <class Device>
void many(Device& device) {
    std::vector<float> values(70001);
    std::uint32_t bits = 1;
    for (float& value : values) {
        bits = bits * 1664525u + 1013904223u;
        value = bits >> 28 == 0 ? 0.0f : halftone::bit_cast<float>(bits);
    }
    const ht::const_view<float, 1> all = view_of(values), from_one_on(all.data() + 1, {all.size() - 1});
    const std::vector<float> rest(values.begin() + 1, values.end());
    same(statistics_of(device, all), expected(values));
    same(statistics_of(device, from_one_on), expected(rest));
}

template <class Device>
void shares(Device& device) {
    // float16's smallest number is 2^-24, its smallest normal one 2^-14; values below 2^-25 round to zero.
    const std::vector<float> values{0x1p-26f, 0x1.fp-26f, 0x1p-25f, -0x1p-24f, 0x1.ffp-15f, -0x1p-14f,
                                    1,        0,          0,        65504,     0x1p16f,     -0x1p20f};
    const ht::tensor_statistics s = statistics_of(device, view_of(values));
    CHECK(s.finite() == 12);
    CHECK(s.count(-25, 0) == 5);
    CHECK(s.underflow<ht::float16>() == 0.2);
    CHECK(s.subnormal<ht::float16>() == 0.5);
    CHECK(s.overflow<ht::float16>() == 0.2);
    CHECK(s.underflow<ht::bfloat16>() == 0);
    CHECK(s.overflow<ht::bfloat16>() == 0);
    CHECK(s.overflow<float>() == 0);
    const ht::tensor_statistics none = statistics_of(device, view_of(std::vector<float>{0, 0}));
    CHECK(none.underflow<ht::float16>() == 0);
    // A matrix with gaps is refused.
    const ht::const_view<float, 2> holes(values.data(), {2, 2}, {4, 1});
    CHECK_THROWS_AS(statistics_of(device, holes), ht::shape_error);
}

/// All of them.
template <class Device>
void check(Device& device) {
    all_values<ht::float16>(device);
    all_values<ht::bfloat16>(device);
    all_exponents(device);
    many(device);
    shares(device);
}

}  // namespace statistics_checks
