// SPDX-License-Identifier: MIT
/// \file
/// Numbers as sums of bfloat16, compared piece by piece with their definition by frexp and floor: every float16, floats of
/// every exponent, rounding boundaries, limits; in the suite "full" (run it with --no-skip) one float of 61.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/number.hpp>

#include "oracle.hpp"

namespace number_split_tests {

namespace ht = halftone;
using ht::bfloat16, ht::float16;
using two = ht::split<bfloat16, 2>;
using three = ht::split<bfloat16, 3>;

static_assert(sizeof(two) == 4 && sizeof(three) == 6 && two::pieces == 2 && three::pieces == 3);
static_assert(std::is_trivial_v<two> && std::is_standard_layout_v<three>);
static_assert(!std::is_convertible_v<float, two> && std::is_convertible_v<two, float>);
static_assert(std::is_same_v<decltype(three{} * three{}), float> && std::is_same_v<decltype(-three{}), three>);
static_assert(ht::number<two> && ht::number<three> && !ht::eight_bit<two> && !ht::sixteen_bit<two>);
static_assert(std::is_same_v<ht::storage_of<two>, float> && std::is_same_v<ht::storage_of<three>, float>);
static_assert(ht::unit_roundoff<two> == 0x1p-17 && ht::unit_roundoff<three> == ht::unit_roundoff<float>);
static_assert(three(1.0f / 3) == 1.0f / 3 && three(3) == 3 && three(-2LL) == -2 && three(0.1) == 0.1f);
static_assert(two(bfloat16(3)) == 3 && two(float16(0x1.ffcp15f)) == 0x1.ffcp15f && two(1 + 0x1p-16f) == 1 + 0x1p-16f);
// Ties go away from zero, in the first piece and in the last.
static_assert(two(1 + 0x1p-8f).piece(0) == 1 + 0x1p-7f && two(1 + 0x1p-8f).piece(1) == -0x1p-8f);
static_assert(two(1 + 0x1p-9f + 0x1p-17f) == 1 + 0x1p-9f + 0x1p-16f && two(-1 - 0x1p-9f - 0x1p-17f) < -1 - 0x1p-9f);
// All products of pairs, or the six largest of nine.
static_assert(two::takes(0, 0) && two::takes(0, 1) && two::takes(1, 0) && two::takes(1, 1));
static_assert(three::takes(0, 2) && three::takes(1, 1) && three::takes(2, 0) && !three::takes(1, 2) &&
              !three::takes(2, 1) && !three::takes(2, 2));

/// x rounded to a multiple of bfloat16's step there, ties away from zero.
double nearest(double x) {
    if (x == 0) return x;
    int exponent = 0;
    std::frexp(x, &exponent);
    const int step = std::max(exponent, -125) - 8;
    return std::copysign(std::ldexp(std::floor(std::ldexp(std::fabs(x), -step) + 0.5), step), x);
}

constexpr double largest_piece = 0x1.fep127;

/// What is wrong with the pieces of a finite float; nullptr: nothing.
template <int N>
const char* wrong_with(const ht::split<bfloat16, N>& s, float x) {
    double rest = static_cast<double>(x);
    for (int i = 0; i < N; ++i) {
        const double got = static_cast<double>(s.piece(i));
        double want = nearest(rest);
        if (std::fabs(want) > largest_piece) want = std::copysign(largest_piece, rest);
        if (N == 2 && i == 1 && std::fabs(static_cast<double>(x)) > largest_piece)
            want = std::copysign(std::min(std::fabs(want), 0x1.fep119), want);
        if (got != want) return "a piece";
        rest -= got;
    }
    const double magnitude = std::fabs(static_cast<double>(x)), sum = static_cast<double>(static_cast<float>(s));
    if (sum != static_cast<double>(x) - rest) return "the sum of its pieces";
    if (N == 3 && magnitude >= 0x1p-110 && rest != 0) return "its rest, which is not zero";
    if (N == 3 && std::fabs(rest) > 0x1p-134) return "its rest";
    if (N == 2 && std::fabs(rest) > std::max((magnitude < 0x1.ffp127 ? 0x1p-17 : 0x1p-16) * magnitude, 0x1p-134))
        return "its rest";
    for (int i = 1; i < N; ++i) {
        if (magnitude >= 0x1p-110 &&
            std::fabs(static_cast<double>(s.piece(i))) > std::ldexp(0x1.01p0 * magnitude, 1 - 9 * i))
            return "a large piece";
        // Values that a unit which flushes subnormal numbers takes for zero.
        if (magnitude >= 0x1p-103 && s.piece(i) != 0 && std::fabs(static_cast<double>(s.piece(i))) < 0x1p-126 && N == 3)
            return "a subnormal piece";
    }
    return nullptr;
}

struct findings {
    std::uint64_t checked = 0, wrong = 0;
    float first = 0;
    const char* what = "nothing";

