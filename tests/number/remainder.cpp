// SPDX-License-Identifier: MIT
/// \file
/// Ties away from zero, and floats in two halves.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

#include <halftone/number.hpp>

namespace number_remainder_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::float16;
using ht::rounding;

constexpr float third = 1.0f / 3;
static_assert(ht::join(ht::halves_of(third)) == third && ht::halves_of(third).nearest == bfloat16(third));
static_assert(ht::halves_of(1 + 0x1p-8f).nearest == 1 + 0x1p-7f && bfloat16(1 + 0x1p-8f) == 1);
static_assert(ht::join({bfloat16(2), ht::bfloat16_remainder::from_bits(0xffff)}) == 0x1.fffffep0f);
static_assert(ht::round_to<float16, rounding::nearest_away>(1 + 0x1p-11f) == 1 + 0x1p-10f &&
              float16(1 + 0x1p-11f) == 1);
static_assert(ht::round_to<float16, rounding::nearest_away>(-0x1p-25f) == -0x1p-24f && float16(-0x1p-25f) == 0);
static_assert(ht::round_to<float16, rounding::nearest_away>(0x1.fffffep-26f) == 0);
static_assert(ht::round_to<float16, rounding::nearest_away>(65520.0f) == std::numeric_limits<float>::infinity());
static_assert(ht::round_to<float16, rounding::nearest_away>(65519.0f) == 65504);
static_assert(ht::round_to<float, rounding::nearest_away>(third) == third);

float float_of(std::uint32_t high, std::uint32_t low) { return std::bit_cast<float>(high << 16 | low); }

/// Low halves around every place where something changes.
constexpr std::uint32_t lows[] = {0,      1,      2,      0x3fff, 0x4000, 0x7ffe, 0x7fff, 0x8000,
                                  0x8001, 0xbfff, 0xc000, 0xfffe, 0xffff, 0x5a5a, 0xa5a5};

/// What is wrong with the halves of this float; nullptr: nothing.
const char* problem_of(std::uint32_t high, std::uint32_t low) {
    const float x = float_of(high, low);
    const ht::float_halves h = ht::halves_of(x);
    if (std::isnan(x)) {
        if (!ht::is_nan(h.nearest)) return "a NaN whose bfloat16 is a number";
        return std::isnan(ht::join(h)) ? nullptr : "a NaN that comes back as a number";
    }
    if (std::bit_cast<std::uint32_t>(ht::join(h)) != (high << 16 | low)) return "another float comes back";
    if (std::isinf(x)) return h.nearest == x ? nullptr : "infinity";
    // The two neighbours of x in bfloat16, the upper one in exact arithmetic even where bfloat16 has none.
    const double least = static_cast<double>(float_of(high, 0));
    const double step = std::fabs(static_cast<double>(float_of(high & 0x7f80, 0))) < 0x1p-126
                            ? 0x1p-133
                            : std::ldexp(1.0, static_cast<int>((high & 0x7f80) >> 7) - 134);
    const double up = least + std::copysign(step, std::signbit(x) ? -1.0 : 1.0);
    const double below = std::fabs(static_cast<double>(x) - least), above = std::fabs(up - static_cast<double>(x));
    const double want = below < above ? least : up;
    const double got = static_cast<double>(static_cast<float>(h.nearest));
    if (std::fabs(want) >= 0x1p128) return std::isinf(got) ? nullptr : "should be infinite";
    if (got != want) return "not the nearest";
    // The conversion differs at ties, from the even one of two neighbours.
    const bool differs = bfloat16(x).bits() != h.nearest.bits();
    return differs == (low == 0x8000 && high % 2 == 0) ? nullptr
                                                       : "differs from nearest even elsewhere than at its ties";
}

TEST_CASE("remainder: every upper half with lower halves around their thresholds splits and comes back") {
    for (std::uint32_t high = 0; high < 0x10000; ++high) {
        for (const std::uint32_t low : lows) {
            if (const char* problem = problem_of(high, low)) FAIL(high, " ", low, ": ", problem);
        }
    }
}

TEST_CASE("remainder: every float splits and comes back; one in 2^17 has another bfloat16 than its conversion gives" *
          doctest::skip()) {
    std::uint64_t differing = 0, all = 0;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; ++bits) {
        const auto high = static_cast<std::uint32_t>(bits >> 16), low = static_cast<std::uint32_t>(bits & 0xffff);
        if (const char* problem = problem_of(high, low)) FAIL(bits, ": ", problem);
        if (std::isnan(float_of(high, low))) continue;
        ++all;
        differing += bfloat16(float_of(high, low)).bits() != ht::halves_of(float_of(high, low)).nearest.bits();
    }
    CHECK(differing == 0x7f80);  // of each sign the even upper halves below infinity: 2^15 less 2^7
    CHECK(all == 0xff000002);
}

}  // namespace number_remainder_tests
