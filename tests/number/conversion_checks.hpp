// SPDX-License-Identifier: MIT
/// \file
/// The tests that float16.cpp and bfloat16.cpp share, against the oracle.
#pragma once

#include <cfloat>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/number.hpp>

#include "oracle.hpp"

namespace conversion_checks {

using halftone::bfloat16;
using halftone::float16;

template <class T>
constexpr bool shape_is_right() {
    static_assert(sizeof(T) == 2 && alignof(T) == 2);
    static_assert(std::is_trivial_v<T> && std::is_standard_layout_v<T>);
    static_assert(!std::is_convertible_v<float, T> && std::is_constructible_v<T, float>);
    static_assert(std::is_convertible_v<T, float>);
    static_assert(std::same_as<decltype(T{} * T{}), float> && std::same_as<decltype(T{} + 1.0f), float>);
    static_assert(std::same_as<decltype(-T{}), T>);
    static_assert(std::totally_ordered<T> && std::totally_ordered_with<T, float>);
    static_assert(T{}.bits() == 0 && T(1) == 1 && T(true) == 1 && T('a') == 97 && T(-2LL) == -2 && T(2ULL) == 2);
    static_assert(T(T(3)) == 3 && T(bfloat16(3)) == 3 && T(float16(-3)) == -3);
    static_assert((-T(0)).bits() == 0x8000 && T(0) == -T(0) && -T(2) == T(-2));
    static_assert(T(1) < T(2) && T(2) >= T(2) && !(T(1) != T(1)));
    return true;
}

template <class T>
void check_patterns(oracle::format f) {
    oracle::tally values, round_trips, negations;
    for (int h = 0; h < 0x10000; ++h) {
        const T x = T::from_bits(static_cast<std::uint16_t>(h));
        const int magnitude = h & 0x7fff;
        const float wide = x;
        if (magnitude < f.infinity()) {
            const double expected = (h & 0x8000 ? -1 : 1) * oracle::value(f, magnitude);
            values.expect(oracle::as_bits(wide), oracle::as_bits(static_cast<float>(expected)), h);
        } else if (magnitude == f.infinity()) {
            values.expect(oracle::as_bits(wide), h & 0x8000 ? 0xff800000 : 0x7f800000, h);
        } else {
            CHECK_UNARY(wide != wide);
            CHECK_UNARY(x != x);
        }
        const int quiet = magnitude > f.infinity() ? 1 << (f.digits - 2) : 0;
        round_trips.expect(T(wide).bits(), h | quiet, h);
        negations.expect((-x).bits(), h ^ 0x8000, h);
    }
    CHECK_TALLY(values);
    CHECK_TALLY(round_trips);
    CHECK_TALLY(negations);
}

template <class T>
void check_floats(oracle::format f) {
    oracle::tally near, strided;
    for (const std::uint32_t bits : oracle::neighbourhoods(f)) {
        near.expect(T(oracle::as_float(bits)).bits(), oracle::pattern_of_float(f, bits), oracle::as_float(bits));
    }
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 997) {
        const float x = oracle::as_float(static_cast<std::uint32_t>(bits));
        strided.expect(T(x).bits(), oracle::pattern_of_float(f, static_cast<std::uint32_t>(bits)), x);
    }
    CHECK_TALLY(near);
    CHECK_TALLY(strided);
}

/// Wider types round once: tests numbers next to each halfway point that are equal to it in float.
template <class T, class Real>
void check_wide(oracle::format f) {
    oracle::tally t;
    const auto check = [&](Real x) {
        t.expect(T(x).bits(), oracle::pattern(f, x), x);
        t.expect(T(-x).bits(), oracle::pattern(f, -x), -x);
    };
    const Real infinity = std::numeric_limits<Real>::infinity();
    for (int h = 0; h < f.infinity(); ++h) {
        const double low = oracle::value(f, h), half_step = (oracle::value(f, h + 1) - low) / 2;
        for (const double exact : {low, low + half_step}) {
            const auto x = static_cast<Real>(exact);
            check(x);
            check(std::nextafter(x, infinity));
            if (x > 0) check(std::nextafter(x, Real{0}));
            check(x + static_cast<Real>(half_step) / 3);
        }
    }
    const int least = std::numeric_limits<Real>::min_exponent - std::numeric_limits<Real>::digits;
    for (int exponent = least; exponent < std::numeric_limits<Real>::max_exponent; ++exponent) {
        check(std::ldexp(Real{1}, exponent));
        check(std::ldexp(Real{1} + std::numeric_limits<Real>::epsilon(), exponent));
        check(std::ldexp(Real{2} - std::numeric_limits<Real>::epsilon(), exponent));
        check(std::ldexp(Real{4} / 3, exponent));
    }
    check(infinity);
    check(std::numeric_limits<Real>::max());
    check(0);
    CHECK_TALLY(t);
    for (const Real nan : {std::numeric_limits<Real>::quiet_NaN(), -std::numeric_limits<Real>::quiet_NaN()}) {
        CHECK((T(nan).bits() & 0x7fff) == (f.infinity() | 1 << (f.digits - 2)));
        CHECK((T(nan).bits() >> 15 != 0) == std::signbit(nan));
    }
}

