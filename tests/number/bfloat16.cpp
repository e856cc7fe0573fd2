// SPDX-License-Identifier: MIT
/// \file
/// bfloat16, compared with the oracle: every pattern, every rounding boundary, wide types, arithmetic, limits.
#include "conversion_checks.hpp"

namespace number_bfloat16_tests {

using namespace conversion_checks;

constexpr oracle::format format = oracle::brain;

static_assert(shape_is_right<bfloat16>());

static_assert(bfloat16(1.0f / 3).bits() == 0x3eab);
static_assert(bfloat16(0x1.fefffep127f).bits() == 0x7f7f && bfloat16(0x1.ffp127f).bits() == 0x7f80);
static_assert(bfloat16(0x1p-134f).bits() == 0 && bfloat16(0x1.8p-134f).bits() == 1);
// Just above halfway between 1 and its neighbour; the nearest float is halfway, from where nearest even goes down.
static_assert(bfloat16(1 + 0x1p-8 + 0x1p-40).bits() == 0x3f81 && bfloat16(float{1 + 0x1p-8}).bits() == 0x3f80);
static_assert(bfloat16((1LL << 62) + (1LL << 54) + 1).bits() == bfloat16(0x1.02p62f).bits());

TEST_CASE("bfloat16: every pattern has its value and comes back") { check_patterns<bfloat16>(format); }

TEST_CASE("bfloat16: floats round to nearest even") { check_floats<bfloat16>(format); }

TEST_CASE("bfloat16: wider types round once") {
    check_wide<bfloat16, double>(format);
    check_wide<bfloat16, long double>(format);
    check_double_nan_payloads<bfloat16>(format);
}

TEST_CASE("bfloat16: integers round once") {
    check_integers<bfloat16, std::int64_t>(format);
    check_integers<bfloat16, std::uint64_t>(format);
    check_integers<bfloat16, std::int32_t>(format);
    check_integers<bfloat16, std::uint32_t>(format);
    check_integers<bfloat16, std::int16_t>(format);
    check_integers<bfloat16, std::uint16_t>(format);
    check_integers<bfloat16, std::int8_t>(format);
    check_integers<bfloat16, std::uint8_t>(format);
}

TEST_CASE("bfloat16: writing back a float result rounds correctly") {
    check_arithmetic<bfloat16>(format, 127 - 20, 40);
}

TEST_CASE("bfloat16: numeric_limits") { check_limits<bfloat16>(format); }

TEST_CASE("bfloat16: conversions do not depend on the processor's flush modes") { check_flush_mode<bfloat16>(format); }

}  // namespace number_bfloat16_tests
