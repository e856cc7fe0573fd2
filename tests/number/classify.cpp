// SPDX-License-Identifier: MIT
/// \file
/// Finite, infinite or NaN: all patterns of the 16-bit types, samples of the wide ones.
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include <doctest/doctest.h>

#include <halftone/number.hpp>

#include "oracle.hpp"

namespace number_classify_tests {

namespace ht = halftone;

static_assert(ht::is_finite(1.0f) && ht::is_finite(-0.0) && ht::is_finite(std::numeric_limits<ht::float16>::max()));
static_assert(ht::is_inf(std::numeric_limits<float>::infinity()) &&
              ht::is_inf(-std::numeric_limits<double>::infinity()));
static_assert(ht::is_nan(std::numeric_limits<float>::quiet_NaN()) &&
              !ht::is_finite(std::numeric_limits<double>::quiet_NaN()));
static_assert(ht::is_nan(std::numeric_limits<ht::bfloat16>::signaling_NaN()));
static_assert(!ht::ieee_number<int> && !ht::ieee_number<long double>);

template <class T>
int classes(const T& x) {
    return (ht::is_finite(x) ? 1 : 0) | (ht::is_inf(x) ? 2 : 0) | (ht::is_nan(x) ? 4 : 0);
}

TEST_CASE("classify: every pattern of float16 and bfloat16") {
    oracle::tally t;
    for (int h = 0; h < 0x10000; ++h) {
        const int a = h & 0x7fff;
        t.expect(classes(ht::float16::from_bits(static_cast<std::uint16_t>(h))),
                 a < 0x7c00    ? 1
                 : a == 0x7c00 ? 2
                               : 4,
                 h);
        t.expect(classes(ht::bfloat16::from_bits(static_cast<std::uint16_t>(h))),
                 a < 0x7f80    ? 1
                 : a == 0x7f80 ? 2
                               : 4,
                 h);
    }
    CHECK_TALLY(t);
}

template <class T>
int expected(T x) {
    return std::isnan(x) ? 4 : std::isinf(x) ? 2 : 1;
}

TEST_CASE("classify: float and double") {
    oracle::tally t;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4093) {
        const float x = oracle::as_float(static_cast<std::uint32_t>(bits));
        t.expect(classes(x), expected(x), bits);
        const auto wide = std::bit_cast<double>(bits << 32 | bits);
        t.expect(classes(wide), expected(wide), bits);
    }
    for (const std::uint32_t around : {0x7f800000u, 0xff800000u, 0x80000000u, 0x00800000u}) {
        for (const std::uint32_t bits : {around - 1, around, around + 1}) {
            const float x = oracle::as_float(bits);
            t.expect(classes(x), expected(x), bits);
        }
    }
    for (const std::uint64_t around : {0x7ff0000000000000u, 0xfff0000000000000u, 0x8000000000000000u}) {
        for (const std::uint64_t bits : {around - 1, around, around + 1}) {
            const auto x = std::bit_cast<double>(bits);
            t.expect(classes(x), expected(x), bits);
        }
    }
    CHECK_TALLY(t);
}

}  // namespace number_classify_tests
