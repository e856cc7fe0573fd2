// SPDX-License-Identifier: MIT
/// \file
/// Rounding modes: toward zero compared with the oracle, stochastic by counting over all values of the random bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/number.hpp>

#include "oracle.hpp"

namespace number_round_to_tests {

/// A number type of a user, kept in a float: `Digits` significant bits and least exponent `MinExponent`.
template <int Digits, int MinExponent>
class user_float {
  public:
    user_float() = default;
    explicit user_float(float x) : value_{x} {}
    operator float() const { return value_; }

  private:
    float value_;
};

using float24 = user_float<17, -61>;

}  // namespace number_round_to_tests

template <int Digits, int MinExponent>
struct halftone::number_traits<number_round_to_tests::user_float<Digits, MinExponent>>
    : halftone::ieee_format<Digits, MinExponent, 64> {
    static constexpr const char* name = "user_float";
};

namespace number_round_to_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::float16;
using ht::rounding;

static_assert(ht::round_to<bfloat16>(1.0f / 3) == bfloat16(1.0f / 3));
static_assert(ht::round_to<bfloat16, rounding::toward_zero>(1.999f) == 1.9921875f);
static_assert(ht::round_to<bfloat16, rounding::toward_zero>(-1.999f) == -1.9921875f);
static_assert(ht::round_to<float16, rounding::toward_zero>(0x1p-14f - 0x1p-30f).bits() == 0x03ff);
static_assert(ht::round_stochastic<bfloat16>(1 + 0x1p-8f, 0x7fff) == 1);
static_assert(ht::round_stochastic<bfloat16>(1 + 0x1p-8f, 0x8000) == 1 + 0x1p-7f);
static_assert(ht::round_stochastic<float>(0.1f, 0xffffffff) == 0.1f);
static_assert(ht::round_to<float, rounding::toward_zero>(0.1f) == 0.1f);
static_assert(ht::round_to<double, rounding::toward_zero>(0.1f) == static_cast<double>(0.1f));

template <class T>
constexpr oracle::format format_of = std::is_same_v<T, float16> ? oracle::half : oracle::brain;

TEST_CASE_TEMPLATE("round_to: nearest even is the conversion", T, float16, bfloat16) {
    oracle::tally t;
    for (const std::uint32_t bits : oracle::neighbourhoods(format_of<T>)) {
        const float x = oracle::as_float(bits);
        t.expect(ht::round_to<T>(x).bits(), T(x).bits(), x);
        t.expect(ht::round_to<T, rounding::nearest_even>(x, bits * 77).bits(), T(x).bits(), x);
    }
    CHECK_TALLY(t);
}

TEST_CASE_TEMPLATE("round_to: toward zero drops bits and never overflows", T, float16, bfloat16) {
    const oracle::format f = format_of<T>;
    oracle::tally t;
    const auto check = [&](std::uint32_t bits) {
        const float x = oracle::as_float(bits);
        t.expect(ht::round_to<T, rounding::toward_zero>(x).bits(),
                 oracle::pattern_of_float(f, bits, oracle::mode::zero), x);
    };
    for (const std::uint32_t bits : oracle::neighbourhoods(f)) check(bits);
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 1999) check(static_cast<std::uint32_t>(bits));
    check(oracle::as_bits(std::numeric_limits<float>::infinity()));
    CHECK_TALLY(t);
}

/// The numbers of T around |x|, the upper one possibly 2^max_exponent, and how many random bits decide between them.
struct interval {
    double low, step;
    int bits;
};

interval around(oracle::format f, float x) {
    const double a = std::fabs(static_cast<double>(x));
    int exponent = 0;
    std::frexp(a, &exponent);
    exponent = std::max(exponent, f.min_exponent);
    const double step = std::ldexp(1.0, exponent - f.digits);
    // A float's own step at x: its exponent, of float's least normal numbers where x is subnormal, and 24 digits.
    int float_exponent = 0;
    std::frexp(a, &float_exponent);
    float_exponent = std::max(float_exponent, -125);
    return {std::floor(a / step) * step, step, exponent - f.digits - (float_exponent - 24)};
}