template <class T>
void check_double_nan_payloads(oracle::format f) {
    for (int payload = 1; payload < 1 << (f.digits - 1); ++payload) {
        const std::uint64_t bits = 0x7ff0000000000000u | static_cast<std::uint64_t>(payload) << (53 - f.digits);
        const int expected = f.infinity() | payload | 1 << (f.digits - 2);
        CHECK(T(std::bit_cast<double>(bits)).bits() == expected);
    }
    CHECK(T(std::bit_cast<double>(std::uint64_t{0xfff0000000000001u})).bits() ==
          (0x8000 | f.infinity() | 1 << (f.digits - 2)));
}

/// Integers, of which those from 2^24 on do not fit a float: around every halfway point that is an integer, and the
/// halfway points of float above it, where rounding twice shows.
template <class T, class Integer>
void check_integers(oracle::format f) {
    oracle::tally t;
    using limits = std::numeric_limits<Integer>;
    // x - 1 and x + 1 round as the doubles next to x do wherever x is a halfway point and a double does not hold them.
    const auto check = [&](Integer x, double oracle_of_x) {
        t.expect(T(x).bits(), oracle::pattern(f, oracle_of_x), +x);
        if constexpr (limits::is_signed) {
            t.expect(T(static_cast<Integer>(-x)).bits(), oracle::pattern(f, -oracle_of_x), -x);
        }
    };
    for (int shift = 0; shift + f.digits < limits::digits; ++shift) {
        for (int count = 1 << (f.digits - 1); count < 1 << f.digits; ++count) {
            const auto halfway =
                static_cast<Integer>((Integer{2} * static_cast<Integer>(count) + 1) * (Integer{1} << shift));
            const auto exact = static_cast<double>(halfway);
            check(halfway, exact);
            check(static_cast<Integer>(halfway - 1), exact < 0x1p53 ? exact - 1 : std::nextafter(exact, 0.0));
            check(static_cast<Integer>(halfway + 1), exact < 0x1p53 ? exact + 1 : std::nextafter(exact, 0x1p90));
        }
    }
    check(limits::max(), sizeof(Integer) < 8 ? static_cast<double>(limits::max()) : std::ldexp(1.0, limits::digits));
    t.expect(T(limits::min()).bits(), oracle::pattern(f, static_cast<double>(limits::min())), +limits::min());
    for (int i = 1; i < 100; ++i) check(static_cast<Integer>(i), i);
    t.expect(T(Integer{0}).bits(), 0, 0);
    CHECK_TALLY(t);
}

/// Sums, differences, products and quotients by way of float equal those rounded once from the exact result.
/// `exponents` keeps the operands so close that a double holds exact sums and products.
template <class T>
void check_arithmetic(oracle::format f, int least_exponent, int exponents) {
    oracle::tally t;
    std::uint32_t state = 1;
    const auto next = [&] {  // Numerical Recipes' linear congruential generator; its upper bits are good enough here
        state = state * 1664525u + 1013904223u;
        return state >> 8;
    };
    const auto operand = [&] {
        const std::uint32_t fraction = next() & ((1u << (f.digits - 1)) - 1);
        const std::uint32_t exponent =
            static_cast<std::uint32_t>(least_exponent) + next() % static_cast<std::uint32_t>(exponents);
        return T::from_bits(static_cast<std::uint16_t>((next() & 1) << 15 | exponent << (f.digits - 1) | fraction));
    };
    for (int i = 0; i < 1 << 19; ++i) {
        const T a = operand(), b = operand();
        const double x = static_cast<float>(a), y = static_cast<float>(b);
        T sum = a, difference = a, product = a, quotient = a;
        sum += b;
        difference -= b;
        product *= b;
        quotient /= b;
        t.expect(sum.bits(), oracle::pattern(f, x + y), x);
        t.expect(difference.bits(), oracle::pattern(f, x - y), x);
        t.expect(product.bits(), oracle::pattern(f, x * y), x);
        if (y != 0) t.expect(quotient.bits(), oracle::pattern(f, x / y), x);
    }
    CHECK_TALLY(t);
}