    template <int N>
    void check(float x) {
        ++checked;
        const char* found = wrong_with(ht::split<bfloat16, N>(x), x);
        if (found != nullptr && wrong++ == 0) first = x, what = found;
    }
    void check(std::uint32_t bits) {
        if ((bits & 0x7fffffff) >= 0x7f800000) return;
        check<2>(oracle::as_float(bits));
        check<3>(oracle::as_float(bits));
    }
};
#define CHECK_FINDINGS(f)                                                                                            \
    CHECK_MESSAGE(((f).wrong == 0 && (f).checked > 0), (f).wrong, " of ", (f).checked, " are wrong; of ", (f).first, \
                  " ", (f).what)

TEST_CASE("split: two pieces hold every float16") {
    std::uint64_t wrong = 0, subnormal = 0;
    for (int h = 0; h < 65536; ++h) {
        const float16 x = float16::from_bits(static_cast<std::uint16_t>(h));
        const float wide = x;
        const two s(wide);
        if (ht::is_nan(x)) {
            wrong += ht::is_nan(s.piece(0)) && s.piece(1) == 0 ? 0 : 1;
            continue;
        }
        wrong += static_cast<float>(s) == wide && two(x).piece(0) == s.piece(0) ? 0 : 1;
        if (ht::is_inf(x)) wrong += s.piece(0) == wide && s.piece(1) == 0 ? 0 : 1;
        subnormal += s.piece(1) != 0 && std::fabs(static_cast<double>(s.piece(1))) < 0x1p-126 ? 1 : 0;
    }
    CHECK(wrong == 0);
    CHECK(subnormal == 0);
}

TEST_CASE("split: floats of every exponent") {
    findings all;
    for (std::uint32_t high = 0; high < 65536; ++high) {
        for (const std::uint32_t low : {0u, 1u, 0x7fu, 0x80u, 0x81u, 0xffu, 0x100u, 0x7fffu, 0x8000u, 0x8001u, 0x80ffu,
                                        0x7f80u, 0x7f7fu, 0xff00u, 0xff7fu, 0xff80u, 0xffffu})
            all.check(high << 16 | low);
    }
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 9973)
        all.check(static_cast<std::uint32_t>(bits));
    CHECK_FINDINGS(all);
}

TEST_CASE("split: one float of 61" * doctest::skip()) {
    findings all;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 61) all.check(static_cast<std::uint32_t>(bits));
    CHECK_FINDINGS(all);
}

TEST_CASE_TEMPLATE("split: infinities and NaNs are the first piece", T, two, three) {
    for (const float x : {HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::quiet_NaN(), oracle::as_float(0x7f800001),
                          oracle::as_float(0x7fffffff), oracle::as_float(0xffffffff)}) {
        const T s(x);
        CHECK(ht::is_nan(s.piece(0)) == ht::is_nan(x));
        CHECK((ht::is_nan(x) || s.piece(0) == x));
        for (int i = 1; i < T::pieces; ++i) CHECK(s.piece(i).bits() == 0);
        CHECK(ht::is_nan(static_cast<float>(s)) == ht::is_nan(x));
        CHECK((ht::is_nan(x) || static_cast<float>(-s) == -x));
    }
    CHECK(oracle::as_bits(T(-0.0f)) == 0x80000000);
    T sum(1.0f);
    sum += 0x1p-16f;
    CHECK(sum == 1 + 0x1p-16f);
}

