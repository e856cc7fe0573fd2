// SPDX-License-Identifier: MIT
/// \file
/// Powers of two and rounding to odd.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

#include <halftone/number/bits.hpp>

#include "oracle.hpp"

namespace number_bits_tests {

using halftone::detail::float_bits_odd;
using halftone::detail::power_of_two;

TEST_CASE("power_of_two: the whole range of double") {
    for (int exponent = -1074; exponent <= 1023; ++exponent) CHECK(power_of_two(exponent) == std::ldexp(1.0, exponent));
}

/// By the definition: x itself where a float holds it, else the neighbour with the odd pattern.
std::uint32_t odd(double x) {
    const auto near = static_cast<float>(x);
    if (static_cast<double>(near) == x) return oracle::as_bits(near);
    const float other = std::nextafter(near, static_cast<double>(near) < x ? std::numeric_limits<float>::infinity()
                                                                           : -std::numeric_limits<float>::infinity());
    return oracle::as_bits(near) % 2 == 1 ? oracle::as_bits(near) : oracle::as_bits(other);
}

TEST_CASE("float_bits_odd: the definition, over all exponents") {
    oracle::tally t;
    std::uint64_t fraction = 1;
    for (std::uint64_t exponent = 0; exponent < 0x7ff; ++exponent) {
        for (int i = 0; i < 300; ++i) {
            fraction = fraction * 6364136223846793005u + 1442695040888963407u;
            // Also fractions whose low bits are zero or nearly so: floats, halfway points, and their neighbours.
            const std::uint64_t kept = i % 3 == 0 ? fraction >> 12 : fraction >> 41 << 28;
            const std::uint64_t bits = (exponent << 52 | kept) + (i % 3 == 2 ? 1 : 0);
            const auto x = std::bit_cast<double>(bits);
            if (std::isfinite(x)) t.expect(float_bits_odd(x), odd(x), x);
            if (std::isfinite(x)) t.expect(float_bits_odd(-x), odd(-x), -x);
        }
    }
    CHECK_TALLY(t);
    static_assert(float_bits_odd(0.0) == 0 && float_bits_odd(-0.0) == 0x80000000);
    static_assert(float_bits_odd(1e-320) == 1 && float_bits_odd(1e300) == 0x7f7fffff);
    CHECK(float_bits_odd(std::numeric_limits<double>::infinity()) == 0x7f800000);
}

TEST_CASE("float_bits_odd: integers are rounded to odd once") {
    oracle::tally t;
    for (int shift = 0; shift < 63; ++shift) {
        const auto power = std::int64_t{1} << shift;
        t.expect(float_bits_odd(power), odd(std::ldexp(1.0, shift)), power);
        t.expect(float_bits_odd(-power), odd(-std::ldexp(1.0, shift)), -power);
        if (shift < 53) t.expect(float_bits_odd(power + 1), odd(std::ldexp(1.0, shift) + 1), power + 1);
        if (shift >= 53) t.expect(float_bits_odd(power + 1), odd(std::ldexp(1.0, shift)) + 1, power + 1);
    }
    CHECK_TALLY(t);
    static_assert(float_bits_odd(std::numeric_limits<std::int64_t>::min()) == 0xdf000000);
    static_assert(float_bits_odd(std::numeric_limits<std::uint64_t>::max()) == 0x5f7fffff);
}

}  // namespace number_bits_tests
