// SPDX-License-Identifier: MIT
/// \file
/// A test of a number type of your own: whether its conversions keep what its traits say.
///
///     CHECK(ht::check_number_type<my_float16>() == "");
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include <halftone/config.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/round_to.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Tries a number type's codes and conversions. Each test gives a sentence about the first failure, or an empty string.
template <number T>
class number_type_check {
    using traits = number_traits<T>;
    using real = std::conditional_t<wide_number<T>, double, float>;
    using real_bits = unsigned_of_size<sizeof(real)>;

  public:
    std::string run() {
        for (const auto test : {&number_type_check::read_codes, &number_type_check::ends, &number_type_check::round_values,
                                &number_type_check::special_values, &number_type_check::round_at_random}) {
            std::string failure = (this->*test)();
            if (!failure.empty()) return std::string(traits::name) + ": " + failure;
        }
        return {};
    }

  private:
    static constexpr int bits = 8 * static_cast<int>(sizeof(T));
    static constexpr bool has_all_codes = bits <= 16;
    static constexpr std::uint32_t tried = std::uint32_t{1} << (has_all_codes ? bits : 20);

    static std::string text(double x) {
        char written[40];
        std::snprintf(written, sizeof written, "%.9g", x);
        return written;
    }
    static std::string text_of_code(std::uint32_t code) {
        char written[20];
        std::snprintf(written, sizeof written, "0x%0*x", bits / 4, static_cast<unsigned>(code));
        return "code " + std::string(written);
    }
    static T from_code(std::uint32_t code) {
        const auto natural = static_cast<unsigned_of_size<sizeof(T)>>(code);
        T x;
        std::memcpy(static_cast<void*>(&x), &natural, sizeof x);
        return x;
    }
    /// The i-th code that is tried: all of them, or 2^20 whose low bits vary, too.
    static std::uint32_t code(std::uint32_t i) { return has_all_codes ? i : i << 12 | (i * 0x9e3779b9u >> 20); }
    static double value(T x) { return static_cast<double>(static_cast<real>(x)); }
    static double rounded(double x) { return value(T(static_cast<real>(x))); }

    /// Every code is a number within the traits' range, or a NaN or an infinity that the traits allow, and survives a
    /// conversion to float and back.
    std::string read_codes() {
        for (std::uint32_t i = 0; i < tried; ++i) {
            const real x = static_cast<real>(from_code(code(i)));
            const std::string here = text_of_code(code(i));
            if (is_nan(x)) {
                if (!traits::has_nan) return here + " is NaN, and the traits say has_nan = false";
                continue;
            }
            if (is_inf(x)) {
                if (!traits::has_infinity) return here + " is infinite, and the traits say has_infinity = false";
                continue;
            }
            const double v = static_cast<double>(x), magnitude = v < 0 ? -v : v;
            if (magnitude > traits::max) return here + " is " + text(v) + ", beyond max, " + text(traits::max);
            if (v != 0 && magnitude < traits::min_subnormal)
                return here + " is " + text(v) + ", below min_subnormal, " + text(traits::min_subnormal);
            if (rounded(v) != v) return here + " is " + text(v) + ", which converts to " + text(rounded(v));
            if constexpr (traits::ieee_spacing) {
                if (!is_spaced_as_ieee(x)) return here + " is " + text(v) + ", which has more bits than significand_bits";
            }
            if (has_all_codes && v >= 0) numbers_.insert(static_cast<float>(x));
        }
        return {};
    }
    static bool is_spaced_as_ieee(real x) {
        if constexpr (wide_number<T>) {
            int exponent = 0;
            std::frexp(x, &exponent);
            const int steps =
                traits::significand_bits - (exponent > traits::min_exponent ? exponent : traits::min_exponent);
            return std::ldexp(x, steps) == std::floor(std::ldexp(x, steps));
        } else if constexpr (traits::significand_bits >= 24) {
            return true;
        } else {
            const std::uint32_t magnitude = bit_cast<std::uint32_t>(x) & 0x7fffffffu;
            return to_grid<T, rounding::toward_zero>(magnitude, 0) == magnitude;
        }
    }

    /// The largest and the least number are there.
    std::string ends() {
        for (const double end : {traits::max, traits::min_subnormal}) {
            if (rounded(end) != end || rounded(-end) != -end)
                return "the traits name " + text(end) + ", and " + text(-end) + ", which convert to " + text(rounded(end)) +
                       " and " + text(rounded(-end));
        }
        if (rounded(0) != 0) return "0 converts to " + text(rounded(0));
        return {};
    }