TEST_CASE_TEMPLATE("split: numeric_limits", T, two, three) {
    using limits = std::numeric_limits<T>;
    using traits = ht::number_traits<T>;
    CHECK(limits::digits == traits::significand_bits);
    CHECK(limits::digits == (T::pieces == 2 ? 17 : 24));
    CHECK(limits::min_exponent == traits::min_exponent);
    CHECK(limits::max_exponent == traits::max_exponent);
    CHECK(traits::max == static_cast<double>(limits::max()));
    CHECK(-traits::max == static_cast<double>(limits::lowest()));
    CHECK(traits::min_normal == static_cast<double>(limits::min()));
    CHECK(traits::min_subnormal == static_cast<double>(limits::denorm_min()));
    CHECK(traits::unit_roundoff == static_cast<double>(limits::epsilon()) / 2);
    CHECK(limits::round_error() == 0.5);
    CHECK(limits::infinity() == HUGE_VALF);
    CHECK(ht::is_nan(static_cast<float>(limits::quiet_NaN())));
    CHECK(limits::digits10 == std::floor((limits::digits - 1) * std::log10(2)));
    CHECK(limits::max_digits10 == std::ceil(limits::digits * std::log10(2) + 1));
    CHECK(static_cast<float>(T(std::numeric_limits<float>::max())) == static_cast<float>(limits::max()));
    CHECK(traits::name == std::string(T::pieces == 2 ? "split<bfloat16, 2>" : "split<bfloat16, 3>"));
    CHECK(!traits::ieee_encoding);
}

/// What `dropped`, `first` and `later` bound, of the pieces of random numbers.
template <class T>
void products_of_pieces() {
    std::uint32_t state = 1;
    double dropped = 0, first = 0, later = 0;
    const auto operand = [&] {
        state = state * 1664525u + 1013904223u;
        // Every other time one whose pieces are as large as they can be: 1 + 2^-8 - 2^-17 and the like.
        const std::uint32_t bits = (state >> 16 & 1) != 0 ? state >> 9 : 0x7fc0 | (state >> 30);
        return T(oracle::as_float(0x3f800000 | (bits & 0x7fffff)));
    };
    for (int n = 0; n < 1 << 18; ++n) {
        const T a = operand(), b = operand();
        const double whole = static_cast<double>(static_cast<float>(a)) * static_cast<double>(static_cast<float>(b));
        double left = 0, taken = 0;
        for (int i = 0; i < T::pieces; ++i) {
            for (int j = 0; j < T::pieces; ++j) {
                const double product = static_cast<double>(a.piece(i)) * static_cast<double>(b.piece(j));
                if (!T::takes(i, j)) left += product;
                if (T::takes(i, j) && i + j > 0) taken += std::fabs(product);
            }
        }
        dropped = std::max(dropped, std::fabs(left / whole));
        later = std::max(later, taken / whole);
        first = std::max(first, static_cast<double>(a.piece(0)) * static_cast<double>(b.piece(0)) / whole);
    }
    CHECK(dropped <= T::dropped);
    CHECK(first <= T::first);
    CHECK(later <= T::later);
    // And the bounds are tight.
    CHECK(dropped >= 0.9 * T::dropped);
    CHECK(first >= 0.98 * T::first);
    CHECK(later >= 0.9 * T::later);
}
TEST_CASE("split: the bounds of products of pieces") {
    SUBCASE("two") { products_of_pieces<two>(); }
    SUBCASE("three") { products_of_pieces<three>(); }
}

}  // namespace number_split_tests
