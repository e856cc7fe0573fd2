// SPDX-License-Identifier: MIT
/// \file
/// Properties that also hold in a program compiled with -ffast-math: the build compiles this file with that flag. Inputs pass
/// through volatile variables, because the compiler may assume that visible values are neither infinite nor NaN.
#include <bit>
#include <cstdint>
#include <initializer_list>

#include <doctest/doctest.h>

#include <halftone/number.hpp>

namespace number_fast_math_tests {

namespace ht = halftone;

float hidden(std::uint32_t bits) {
    volatile std::uint32_t memory = bits;
    return std::bit_cast<float>(static_cast<std::uint32_t>(memory));
}

double hidden(std::uint64_t bits) {
    volatile std::uint64_t memory = bits;
    return std::bit_cast<double>(static_cast<std::uint64_t>(memory));
}

TEST_CASE("fast math: infinities and NaNs are seen") {
    for (const std::uint32_t bits : {0x7f800000u, 0xff800000u}) {
        CHECK_FALSE(ht::is_finite(hidden(bits)));
        CHECK(ht::is_inf(hidden(bits)));
        CHECK_FALSE(ht::is_nan(hidden(bits)));
    }
    for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xffffffffu}) {
        CHECK_FALSE(ht::is_finite(hidden(bits)));
        CHECK_FALSE(ht::is_inf(hidden(bits)));
        CHECK(ht::is_nan(hidden(bits)));
    }
    for (const std::uint32_t bits : {0u, 1u, 0x7f7fffffu, 0xff7fffffu}) CHECK(ht::is_finite(hidden(bits)));
    CHECK_FALSE(ht::is_finite(hidden(std::uint64_t{0x7ff0000000000000})));
    CHECK(ht::is_nan(hidden(std::uint64_t{0x7ff8000000000000})));
    CHECK(ht::is_finite(hidden(std::uint64_t{0x7fefffffffffffff})));
}

TEST_CASE("fast math: an overflow in the program's own arithmetic is seen") {
    volatile float large = 0x1p127f;
    const float product = large * large;
    CHECK_FALSE(ht::is_finite(product));
    const float array[4] = {1, large * large, 2, 3};
    bool finite = true;
    for (const float& x : array) finite = finite && ht::is_finite(x);
    CHECK_FALSE(finite);
    CHECK_FALSE(ht::is_finite(ht::float16(large)));
}

TEST_CASE("fast math: conversions") {
    CHECK(ht::float16(hidden(0x7f800000u)).bits() == 0x7c00);
    CHECK(ht::float16(hidden(0xffc02000u)).bits() == 0xfe01);
    CHECK(ht::bfloat16(hidden(0x7f810000u)).bits() == 0x7fc1);
    CHECK(ht::bfloat16(hidden(0x00010000u)).bits() == 0x0001);
    CHECK(ht::bfloat16(hidden(0x80007fffu)).bits() == 0x8000);
    CHECK(ht::float16(hidden(std::uint64_t{0x7ff0040000000000})).bits() == 0x7e01);
    CHECK(ht::float16(hidden(std::uint64_t{0x3e70000000000001})).bits() == 0x0001);  // just above 2^-24 / 2
    CHECK(ht::float16(hidden(std::uint64_t{0x3e60000000000000})).bits() == 0x0000);
    CHECK(ht::round_stochastic<ht::float16>(hidden(0x7f800000u), 0xffffffff).bits() == 0x7c00);
    CHECK(ht::round_to<ht::bfloat16, ht::rounding::toward_zero>(hidden(0x7f7fffffu)).bits() == 0x7f7f);

    const float infinity = hidden(0x7f800000u), nan = hidden(0xffc00000u);
    CHECK(ht::is_nan(ht::float8_e4m3(infinity)));
    CHECK(ht::float8_e5m2(infinity).bits() == 0x7c);
    CHECK(ht::float8_e4m3(nan).bits() == 0xff);
    CHECK(ht::float8_e5m2(nan).bits() == 0xfe);
    CHECK(ht::saturate<ht::float8_e4m3>(infinity).bits() == 0x7e);
    CHECK(ht::saturate<ht::float16>(infinity).bits() == 0x7bff);
    CHECK(ht::is_nan(ht::saturate<ht::float8_e5m2>(nan)));
    CHECK(ht::is_nan(ht::saturate<ht::bfloat16>(nan)));

    int wrong = 0;
    for (std::uint32_t h = 0; h < 0x10000; ++h) {
        const bool half_is_nan = (h & 0x7fff) > 0x7c00, brain_is_nan = (h & 0x7fff) > 0x7f80;
        const volatile auto bits = static_cast<std::uint16_t>(h);
        const auto half = ht::float16::from_bits(bits);
        const auto brain = ht::bfloat16::from_bits(bits);
        wrong += ht::float16(static_cast<float>(half)).bits() != (h | (half_is_nan ? 0x200 : 0)) ? 1 : 0;
        wrong += ht::bfloat16(static_cast<float>(brain)).bits() != (h | (brain_is_nan ? 0x40 : 0)) ? 1 : 0;
        wrong += ht::is_nan(half) != half_is_nan || ht::is_nan(brain) != brain_is_nan ? 1 : 0;
        wrong += ht::is_finite(half) != ((h & 0x7c00) != 0x7c00) ? 1 : 0;
    }
    CHECK(wrong == 0);
}

TEST_CASE("fast math: long double and wide integers round once") {
    volatile long double halfway = 1 + 0x1p-11L;
    CHECK(ht::float16(static_cast<long double>(halfway)).bits() == 0x3c00);
    volatile double above = 1 + 0x1p-11 + 0x1p-52;
    CHECK(ht::float16(static_cast<double>(above)).bits() == 0x3c01);
    if constexpr (sizeof(long double) > sizeof(double)) {
        volatile long double rest = 0x1p-60L;
        CHECK(ht::float16(static_cast<long double>(halfway) + static_cast<long double>(rest)).bits() == 0x3c01);
        CHECK(ht::float16(static_cast<long double>(halfway) - static_cast<long double>(rest)).bits() == 0x3c00);
    }
    volatile std::int64_t integer = (std::int64_t{1} << 62) + (std::int64_t{1} << 54) + 1;
    CHECK(ht::bfloat16(static_cast<std::int64_t>(integer)).bits() == 0x5e81);
}

}  // namespace number_fast_math_tests