/// Counts, over all values of the random bits, how often x is rounded up: exactly its share of the distance.
template <class T>
void check_unbiased(float x) {
    const oracle::format f = format_of<T>;
    const interval i = around(f, x);
    const std::uint64_t values = std::uint64_t{1} << i.bits;
    const double share = (std::fabs(static_cast<double>(x)) - i.low) / i.step;
    const auto expected = static_cast<std::uint64_t>(share * static_cast<double>(values));
    REQUIRE(static_cast<double>(expected) == share * static_cast<double>(values));
    const double sign = std::signbit(x) ? -1 : 1;
    const int low = oracle::pattern(f, sign * i.low), high = oracle::pattern(f, sign * (i.low + i.step));
    std::uint64_t up = 0, elsewhere = 0;
    for (std::uint64_t random = 0; random < values; ++random) {
        const int found = ht::round_stochastic<T>(x, static_cast<std::uint32_t>(random)).bits();
        up += found == high ? 1 : 0;
        elsewhere += found != high && found != low ? 1 : 0;
    }
    INFO(x);
    CHECK(up == expected);
    CHECK(elsewhere == 0);
}

TEST_CASE("round_stochastic: unbiased over all random bits, bfloat16") {
    for (const float x : {0.1f, -0.1f, 1.0f, 1 + 0x1p-23f, 2 - 0x1p-23f, 3.14159265f, -1e30f, 1e-30f,
                          0x1p-126f - 0x1p-149f, 0x1p-130f + 0x1p-149f, 0x1p-149f, -0x1p-149f, 0x1.8p-134f}) {
        check_unbiased<bfloat16>(x);
    }
    for (std::uint64_t bits = 1; bits < 0x7f7f0000; bits += 34567891) {
        check_unbiased<bfloat16>(oracle::as_float(static_cast<std::uint32_t>(bits)));
    }
    // Past the largest number: up is infinity.
    check_unbiased<bfloat16>(0x1.ff8p127f);
    check_unbiased<bfloat16>(std::numeric_limits<float>::max());
    check_unbiased<bfloat16>(std::numeric_limits<float>::lowest());
}

TEST_CASE("round_stochastic: unbiased over all random bits, float16") {
    for (const float x :
         {0.1f, -0.1f, 1.0f, 1 + 0x1p-23f, 2 - 0x1p-23f, 3.14159265f, -1e4f, 65504.0f, 65519.0f, 65535.996f, 0x1p-14f,
          0x1p-14f - 0x1p-38f, 0x1.234566p-15f, -0x1.fffffep-16f, 0x1.fffffep-20f}) {
        check_unbiased<float16>(x);
    }
    for (std::uint32_t bits = 0x38800000; bits < 0x477fe000; bits += 345678)
        check_unbiased<float16>(oracle::as_float(bits));
    check_unbiased<float16>(0x1.abcdeep-24f);  // between the least number and the next
    check_unbiased<float16>(0x1.abcdeep-25f);  // below the least number: 25 bits decide
}

TEST_CASE("round_stochastic: far below float16's least number, a threshold") {
    // x is n * 2^-bits of the least number, so the n largest of the 2^bits random values take it up.
    for (int exponent = -26; exponent >= -32; --exponent) {
        for (const float significand : {1.0f, 1.5f, 0x1.fffffep0f}) {
            const float x = std::ldexp(significand, exponent);
            const std::uint64_t values = std::uint64_t{1} << (-exponent - 1);
            const auto count =
                static_cast<std::uint64_t>(std::ldexp(static_cast<double>(x), 24) * static_cast<double>(values));
            const std::uint64_t unit = count != 0 ? count : 1;
            CHECK(ht::round_stochastic<float16>(x, static_cast<std::uint32_t>(values - unit)).bits() == 1);
            CHECK(ht::round_stochastic<float16>(x, static_cast<std::uint32_t>(values - unit - 1)).bits() == 0);
            CHECK(ht::round_stochastic<float16>(-x, static_cast<std::uint32_t>(values - unit)).bits() == 0x8001);
        }
    }
    CHECK(ht::round_stochastic<float16>(0x1p-56f, 0xffffffff).bits() == 1);
    CHECK(ht::round_stochastic<float16>(0x1p-56f, 0xfffffffe).bits() == 0);
    for (int exponent = -57; exponent >= -150; --exponent) {
        const float x = std::ldexp(1.0f, exponent);  // at last zero
        CHECK(ht::round_stochastic<float16>(x, 0xffffffff).bits() == 0);
        CHECK(ht::round_stochastic<float16>(-x, 0xffffffff).bits() == 0x8000);
    }
}

