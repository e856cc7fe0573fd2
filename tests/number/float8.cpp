// SPDX-License-Identifier: MIT
/// \file
/// float8_e4m3 and float8_e5m2: compared with the tables of ml_dtypes, which golden/float8.py wrote, and with the formats'
/// definition.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/number.hpp>
#include <halftone/policy/promotion.hpp>

#include "optim/golden.hpp"

#include "oracle.hpp"

namespace number_float8_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::float16;
using ht::float8_e4m3;
using ht::float8_e5m2;
using ht::rounding;

template <class T>
constexpr bool shape_is_right() {
    static_assert(sizeof(T) == 1 && alignof(T) == 1 && ht::number<T> && ht::eight_bit<T> && !ht::sixteen_bit<T>);
    static_assert(std::is_trivial_v<T> && std::is_standard_layout_v<T>);
    static_assert(!std::is_convertible_v<float, T> && std::is_constructible_v<T, float> &&
                  std::is_convertible_v<T, float>);
    static_assert(std::is_same_v<decltype(T{} * T{}), float> && std::is_same_v<decltype(-T{}), T>);
    static_assert(std::totally_ordered<T> && std::totally_ordered_with<T, float>);
    static_assert(T{}.bits() == 0 && T(1) == 1 && T(true) == 1 && T(-2LL) == -2 && T(T(3)) == 3 &&
                  T(float16(-3)) == -3);
    static_assert((-T(0)).bits() == 0x80 && T(0) == -T(0) && -T(2) == T(-2));
    static_assert(
        ht::contains<float16, T> &&
        std::is_same_v<ht::promote<T, bfloat16>, std::conditional_t<ht::contains<bfloat16, T>, bfloat16, float>>);
    return true;
}
static_assert(shape_is_right<float8_e4m3>() && shape_is_right<float8_e5m2>());
static_assert(std::is_same_v<ht::promote<float8_e4m3, float8_e5m2>, float>);

static_assert(float8_e4m3(0.3).bits() == 0x2a && float8_e4m3(464.0f) == 448 && ht::is_nan(float8_e4m3(464.01f)));
static_assert(float8_e4m3(0x1p-10f).bits() == 0 && float8_e4m3(0x1.000002p-10f).bits() == 1);
static_assert(float8_e5m2(61439.0f) == 57344 && ht::is_inf(float8_e5m2(61440.0f)) && float8_e5m2(-1e30).bits() == 0xfc);
// Just above halfway between 1 and its neighbour; the nearest float is halfway, from where nearest even goes down.
static_assert(float8_e4m3(1 + 0x1p-4 + 0x1p-40).bits() == 0x39 && float8_e4m3(float{1 + 0x1p-4}).bits() == 0x38);
static_assert(float8_e5m2((1LL << 12) + (1LL << 9) + 1).bits() == 0x6d &&
              float8_e5m2((1LL << 12) + (1LL << 9)).bits() == 0x6c);
static_assert(ht::saturate<float8_e4m3>(1e6f) == 448 && ht::saturate<float8_e5m2>(-1e300) == -57344);
static_assert(ht::saturate<float8_e4m3>(1 + 0x1p-4 + 0x1p-40).bits() == 0x39 &&
              ht::saturate<float8_e4m3>(float16(500.0)) == 448);
static_assert(ht::saturate<float16>(70000) == 65504 && ht::saturate<bfloat16>(-1e300).bits() == 0xff7f &&
              ht::saturate<float>(1e300) == std::numeric_limits<float>::max());

/// The definition: a format's numbers up to the largest, which oracle::pattern of 16 bits does not know of.
template <class T>
struct definition {
    static constexpr bool fn = std::is_same_v<T, float8_e4m3>;
    static constexpr oracle::format format = fn ? oracle::format{4, -5, 9} : oracle::format{3, -13, 16};
    static constexpr int largest = fn ? 0x7e : 0x7b, beyond = fn ? 0x7f : 0x7c, nan = fn ? 0x7f : 0x7e;

