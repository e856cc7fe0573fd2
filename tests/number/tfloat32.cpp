// SPDX-License-Identifier: MIT
/// \file
/// tfloat32, compared with its definition by frexp and floor: every pattern, every rounding boundary, wide types,
/// limits; in the suite "full" (run it with --no-skip) all 2^32 floats.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/number.hpp>

#include "oracle.hpp"

namespace number_tfloat32_tests {

namespace ht = halftone;
using ht::bfloat16, ht::float16, ht::tfloat32;

static_assert(sizeof(tfloat32) == 4 && alignof(tfloat32) == 4);
static_assert(std::is_trivial_v<tfloat32> && std::is_standard_layout_v<tfloat32>);
static_assert(!std::is_convertible_v<float, tfloat32> && std::is_convertible_v<tfloat32, float>);
static_assert(std::is_same_v<decltype(tfloat32{} * tfloat32{}), float> &&
              std::is_same_v<decltype(-tfloat32{}), tfloat32>);
static_assert(ht::number<tfloat32> && !ht::sixteen_bit<tfloat32>);
static_assert(ht::unit_roundoff<tfloat32> == ht::unit_roundoff<float16>);
static_assert(std::is_same_v<ht::storage_of<tfloat32>, float> && std::is_same_v<ht::storage_of<float>, float> &&
              std::is_same_v<ht::storage_of<bfloat16>, bfloat16>);

static_assert(tfloat32(1.0f / 3) == 0x1.554p-2f && tfloat32(3) == 3 && tfloat32(-2LL) == -2 && tfloat32(true) == 1);
static_assert(tfloat32(bfloat16(3)) == 3 && tfloat32(tfloat32(3)) == 3 && (-tfloat32(0)).bits() == 0x80000000u);
// Ties go away from zero, whatever the last bit; nearest even would go down from the first.
static_assert(tfloat32(1 + 0x1p-11f) == 1 + 0x1p-10f && tfloat32(-1 - 0x1p-11f) == -1 - 0x1p-10f);
static_assert(tfloat32(1 + 0x3p-11f) == 1 + 0x1p-9f && tfloat32(1 + 0x1p-11f - 0x1p-23f) == 1);
static_assert(tfloat32(0x1.ffdffep127f).bits() == 0x7f7fe000);
static_assert(tfloat32(0x1.ffep127f).bits() == 0x7f800000 && tfloat32(0x1p-137f) == 0x1p-136f &&
              tfloat32(0x1.fp-138f) == 0);
// A double a little below halfway; the nearest float is halfway.
static_assert(tfloat32(1 + 0x1p-11 - 0x1p-40) == 1 && tfloat32((1LL << 62) + (1LL << 51) - 1) == 0x1p62f);
static_assert(tfloat32::from_bits(0x3f801fff) == 1);

/// The bits of what x, no NaN, rounds to.
template <class Real>
std::uint32_t expected(Real x) {
    const Real a = std::fabs(x);
    Real result = a;
    if (!std::isinf(a) && a != 0) {
        int exponent = 0;
        std::frexp(a, &exponent);
        exponent = std::max(exponent, -125);
        const Real scaled = std::ldexp(a, 11 - exponent), below = std::floor(scaled);
        result = std::ldexp(below + (scaled - below >= Real{0.5} ? 1 : 0), exponent - 11);
    }
    const float rounded = result >= std::ldexp(Real{1}, 128) ? HUGE_VALF : static_cast<float>(result);
    return oracle::as_bits(std::signbit(x) ? -rounded : rounded);
}
std::uint32_t expected_of_bits(std::uint32_t bits) {
    if ((bits & 0x7fffffff) > 0x7f800000) return (bits | 0x400000) & 0xffffe000;
    return expected(static_cast<double>(oracle::as_float(bits)));
}

TEST_CASE("tfloat32: every pattern is a float that comes back") {
    oracle::tally values, round_trips, negations, classes;
    for (std::uint32_t h = 0; h < 1u << 19; ++h) {
        const std::uint32_t bits = h << 13, magnitude = bits & 0x7fffffff;
        const tfloat32 x = tfloat32::from_bits(bits);
        const float wide = x;
        values.expect(oracle::as_bits(wide), bits, h);
        round_trips.expect(tfloat32(wide).bits(), magnitude > 0x7f800000 ? bits | 0x400000 : bits, h);
        negations.expect((-x).bits(), bits ^ 0x80000000, h);
        classes.expect((ht::is_finite(x) ? 1 : 0) | (ht::is_inf(x) ? 2 : 0) | (ht::is_nan(x) ? 4 : 0),
                       magnitude < 0x7f800000    ? 1
                       : magnitude == 0x7f800000 ? 2
                                                 : 4,
                       h);
    }
    CHECK_TALLY(values);
    CHECK_TALLY(round_trips);
    CHECK_TALLY(negations);
    CHECK_TALLY(classes);
}

TEST_CASE("tfloat32: floats round to nearest, ties away from zero") {
    oracle::tally near, strided;
    // Around every number and every halfway point; past the largest one, and among NaNs, too.
    for (std::uint32_t h = 0; h < 1u << 19; ++h) {
        for (const std::uint32_t bits :
             {h << 13, (h << 13) + 1, (h << 13) + 0xfff, (h << 13) + 0x1000, (h << 13) + 0x1001, (h << 13) + 0x1fff}) {
            near.expect(tfloat32(oracle::as_float(bits)).bits(), expected_of_bits(bits), bits);
        }
    }
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 997) {
        strided.expect(tfloat32(oracle::as_float(static_cast<std::uint32_t>(bits))).bits(),
                       expected_of_bits(static_cast<std::uint32_t>(bits)), bits);
    }
    CHECK_TALLY(near);
    CHECK_TALLY(strided);
}

