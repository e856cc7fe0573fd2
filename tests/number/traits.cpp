// SPDX-License-Identifier: MIT
/// \file
/// number_traits, compared with std::numeric_limits, and the concepts.
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <halftone/number.hpp>

namespace number_traits_tests {

namespace ht = halftone;

static_assert(ht::number<float> && ht::number<double> && ht::number<ht::float16> && ht::number<ht::bfloat16>);
static_assert(!ht::number<int> && !ht::number<long double> && !ht::number<float*> && !ht::number<std::string>);
static_assert(ht::sixteen_bit<ht::float16> && ht::sixteen_bit<ht::bfloat16>);
static_assert(!ht::sixteen_bit<float> && !ht::sixteen_bit<short>);
static_assert(ht::unit_roundoff<float> == 0x1p-24 && ht::unit_roundoff<ht::float16> == 0x1p-11);
static_assert(ht::unit_roundoff<ht::bfloat16> == 1.0 / 256 && ht::unit_roundoff<double> == 0x1p-53);

TEST_CASE_TEMPLATE("number_traits: agree with numeric_limits", T, double, float, ht::float16, ht::bfloat16,
                   ht::tfloat32) {
    using traits = ht::number_traits<T>;
    using limits = std::numeric_limits<T>;
    CHECK(traits::significand_bits == limits::digits);
    CHECK(traits::min_exponent == limits::min_exponent);
    CHECK(traits::max_exponent == limits::max_exponent);
    CHECK(traits::max == static_cast<double>(limits::max()));
    CHECK(traits::min_normal == static_cast<double>(limits::min()));
    CHECK(traits::min_subnormal == static_cast<double>(limits::denorm_min()));
    CHECK(traits::unit_roundoff == static_cast<double>(limits::epsilon()) / 2);
    CHECK(traits::ieee_encoding);
}

TEST_CASE("number_traits: names") {
    CHECK(ht::number_traits<double>::name == std::string("double"));
    CHECK(ht::number_traits<float>::name == std::string("float"));
    CHECK(ht::number_traits<ht::float16>::name == std::string("float16"));
    CHECK(ht::number_traits<ht::bfloat16>::name == std::string("bfloat16"));
    CHECK(ht::number_traits<ht::tfloat32>::name == std::string("tfloat32"));
}

}  // namespace number_traits_tests