TEST_CASE_TEMPLATE("round_stochastic: what the type holds stays, and no number becomes a NaN", T, float16, bfloat16) {
    oracle::tally exact, nan;
    for (int h = 0; h < 0x10000; ++h) {
        const T x = T::from_bits(static_cast<std::uint16_t>(h));
        for (const std::uint32_t random : {0u, 1u, 0x8000u, 0x12345678u, 0xffffffffu}) {
            exact.expect(ht::round_stochastic<T>(x, random).bits(), T(static_cast<float>(x)).bits(), h);
        }
        exact.expect(ht::round_to<T, rounding::toward_zero>(x).bits(), T(static_cast<float>(x)).bits(), h);
    }
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4093) {
        const float x = oracle::as_float(static_cast<std::uint32_t>(bits));
        nan.expect(ht::is_nan(ht::round_stochastic<T>(x, 0xffffffff)), ht::is_nan(x), x);
        nan.expect(ht::is_nan(ht::round_to<T, rounding::toward_zero>(x)), ht::is_nan(x), x);
    }
    CHECK_TALLY(exact);
    CHECK_TALLY(nan);
    const float infinity = std::numeric_limits<float>::infinity();
    CHECK(ht::round_stochastic<T>(infinity, 0xffffffff) == infinity);
    CHECK(ht::round_stochastic<T>(-infinity, 0) == -infinity);
}

TEST_CASE("round_stochastic: beyond float16 is infinity") {
    for (const float x : {65536.0f, 70000.0f, 1e10f, std::numeric_limits<float>::max()}) {
        CHECK(ht::is_inf(ht::round_stochastic<float16>(x, 0)));
        CHECK(ht::is_inf(ht::round_stochastic<float16>(-x, 0xffffffff)));
    }
}

TEST_CASE("round_stochastic: the mean under philox") {
    // The sum of n roundings, in steps, is binomial: within six standard deviations, at most sqrt(n) / 2 each.
    constexpr int n = 1 << 16;
    const float x = 1 + 0x1p-7f * 0.3f;
    int up = 0;
    for (std::uint32_t i = 0; i < n; ++i)
        up += ht::round_stochastic<bfloat16>(x, ht::random_bits(7, 0, 0, i)) > 1 ? 1 : 0;
    const double share = (static_cast<double>(x) - 1) * 0x1p7;
    CHECK(std::fabs(up - n * share) < 6 * std::sqrt(n) / 2);
}

TEST_CASE("round_to: a user's number type rounds by its traits") {
    using ht::number_traits;
    static_assert(ht::number<float24>);
    CHECK(ht::round_to<float24, rounding::toward_zero>(1 + 0x1p-16f + 0x1p-17f) == 1 + 0x1p-16f);
    CHECK(ht::round_to<float24, rounding::toward_zero>(0x1p100f) == number_traits<float24>::max);
    CHECK(ht::round_to<float24, rounding::toward_zero>(0x1.8p-78f) == 0x1p-78f);
    CHECK(ht::round_to<float24, rounding::toward_zero>(0x1.8p-79f) == 0);
    int up = 0;
    for (std::uint32_t random = 0; random < 128; ++random) {
        up += ht::round_stochastic<float24>(1 + 0x1.8p-18f, random) == 1 + 0x1p-16f ? 1 : 0;
    }
    CHECK(up == 48);  // 3 / 8 of 128

    // Its least number 2^-130 and the share of it that x makes up are subnormal floats: 2^19 steps of 2^-149.
    using long_tail = user_float<11, -119>;
    up = 0;
    for (std::uint32_t random = 0; random < 1u << 19; ++random) {
        up += ht::round_stochastic<long_tail>(0x1.ffp-131f, random) == 0x1p-130f ? 1 : 0;
    }
    CHECK(up == 511 << 10);
    CHECK(ht::round_to<long_tail, rounding::toward_zero>(0x1.ffp-131f) == 0);
    CHECK(ht::round_to<long_tail, rounding::toward_zero>(0x1.fffp-126f) == 0x1.fp-126f);
}

}  // namespace number_round_to_tests