/// numeric_limits against what the patterns themselves say.
template <class T>
void check_limits(oracle::format f) {
    using limits = std::numeric_limits<T>;
    const auto at = [](int h) { return T::from_bits(static_cast<std::uint16_t>(h)); };
    int least_normal = 1;
    while (oracle::value(f, least_normal + 1) - oracle::value(f, least_normal) !=
           oracle::value(f, least_normal) * std::ldexp(1.0, 1 - f.digits)) {
        ++least_normal;  // until the step is a fixed part of the number
    }
    CHECK(limits::min().bits() == least_normal);
    CHECK(limits::max().bits() == f.infinity() - 1);
    CHECK(limits::lowest().bits() == (0x8000 | (f.infinity() - 1)));
    CHECK(limits::denorm_min().bits() == 1);
    CHECK(limits::infinity().bits() == f.infinity());
    CHECK(limits::epsilon() == static_cast<double>(at(T(1).bits() + 1)) - 1);
    CHECK(limits::round_error() == 0.5);
    CHECK(limits::quiet_NaN() != limits::quiet_NaN());
    CHECK((limits::quiet_NaN().bits() & 1 << (f.digits - 2)) != 0);
    CHECK(limits::signaling_NaN() != limits::signaling_NaN());
    CHECK((limits::signaling_NaN().bits() & 1 << (f.digits - 2)) == 0);

    CHECK(limits::digits == f.digits);
    CHECK(limits::digits10 == std::floor((f.digits - 1) * std::log10(2)));
    CHECK(limits::max_digits10 == std::ceil(f.digits * std::log10(2) + 1));
    CHECK(limits::min_exponent == std::ilogb(limits::min()) + 1);
    CHECK(limits::max_exponent == std::ilogb(limits::max()) + 1);
    CHECK(limits::min_exponent10 == std::ceil(std::log10(static_cast<double>(limits::min()))));
    CHECK(limits::max_exponent10 == std::floor(std::log10(static_cast<double>(limits::max()))));

    // Everything else is as for float, which follows the same rules.
    using same = std::numeric_limits<float>;
    CHECK(limits::is_specialized);
    CHECK(limits::is_signed == same::is_signed);
    CHECK(limits::is_integer == same::is_integer);
    CHECK(limits::is_exact == same::is_exact);
    CHECK(limits::is_bounded == same::is_bounded);
    CHECK(limits::is_modulo == same::is_modulo);
    CHECK(limits::radix == same::radix);
    CHECK(limits::has_infinity == same::has_infinity);
    CHECK(limits::has_quiet_NaN == same::has_quiet_NaN);
    CHECK(limits::has_signaling_NaN == same::has_signaling_NaN);
    CHECK(limits::has_denorm == same::has_denorm);
    CHECK(limits::has_denorm_loss == same::has_denorm_loss);
    CHECK(limits::round_style == same::round_style);
    CHECK(limits::traps == same::traps);
    CHECK(limits::tinyness_before == same::tinyness_before);
}

/// With flushing of subnormals on (x86), conversions give what they give without.
template <class T>
void check_flush_mode(oracle::format f) {
#if defined(__SSE2__) && defined(__GNUC__)
    const std::vector<std::uint32_t> inputs = oracle::neighbourhoods(f);
    std::vector<int> expected;
    for (const std::uint32_t bits : inputs) expected.push_back(oracle::pattern_of_float(f, bits));
    std::vector<std::uint32_t> widened;
    for (int h = 0; h < 0x10000; ++h) widened.push_back(oracle::as_bits(T::from_bits(static_cast<std::uint16_t>(h))));

    oracle::tally narrow, wide;
    const unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode | 0x8040);  // flush to zero, subnormals are zero
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        narrow.expect(T(oracle::as_float(inputs[i])).bits(), expected[i], inputs[i]);
    }
    for (std::uint32_t h = 0; h < 0x10000; ++h) {
        const volatile std::uint16_t runtime = static_cast<std::uint16_t>(h);
        wide.expect(oracle::as_bits(T::from_bits(runtime)), widened[h], h);
    }
    const volatile double tiny = oracle::value(f, 3);
    const int from_double = T(tiny).bits();
    __builtin_ia32_ldmxcsr(mode);
    CHECK_TALLY(narrow);
    CHECK_TALLY(wide);
    CHECK(from_double == 3);
#else
    static_cast<void>(f);
    MESSAGE("skipped: needs SSE2");
#endif
}

}  // namespace conversion_checks