    template <class Real>
    static int code(Real x, bool stops = false, oracle::mode mode = oracle::mode::nearest) {
        const int sign = std::signbit(x) ? 0x80 : 0;
        if (std::isnan(x)) return sign | nan;
        if (std::isinf(x)) return sign | (stops ? largest : beyond);
        // One exponent further than the type's, so that what is too large shows as a code beyond the largest.
        const int found = oracle::pattern({format.digits, format.min_exponent, 2000}, std::fabs(x), mode);
        if (found <= largest) return sign | found;
        return sign | (stops || mode == oracle::mode::zero ? largest : beyond);
    }
};

/// The words of a golden line after its names: as many codes as there are patterns.
std::vector<int> expand(const support::golden_line& line) {
    std::vector<int> codes;
    for (std::size_t i = 2; i < line.words.size(); ++i) {
        const std::size_t star = line.words[i].find('*');
        REQUIRE(star != std::string::npos);
        codes.insert(codes.end(), static_cast<std::size_t>(std::atoi(line.words[i].c_str())),
                     static_cast<int>(std::strtol(line.words[i].c_str() + star + 1, nullptr, 16)));
    }
    REQUIRE(codes.size() == 65536);
    return codes;
}

template <class T, class Sixteen>
void check_codes(const std::vector<int>& codes, bool stops) {
    oracle::tally t;
    for (int h = 0; h < 65536; ++h) {
        const auto x = Sixteen::from_bits(static_cast<std::uint16_t>(h));
        t.expect(stops ? ht::saturate<T>(x).bits() : T(x).bits(), codes[static_cast<std::size_t>(h)], h);
    }
    CHECK_TALLY(t);
}

TEST_CASE_TEMPLATE("float8: ml_dtypes' codes of every float16 and bfloat16, and values of every code", T, float8_e4m3,
                   float8_e5m2) {
    int tables = 0;
    for (const support::golden_line& line : support::read_golden("float8.txt")) {
        if (line.words[0] != ht::number_traits<T>::name) continue;
        ++tables;
        if (line.kind == "values") {
            oracle::tally t;
            for (int code = 0; code < 256; ++code) {
                const auto x = T::from_bits(static_cast<std::uint8_t>(code));
                const float value = x, expected = static_cast<float>(line.number(static_cast<std::size_t>(code) + 1));
                CHECK(ht::is_nan(x) == ht::is_nan(expected));
                CHECK(ht::is_inf(x) == ht::is_inf(expected));
                CHECK(ht::is_finite(x) == ht::is_finite(expected));
                if (ht::is_nan(expected)) {
                    CHECK(ht::is_nan(value));
                    CHECK(T(value).bits() == ((code & 0x80) | definition<T>::nan));
                } else {
                    t.expect(oracle::as_bits(value), oracle::as_bits(expected), code);
                    t.expect(T(value).bits(), code, code);
                    t.expect((-x).bits(), code ^ 0x80, code);
                }
            }
            CHECK_TALLY(t);
        } else {
            const bool stops = line.kind == "stops", half = line.words[1] == "float16";
            INFO(line.kind << " " << line.words[1]);
            half ? check_codes<T, float16>(expand(line), stops) : check_codes<T, bfloat16>(expand(line), stops);
        }
    }
    CHECK(tables == 5);
}

