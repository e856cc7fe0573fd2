// SPDX-License-Identifier: MIT
/// \file
/// Division that rounds up: small numbers by the definition, types of results, and the ends of the types' ranges.
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include <doctest/doctest.h>

#include <halftone/number/integer.hpp>

namespace number_integer_tests {

using halftone::detail::ceil_div;
using halftone::detail::round_up;

static_assert(ceil_div(0, 64) == 0 && ceil_div(1, 64) == 1 && ceil_div(64, 64) == 1 && ceil_div(65, 64) == 2);
static_assert(round_up(0, 64) == 0 && round_up(1, 64) == 64 && round_up(64, 64) == 64 && round_up(65, 64) == 128);

// The result has the type that x + y has: short operands are promoted, and a wider one decides.
static_assert(std::same_as<decltype(ceil_div(1, 2)), int> && std::same_as<decltype(round_up(1, 2)), int>);
static_assert(std::same_as<decltype(ceil_div(std::int64_t{1}, 2)), std::int64_t>);
static_assert(std::same_as<decltype(ceil_div(1, std::int64_t{2})), std::int64_t>);
static_assert(std::same_as<decltype(ceil_div(std::int8_t{1}, std::int8_t{2})), int>);
static_assert(std::same_as<decltype(round_up(std::uint32_t{1}, std::size_t{2})), std::size_t>);

template <class X, class Y>
concept divides = requires(X x, Y y) { ceil_div(x, y); };
template <class X, class Y>
concept rounds = requires(X x, Y y) { round_up(x, y); };
static_assert(divides<int, std::int64_t> && divides<unsigned, std::size_t>);
static_assert(!divides<int, std::size_t> && !divides<std::size_t, int> && !rounds<std::int64_t, std::size_t>);
static_assert(!divides<double, int> && !rounds<float, float>);

template <std::integral T>
void check_small_numbers() {
    for (T y = 1; y < 20; ++y) {
        for (T x = 0; x < 100; ++x) {
            const auto pieces = ceil_div(x, y), multiple = round_up(x, y);
            CHECK(pieces * y >= x);
            CHECK((pieces == 0 || (pieces - 1) * y < x));
            CHECK(multiple == pieces * y);
        }
    }
}

TEST_CASE_TEMPLATE("integers: small numbers are divided as the definition says", T, int, std::int64_t, std::uint32_t, std::size_t,
                   std::int8_t, std::uint8_t) {
    check_small_numbers<T>();
}

TEST_CASE_TEMPLATE("integers: the largest numbers without an overflow", T, int, std::int64_t, std::uint32_t, std::size_t) {
    constexpr T most = std::numeric_limits<T>::max();
    CHECK(ceil_div(most, T{1}) == most);
    CHECK(round_up(most, T{1}) == most);
    for (T y : {T{2}, T{3}, T{64}, T{1000}}) {
        const T x = most - (y - 1);  // x + y - 1 is the largest number
        CHECK(ceil_div(x, y) == x / y + (x % y != 0 ? 1 : 0));
        CHECK(round_up(x, y) == most / y * y);
    }
    CHECK(ceil_div(T{1}, most) == 1);
    CHECK(ceil_div(T{0}, most) == 0);
    CHECK(round_up(T{1}, most) == most);
}

TEST_CASE_TEMPLATE("integers: sizes beyond the largest multiple become that multiple, and never a small number", T, std::uint32_t,
                   std::size_t) {
    constexpr T most = std::numeric_limits<T>::max();
    for (T y : {T{2}, T{64}, T{1000}, T{1} << 20, most}) {
        for (T less : {T{0}, T{1}}) CHECK(round_up(static_cast<T>(most - less), y) == most / y * y);
    }
    CHECK(round_up(most, T{64}) == most - 63);
    CHECK(round_up(static_cast<T>(most - 63), T{64}) == most - 63);
}

}  // namespace number_integer_tests
