// SPDX-License-Identifier: MIT
/// \file
/// float16, compared with the oracle: every pattern, every rounding boundary, wide types, arithmetic, limits.
#include "conversion_checks.hpp"

namespace number_float16_tests {

using namespace conversion_checks;

constexpr oracle::format format = oracle::half;

static_assert(shape_is_right<float16>());

static_assert(float16(1.0f / 3).bits() == 0x3555);
static_assert(float16(65519.996f).bits() == 0x7bff && float16(65520.0f).bits() == 0x7c00);
static_assert(float16(0x1p-25f).bits() == 0 && float16(0x1.000002p-25f).bits() == 1);
// Just above halfway between 1 and its neighbour; the nearest float is halfway, from where nearest even goes down.
static_assert(float16(1 + 0x1p-11 + 0x1p-40).bits() == 0x3c01 && float16(float{1 + 0x1p-11}).bits() == 0x3c00);
static_assert(float16(0x1p-25 + 0x1p-60).bits() == 1);

TEST_CASE("float16: every pattern has its value and comes back") { check_patterns<float16>(format); }

TEST_CASE("float16: floats round to nearest even") { check_floats<float16>(format); }

TEST_CASE("float16: wider types round once") {
    check_wide<float16, double>(format);
    check_wide<float16, long double>(format);
    check_double_nan_payloads<float16>(format);
}

TEST_CASE("float16: integers round once") {
    check_integers<float16, std::int64_t>(format);
    check_integers<float16, std::uint64_t>(format);
    check_integers<float16, std::int32_t>(format);
    check_integers<float16, std::uint32_t>(format);
    check_integers<float16, std::int16_t>(format);
    check_integers<float16, std::uint16_t>(format);
    check_integers<float16, std::int8_t>(format);
    check_integers<float16, std::uint8_t>(format);
}

TEST_CASE("float16: writing back a float result rounds correctly") { check_arithmetic<float16>(format, 0, 31); }

TEST_CASE("float16: numeric_limits") { check_limits<float16>(format); }

TEST_CASE("float16: conversions do not depend on the processor's flush modes") { check_flush_mode<float16>(format); }

}  // namespace number_float16_tests