TEST_CASE_TEMPLATE("float8: floats, doubles and long doubles round once, with and without an end", T, float8_e4m3,
                   float8_e5m2) {
    using type = definition<T>;
    oracle::tally t;
    const auto check = [&](auto x) {
        t.expect(T(x).bits(), type::code(x), x);
        t.expect(T(-x).bits(), type::code(-x), x);
        if constexpr (!std::is_same_v<decltype(x), long double>) {
            t.expect(ht::saturate<T>(x).bits(), type::code(x, true), x);
            t.expect(ht::saturate<T>(-x).bits(), type::code(-x, true), x);
        }
    };
    for (int h = 0; h <= 0x7f; ++h) {
        const double low = oracle::value(type::format, h), half_step = (oracle::value(type::format, h + 1) - low) / 2;
        for (const double exact : {low, low + half_step, low + half_step / 3}) {
            for (const double x : {exact, std::nextafter(exact, 0.0), std::nextafter(exact, 1e300)}) {
                check(x);
                check(static_cast<long double>(x));
                check(std::nextafter(static_cast<long double>(x), 1e300L));
            }
            const auto near = static_cast<float>(exact);
            for (const float x : {near, std::nextafter(near, 0.0f), std::nextafter(near, 1e30f)}) check(x);
        }
    }
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 31; bits += 3989) {
        const float x = oracle::as_float(static_cast<std::uint32_t>(bits));
        if (!ht::is_nan(x)) check(x);
    }
    for (const double x : {1e-320, 1e300, std::numeric_limits<double>::infinity()}) check(x);
    for (int i = 0; i < 70000; i += 7) t.expect(T(i).bits(), type::code(static_cast<double>(i)), i);
    CHECK_TALLY(t);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(T(nan).bits() == type::nan);
    CHECK(ht::saturate<T>(-nan).bits() == (0x80 | type::nan));
    CHECK(ht::is_nan(ht::clamp_to<T>(nan)));
    CHECK(ht::clamp_to<T>(-1e30f) == -ht::number_traits<T>::max);
    CHECK(ht::clamp_to<T>(3.3f) == 3.3f);
}

TEST_CASE_TEMPLATE("float8: rounding toward zero and stochastic rounding", T, float8_e4m3, float8_e5m2) {
    using type = definition<T>;
    const auto largest = static_cast<float>(ht::number_traits<T>::max);
    oracle::tally t;
    for (std::uint64_t bits = 0; bits < 0x7f800000u; bits += 3989) {
        const float x = oracle::as_float(static_cast<std::uint32_t>(bits));
        t.expect(ht::round_to<T, rounding::toward_zero>(x).bits(), type::code(x, false, oracle::mode::zero), x);
        t.expect(ht::round_to<T>(-x).bits(), T(-x).bits(), x);
    }
    for (int code = 0; code < 256; ++code) {
        const auto x = T::from_bits(static_cast<std::uint8_t>(code));
        for (const std::uint32_t random : {0u, 0x12345678u, 0xffffffffu}) {
            t.expect(ht::round_stochastic<T>(x, random).bits(), T(static_cast<float>(x)).bits(), code);
        }
    }
    CHECK_TALLY(t);

    // x is `share` of a step above a code.
    for (const int code : {0, 1, 5, 8, 0x33, 0x50, type::largest - 1}) {
        const double low = oracle::value(type::format, code), step = oracle::value(type::format, code + 1) - low;
        for (const double share : {0.25, 0.3125, 0.75}) {
            const auto x = static_cast<float>(low + share * step);
            constexpr std::uint32_t values = 1 << 12;
            std::uint32_t up = 0, elsewhere = 0;
            for (std::uint32_t i = 0; i < values; ++i) {
                const int found =
                    ht::round_stochastic<T>(x, ht::random_bits(7, 0, static_cast<std::uint32_t>(code), i)).bits();
                up += found == code + 1 ? 1 : 0;
                elsewhere += found != code && found != code + 1 ? 1 : 0;
            }
            CAPTURE(code);
            CHECK(elsewhere == 0);
            // A binomial's deviation is at most sqrt(n) / 2: six of them.
            CHECK(std::fabs(up - share * values) < 3 * std::sqrt(values));
        }
    }

    // Past the largest number: rounding up gives what the type has there.
    CHECK(ht::round_stochastic<T>(largest * 1.001f, 0) == largest);
    CHECK(ht::round_stochastic<T>(largest * 1.1f, 0xffffffff).bits() == type::beyond);
    CHECK(ht::round_stochastic<T>(-4 * largest, 0).bits() == (0x80 | type::beyond));
    CHECK(ht::round_stochastic<T>(ht::clamp_to<T>(-4 * largest), 0xffffffff) == -largest);
    CHECK(ht::round_to<T, rounding::toward_zero>(std::numeric_limits<float>::max()) == largest);
    CHECK(ht::round_to<T, rounding::toward_zero>(std::numeric_limits<float>::infinity()).bits() == type::beyond);
}

