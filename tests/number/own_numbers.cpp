// SPDX-License-Identifier: MIT
/// \file
/// check_number_type finds nothing in number types that keep their traits, and what is wrong in others.
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <halftone/number.hpp>
#include <halftone/number/check_number_type.hpp>
#include <halftone/number/code_table.hpp>

#include "support/own_numbers.hpp"

namespace number_own_numbers_tests {

namespace ht = halftone;

enum class fault { cut_off, saturates, misses_nan, coarse, of_less_range };

/// A float16_e6m9 with one fault.
template <fault Fault>
class faulty {
  public:
    faulty() = default;
    explicit faulty(float x) : inner_(changed(x)) {}
    operator float() const { return inner_; }

  private:
    static float changed(float x) {
        constexpr auto largest = static_cast<float>(ht::number_traits<support::float16_e6m9>::max);
        if (Fault == fault::cut_off) return ht::bit_cast<float>(ht::bit_cast<std::uint32_t>(x) & 0xffffc000u);
        if (Fault == fault::saturates && !ht::is_nan(x)) return x > largest ? largest : x < -largest ? -largest : x;
        if (Fault == fault::misses_nan && ht::is_nan(x)) return 0;
        return x;
    }

    support::float16_e6m9 inner_;
};

}  // namespace number_own_numbers_tests

template <number_own_numbers_tests::fault Fault>
struct halftone::number_traits<number_own_numbers_tests::faulty<Fault>> : halftone::number_traits<support::float16_e6m9> {
    static constexpr const char* name = "faulty";
    static constexpr int significand_bits = Fault == number_own_numbers_tests::fault::coarse ? 9 : 10;
    static constexpr double max = Fault == number_own_numbers_tests::fault::of_less_range ? 0x1.ffp31 : 0x1.ffp32;
};

namespace number_own_numbers_tests {

template <fault Fault>
bool tells(const std::string& sentence) {
    const std::string told = ht::check_number_type<faulty<Fault>>();
    CAPTURE(told);
    CHECK(told.find(sentence) != std::string::npos);
    return told.find("faulty: ") == 0;
}

TEST_CASE("check_number_type: types that keep their traits") {
    CHECK(ht::check_number_type<support::float16_e6m9>() == "");
    CHECK(ht::check_number_type<support::log8>() == "");
    CHECK(ht::check_number_type<support::fixed16>() == "");
    CHECK(ht::check_number_type<support::fixed32>() == "");
    CHECK(ht::check_number_type<ht::float16>() == "");
    CHECK(ht::check_number_type<ht::bfloat16>() == "");
    CHECK(ht::check_number_type<ht::float8_e4m3>() == "");
    CHECK(ht::check_number_type<ht::float8_e5m2>() == "");
    CHECK(ht::check_number_type<float>() == "");
}

TEST_CASE("check_number_type: types that break theirs, by the first that does") {
    CHECK(tells<fault::cut_off>("is nearer"));
    CHECK(tells<fault::saturates>("inf converts to 8.57315738e+09; the traits promise NaN"));
    CHECK(tells<fault::misses_nan>("a NaN converts to a number"));
    CHECK(tells<fault::coarse>("which has more bits than significand_bits"));
    CHECK(tells<fault::of_less_range>("beyond max"));
}

template <class T>
double mean_of_rounding(float x) {
    double sum = 0;
    // The library reads the low bits, log8 the high ones.
    for (std::uint32_t i = 0; i < 1u << 16; ++i)
        sum += static_cast<double>(static_cast<float>(ht::round_stochastic<T>(x, i * 0x10001u)));
    return sum / 65536;
}

/// Multiples of 2^-21 up to almost 8: all of a float's bits.
class fixed24 {
  public:
    fixed24() = default;
    explicit fixed24(float x) {
        const double steps = static_cast<double>(x) * 0x1p21, most = 0xffffff;
        code_ = static_cast<std::int32_t>(steps > most    ? most
                                          : steps < -most ? -most
                                          : steps < 0     ? steps - 0.5
                                                          : steps + 0.5);
    }
    operator float() const { return static_cast<float>(code_) * 0x1p-21f; }

  private:
    std::int32_t code_;
};

}  // namespace number_own_numbers_tests