TEST_CASE("tfloat32: all 2^32 floats" * doctest::skip()) {
    oracle::tally all;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; ++bits) {
        all.expect(tfloat32(oracle::as_float(static_cast<std::uint32_t>(bits))).bits(),
                   expected_of_bits(static_cast<std::uint32_t>(bits)), bits);
    }
    CHECK_TALLY(all);
}

TEST_CASE_TEMPLATE("tfloat32: wider types round once", Real, double, long double) {
    oracle::tally t;
    const auto check = [&](Real x) {
        t.expect(tfloat32(x).bits(), expected(x), x);
        t.expect(tfloat32(-x).bits(), expected(-x), -x);
    };
    const Real infinity = std::numeric_limits<Real>::infinity();
    for (std::uint32_t h = 0; h < 0x3fc00; h += 7) {
        const Real low = oracle::as_float(h << 13), halfway = oracle::as_float((h << 13) + 0x1000);
        for (const Real x : {low, halfway}) {
            check(x);
            check(std::nextafter(x, infinity));
            if (x > 0) check(std::nextafter(x, Real{0}));
        }
    }
    for (const Real x : {infinity, std::numeric_limits<Real>::max(), std::numeric_limits<Real>::min(), Real{0}})
        check(x);
    CHECK_TALLY(t);
    CHECK(ht::is_nan(tfloat32(std::numeric_limits<Real>::quiet_NaN())));
}

TEST_CASE_TEMPLATE("tfloat32: integers round once", Integer, std::int64_t, std::uint64_t, std::int32_t, std::uint32_t,
                   std::int16_t, std::uint8_t) {
    oracle::tally t;
    const auto check = [&](Integer x) {
        // A long double of x86 holds them all; where it does not, what is left out of it is far from halfway.
        t.expect(tfloat32(x).bits(), expected(static_cast<long double>(x)), +x);
    };
    for (int shift = 0; shift + 12 < std::numeric_limits<Integer>::digits; ++shift) {
        for (int count = 1024; count < 2048; ++count) {
            const auto halfway = static_cast<Integer>((2 * static_cast<Integer>(count) + 1) * (Integer{1} << shift));
            check(halfway);
            if (std::numeric_limits<long double>::digits >= 64 || std::numeric_limits<Integer>::digits < 53) {
                check(static_cast<Integer>(halfway - 1));
                check(static_cast<Integer>(halfway + 1));
            }
        }
    }
    check(std::numeric_limits<Integer>::max());
    check(std::numeric_limits<Integer>::min());
    for (int i = 0; i < 100; ++i) check(static_cast<Integer>(i));
    CHECK_TALLY(t);
}

TEST_CASE("tfloat32: products are exact in float, what is written back is rounded") {
    oracle::tally t;
    std::uint32_t state = 1;
    const auto operand = [&] {
        state = state * 1664525u + 1013904223u;
        return tfloat32::from_bits((state & 0x807fffff) | (110 + (state >> 23) % 30) << 23);
    };
    for (int i = 0; i < 1 << 17; ++i) {
        const tfloat32 a = operand(), b = operand();
        const double exact = static_cast<double>(static_cast<float>(a)) * static_cast<double>(static_cast<float>(b));
        CHECK_UNARY(static_cast<double>(a * b) == exact);
        tfloat32 c = a;
        c *= b;
        t.expect(c.bits(), expected(exact), exact);
    }
    CHECK_TALLY(t);
}

TEST_CASE("tfloat32: the other modes of round_to") {
    CHECK(ht::round_to<tfloat32, ht::rounding::toward_zero>(1 + 0x1.ffp-10f) == 1 + 0x1p-10f);
    CHECK(ht::round_to<tfloat32, ht::rounding::toward_zero>(std::numeric_limits<float>::max()) ==
          std::numeric_limits<tfloat32>::max());
    double sum = 0;
    for (std::uint32_t random = 0; random < 1u << 13; ++random)
        sum += static_cast<double>(static_cast<float>(ht::round_stochastic<tfloat32>(1 + 0x1.5p-12f, random)));
    CHECK(sum / (1 << 13) == 1 + 0x1.5p-12);
}

TEST_CASE("tfloat32: numeric_limits") {
    using limits = std::numeric_limits<tfloat32>;
    using same = std::numeric_limits<float>;
    CHECK(limits::min() == same::min());
    CHECK(limits::max().bits() == 0x7f800000 - 0x2000);
    CHECK(limits::lowest() == -limits::max());
    CHECK(limits::denorm_min().bits() == 0x2000);
    CHECK(limits::infinity() == same::infinity());
    CHECK(limits::epsilon() == tfloat32::from_bits(tfloat32(1).bits() + 0x2000) - 1);
    CHECK(limits::round_error() == 0.5);
    CHECK(ht::is_nan(limits::quiet_NaN()));
    CHECK(ht::is_nan(limits::signaling_NaN()));
    CHECK((limits::quiet_NaN().bits() & 0x400000) != 0);
    CHECK((limits::signaling_NaN().bits() & 0x400000) == 0);
    CHECK(limits::digits10 == std::floor(10 * std::log10(2)));
    CHECK(limits::max_digits10 == std::ceil(11 * std::log10(2) + 1));
    CHECK(limits::min_exponent10 == same::min_exponent10);
    CHECK(limits::max_exponent10 == same::max_exponent10);
    CHECK(limits::is_specialized);
    CHECK(limits::has_denorm == same::has_denorm);
    CHECK(limits::round_style == same::round_style);
}

}  // namespace number_tfloat32_tests