TEST_CASE_TEMPLATE("float8: writing back a float result rounds correctly", T, float8_e4m3, float8_e5m2) {
    oracle::tally t;
    for (int a = 0; a < 256; ++a) {
        for (int b = 0; b < 256; ++b) {
            const auto x = T::from_bits(static_cast<std::uint8_t>(a)), y = T::from_bits(static_cast<std::uint8_t>(b));
            if (!ht::is_finite(x) || !ht::is_finite(y)) continue;
            const double v = static_cast<float>(x), w = static_cast<float>(y);
            T sum = x, difference = x, product = x, quotient = x;
            t.expect((sum += y).bits(), definition<T>::code(v + w), a);
            t.expect((difference -= y).bits(), definition<T>::code(v - w), a);
            t.expect((product *= y).bits(), definition<T>::code(v * w), a);
            if (w != 0) t.expect((quotient /= y).bits(), definition<T>::code(v / w), a);
        }
    }
    CHECK_TALLY(t);
}

TEST_CASE_TEMPLATE("float8: numeric_limits and number_traits", T, float8_e4m3, float8_e5m2) {
    using type = definition<T>;
    using limits = std::numeric_limits<T>;
    using traits = ht::number_traits<T>;
    CHECK(limits::max().bits() == type::largest);
    CHECK(limits::lowest() == -limits::max());
    CHECK(limits::min() == traits::min_normal);
    CHECK(limits::denorm_min().bits() == 1);
    CHECK(limits::epsilon() == static_cast<float>(T::from_bits(static_cast<std::uint8_t>(T(1).bits() + 1))) - 1);
    CHECK(limits::round_error() == 0.5f);
    CHECK(ht::is_nan(limits::quiet_NaN()));
    CHECK(ht::is_nan(limits::signaling_NaN()));
    CHECK(limits::has_infinity == !type::fn);
    CHECK(limits::has_signaling_NaN == !type::fn);
    CHECK(limits::infinity().bits() == type::beyond);
    CHECK(!limits::is_iec559);
    CHECK(limits::digits == type::format.digits);
    CHECK(limits::digits10 == std::floor((limits::digits - 1) * std::log10(2)));
    CHECK(limits::max_digits10 == std::ceil(limits::digits * std::log10(2) + 1));
    CHECK(limits::min_exponent == std::ilogb(limits::min()) + 1);
    CHECK(limits::max_exponent == std::ilogb(limits::max()) + 1);
    CHECK(limits::min_exponent10 == std::ceil(std::log10(static_cast<double>(limits::min()))));
    CHECK(limits::max_exponent10 == std::floor(std::log10(static_cast<double>(limits::max()))));
    CHECK(traits::ieee_encoding == !type::fn);
    CHECK(traits::max == static_cast<double>(limits::max()));
    CHECK(traits::min_subnormal == static_cast<double>(limits::denorm_min()));
    CHECK(traits::unit_roundoff == static_cast<double>(limits::epsilon()) / 2);
    CHECK(traits::significand_bits == limits::digits);
    CHECK(traits::min_exponent == limits::min_exponent);
    CHECK(traits::max_exponent == limits::max_exponent);
}

#if defined(__SSE2__) && defined(__GNUC__)
TEST_CASE_TEMPLATE("float8: conversions do not depend on the processor's flush modes", T, float8_e4m3, float8_e5m2) {
    std::vector<std::uint32_t> widened;
    for (int code = 0; code < 256; ++code)
        widened.push_back(oracle::as_bits(T::from_bits(static_cast<std::uint8_t>(code))));
    oracle::tally t;
    const unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode | 0x8040);  // flush to zero, subnormals are zero
    for (int code = 0; code < 256; ++code) {
        const volatile auto bits = static_cast<std::uint8_t>(code);
        const volatile float x = T::from_bits(bits);
        t.expect(oracle::as_bits(x), widened[static_cast<std::size_t>(code)], code);
    }
    const volatile double tiny = 3 * ht::number_traits<T>::min_subnormal;
    t.expect(T(static_cast<double>(tiny)).bits(), 3, 0);
    __builtin_ia32_ldmxcsr(mode);
    CHECK_TALLY(t);
}
#endif

}  // namespace number_float8_tests