template <>
struct halftone::number_traits<number_own_numbers_tests::fixed24> : halftone::fixed_format<3, 21> {
    static constexpr const char* name = "fixed24";
};

namespace number_own_numbers_tests {

/// One byte, with a conversion that is no constant expression.
class run_time8 {
  public:
    run_time8() = default;
    explicit run_time8(float x) : inner_(x) {}
    operator float() const {
        const volatile float x = static_cast<float>(inner_);
        return x;
    }

  private:
    support::log8 inner_;
};

}  // namespace number_own_numbers_tests

template <>
struct halftone::number_traits<number_own_numbers_tests::run_time8> : halftone::number_traits<support::log8> {
    static constexpr const char* name = "run_time8";
};

namespace number_own_numbers_tests {

template <class T>
void widens_all_codes() {
    for (int code = 0; code < 256; ++code) {
        CAPTURE(code);
        const auto x = ht::bit_cast<T>(static_cast<std::uint8_t>(code));
        const float wide = ht::detail::widened(x), exact = static_cast<float>(x);
        CHECK(ht::bit_cast<std::uint32_t>(wide) == ht::bit_cast<std::uint32_t>(exact));
    }
}

TEST_CASE("one-byte types are widened by a table, if their conversion is a constant expression") {
    static_assert(ht::detail::has_code_table<support::log8> && !ht::detail::has_code_table<run_time8>);
    static_assert(!ht::detail::has_code_table<support::fixed16> && !ht::detail::has_code_table<ht::float8_e4m3>);
    widens_all_codes<support::log8>();
    widens_all_codes<run_time8>();
}

TEST_CASE(
    "a type that float does not hold is known as one, and a double becomes one and each other type in one rounding") {
    static_assert(ht::wide_number<support::fixed32> && !ht::wide_number<support::fixed16> &&
                  !ht::wide_number<support::log8>);
    CHECK(static_cast<double>(support::fixed32(20 + 0x1p-26)) == 20 + 0x1p-26);
    // Just above the middle of two numbers; as a float it would be the middle, and go to the even one.
    const double above = 1 + 0x1p-10 + 0x1p-40;
    CHECK(static_cast<float>(ht::detail::round_double<support::float16_e6m9>(above)) == 1 + 0x1p-9f);
    CHECK(ht::detail::round_double<ht::float16>(1 + 0x1p-11 + 0x1p-40) == 1 + 0x1p-10f);
    // 24 bits, which no other float than the nearest has: 4.5 + 0.9 steps of 2^-21.
    CHECK(static_cast<float>(ht::detail::round_double<fixed24>(4.5 + 1.9 * 0x1p-21)) == 4.5f + 0x1p-20f);
    CHECK(static_cast<float>(ht::detail::round_double<fixed24>(-4.5 - 1.9 * 0x1p-21)) == -4.5f - 0x1p-20f);
    CHECK(static_cast<float>(ht::detail::round_double<fixed24>(4.5 + 1.1 * 0x1p-21)) == 4.5f + 0x1p-21f);
    CHECK(static_cast<float>(ht::detail::round_double<fixed24>(4.5)) == 4.5f);
    CHECK(static_cast<float>(ht::detail::round_double<fixed24>(0x1p-22 * 1.01)) == 0x1p-21f);
    CHECK(static_cast<float>(ht::detail::round_double<fixed24>(1e300)) == 8 - 0x1p-21f);
    CHECK(ht::detail::round_double<float>(1 + 0x1p-24 + 0x1p-50) == 1 + 0x1p-23f);
}

TEST_CASE("round_stochastic: the mean of roundings to a user's own type is the number") {
    for (const float x : {0.3f, -0.3f, 1.7f, 7.1f, 0.001f, 0.0f}) {
        CAPTURE(x);
        CHECK(mean_of_rounding<support::float16_e6m9>(x) == doctest::Approx(static_cast<double>(x)).epsilon(1e-6));
        CHECK(mean_of_rounding<support::fixed16>(x) == doctest::Approx(static_cast<double>(x)).epsilon(1e-4));
        CHECK(mean_of_rounding<support::log8>(x) == doctest::Approx(static_cast<double>(x)).epsilon(1e-3));
    }
}

}  // namespace number_own_numbers_tests