    /// Numbers between the type's are rounded to the nearest, and within the traits' bound.
    std::string round_values() {
        real before = static_cast<real>(-traits::max);
        double image_before = rounded(static_cast<double>(before));
        constexpr std::uint32_t steps = 1u << 20;
        const std::uint64_t most = bit_cast<real_bits>(static_cast<real>(traits::max));
        for (std::uint32_t i = 0; i < 2 * steps; ++i) {
            const std::uint32_t at = i < steps ? steps - i : i - steps;
            const auto magnitude = static_cast<real_bits>(most / steps * at + most % steps * at / steps);
            const real x = (i < steps ? -1 : 1) * bit_cast<real>(magnitude);
            std::string failure = round_one(x);
            if (!failure.empty()) return failure;
            const double image = rounded(static_cast<double>(x));
            if (image < image_before)
                return text(static_cast<double>(before)) + " converts to " + text(image_before) + ", and " +
                       text(static_cast<double>(x)) + ", which is larger, to " + text(image);
            before = x;
            image_before = image;
        }
        const float* below = nullptr;
        for (const float& number : numbers_) {
            const float* lower = std::exchange(below, &number);
            if (lower == nullptr) continue;
            const double middle = (static_cast<double>(*lower) + static_cast<double>(number)) / 2;
            for (const double factor : {1 - 0x1p-22, 1.0, 1 + 0x1p-22}) {
                const auto x = static_cast<real>(middle * factor);
                std::string failure = round_one(x);
                if (failure.empty()) failure = round_one(-x);
                if (!failure.empty()) return failure;
            }
        }
        return {};
    }
    std::string round_one(real x) {
        const double exact = static_cast<double>(x), image = rounded(exact), error = distance(exact, image);
        const double bound = traits::unit_roundoff * (exact < 0 ? -exact : exact) + traits::min_subnormal / 2;
        if (!(error <= bound))
            return text(exact) + " converts to " + text(image) + ", which is off by " + text(error) +
                   ", more than the traits' unit_roundoff and min_subnormal allow, " + text(bound);
        if (has_all_codes) {
            const double nearest = nearest_number(static_cast<float>(exact < 0 ? -x : x));
            if (error > distance(nearest, exact < 0 ? -exact : exact))
                return text(exact) + " converts to " + text(image) + ", and " + text(exact < 0 ? -nearest : nearest) +
                       " is nearer";
        }
        return {};
    }
    static double distance(double a, double b) { return a < b ? b - a : a - b; }
    double nearest_number(float magnitude) const {
        const auto above = numbers_.lower_bound(magnitude);
        if (above == numbers_.end()) return static_cast<double>(*numbers_.rbegin());
        if (above == numbers_.begin()) return static_cast<double>(*above);
        const double x = static_cast<double>(magnitude), upper = static_cast<double>(*above),
                     lower = static_cast<double>(*std::prev(above));
        return upper - x < x - lower ? upper : lower;
    }

    /// What becomes of infinities, NaNs and numbers far beyond the largest.
    std::string special_values() {
        const real infinity = static_cast<real>(bit_cast<float>(0x7f800000u)),
                   nan = static_cast<real>(bit_cast<float>(0x7fc00000u));
        for (const real x : {infinity, static_cast<real>(0x1.fffffep127f)}) {
            if (x < infinity && traits::max > 0x1p126) continue;
            for (const real sign : {real{1}, real{-1}}) {
                const real image = static_cast<real>(T(sign * x));
                const bool is_right = traits::has_infinity ? is_inf(image) && (image < 0) == (sign < 0)
                                      : traits::has_nan    ? is_nan(image)
                                                           : image == sign * static_cast<real>(traits::max);
                if (!is_right)
                    return text(static_cast<double>(sign * x)) + " converts to " + text(static_cast<double>(image)) +
                           "; the traits promise " +
                           (traits::has_infinity ? "infinity" : traits::has_nan ? "NaN" : "the largest number");
            }
        }
        if (traits::has_nan && !is_nan(static_cast<real>(T(nan)))) return "a NaN converts to a number";
        if (!is_finite(static_cast<real>(T(nan))) && !traits::has_nan)
            return "a NaN converts to a number that is not finite";
        return {};
    }

    /// Stochastic rounding gives one of the two neighbours.
    std::string round_at_random() {
        if constexpr (has_all_codes && rounds_stochastically<T>) {
            const float* below = nullptr;
            for (const float& number : numbers_) {
                const float* before = std::exchange(below, &number);
                if (before == nullptr) continue;
                const double lower = static_cast<double>(*before), upper = static_cast<double>(number);
                for (const std::uint32_t random : {0u, 0x9e3779b9u, 0xffffffffu}) {
                    const auto x = static_cast<float>(lower + (upper - lower) / 4);
                    const double image = value(round_stochastic<T>(x, random));
                    if (image != lower && image != upper)
                        return text(static_cast<double>(x)) + " is rounded stochastically to " + text(image) +
                               ", which is no neighbour";
                }
            }
        }
        return {};
    }

    std::set<float> numbers_;  // of a type whose codes are all tried: those that are not negative
};

}  // namespace detail

/// Whether the conversions of a number type keep what number_traits<T> says: an empty string, or a sentence about the first
/// failure. Tries all codes of types of up to 16 bits and 2^20 of wider ones, 2^21 floats of every magnitude that the
/// type has, the middles between neighbours, infinities and NaNs, and rounding at random. Takes less than a second.
template <number T>
std::string check_number_type() {
    return detail::number_type_check<T>().run();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
