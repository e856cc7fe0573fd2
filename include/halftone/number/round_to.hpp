// SPDX-License-Identifier: MIT
/// \file
/// float to a narrower number in each rounding mode, for every type with number_traits.
///
/// | mode         | finite x between two numbers of T              | beyond T's largest number                   |
/// | ------------ | ---------------------------------------------- | ------------------------------------------- |
/// | nearest_even | the nearer one, as T(x)                        | infinity, from halfway to the next step on  |
/// | nearest_away | the nearer one; a tie goes away from zero      | infinity, likewise                          |
/// | toward_zero  | the one of smaller magnitude                   | the largest number                          |
/// | stochastic   | the upper one with probability (x - lower) / step | infinity, likewise                       |
///
/// A type without infinity (float8_e4m3) has NaN in its place; saturate.hpp stops at the largest number.
///
/// Numeric contract: a number that T holds exactly is unchanged in every mode, and so are infinities and NaNs (which
/// become
/// quiet). Only integer arithmetic is used: the bits are the same on the host and on a GPU.
///
///     ht::bfloat16 w = ht::round_stochastic<ht::bfloat16>(master, ht::random_bits(seed, step, tensor, index));
#pragma once

#include <concepts>
#include <cstdint>

#include <halftone/config.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/rounding.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Whether T's numbers are where to_grid puts them.
template <class T>
concept rounds_to_grid = number_traits<T>::ieee_spacing;

/// The number that is added before the bits that do not fit T are dropped; `mask` has all of these bits set.
template <rounding Mode, class Word>
HALFTONE_HD HALFTONE_INLINE constexpr Word added_to_rest(Word mask, std::uint32_t random) {
    if constexpr (Mode == rounding::nearest_away) {
        return (mask >> 1) + 1;
    } else {
        return Mode == rounding::stochastic ? random & mask : 0;
    }
}

/// A finite float's magnitude, rounded down or up to a multiple of T's step at that magnitude. Overflow is not handled
/// here: the caller handles results beyond T's largest number.
template <class T, rounding Mode>
HALFTONE_HD HALFTONE_INLINE constexpr std::uint32_t to_grid(std::uint32_t magnitude, std::uint32_t random) {
    using traits = number_traits<T>;
    constexpr int dropped = 24 - traits::significand_bits;
    constexpr int least_exponent = traits::min_exponent + 126;  // T's least normal exponent, with float's bias
    if constexpr (least_exponent > 1) {
        const int exponent = static_cast<int>(magnitude >> 23);
        if (exponent < least_exponent) {  // subnormal in T: the step is constant, so x is counted in steps
            std::uint64_t significand = exponent > 0 ? (magnitude & 0x7fffff) | 0x800000 : magnitude;
            int shift = dropped + least_exponent - (exponent > 0 ? exponent : 1);
            if (shift > 32) {  // a fraction below 2^-32 of a step counts as zero: random has 32 bits
                significand = shift < 56 ? significand >> (shift - 32) : 0;
                shift = 32;
            }
            const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
            const auto count = static_cast<float>((significand + added_to_rest<Mode>(mask, random)) >> shift);
            return bit_cast<std::uint32_t>(count * static_cast<float>(traits::min_subnormal));
        }
    }
    constexpr std::uint32_t mask = (std::uint32_t{1} << dropped) - 1;
    return (magnitude + added_to_rest<Mode>(mask, random)) & ~mask;
}

}  // namespace detail

/// Whether round_stochastic<T> works: T's numbers have the spacing of a binary format, or T has a function
/// `static T round_stochastic(float x, std::uint32_t random)`.
template <class T>
concept rounds_stochastically = number<T> &&(detail::rounds_to_grid<T> || requires(float x, std::uint32_t random) {
    { T::round_stochastic(x, random) } -> std::same_as<T>;
});

/// `x` rounded to `T` in the given mode. Only rounding::stochastic reads `random`: 32 uniform bits, independent from
/// call
/// to call. It uses the low `24 - significand_bits` of them (16 for bfloat16, 13 for float16), more where the result is
/// subnormal. Averaged over all values of these bits the result is exactly x, with two exceptions: below 2^-9 of T's
/// least subnormal number the mean is too low, by less than 2^-32 of that number; and above T's largest number infinity
/// takes the place of the next power of two, and is the result from there on whatever `random` is.
template <number T, rounding Mode>
HALFTONE_HD HALFTONE_INLINE constexpr T round_to(float x, std::uint32_t random) {
    if constexpr (Mode == rounding::nearest_even) {
        return T(x);
    } else if constexpr (!detail::rounds_to_grid<T>) {
        static_assert(Mode == rounding::stochastic && rounds_stochastically<T>,
                      "halftone: round_to: this number type's traits say ieee_spacing = false, so that the library does not "
                      "know its neighbouring numbers: round to nearest, or, for stochastic rounding, give the type a function "
                      "static T round_stochastic(float x, std::uint32_t random)");
        return T::round_stochastic(x, random);
    } else if constexpr (number_traits<T>::significand_bits >= 24) {
        return T(x);
    } else {
        const std::uint32_t bits = bit_cast<std::uint32_t>(x);
        const std::uint32_t magnitude = bits & 0x7fffffff;
        if (magnitude >= 0x7f800000) return T(x);
        std::uint32_t result = detail::to_grid<T, Mode>(magnitude, random);
        if constexpr (Mode == rounding::toward_zero) {
            constexpr std::uint32_t largest =
                bit_cast<std::uint32_t>(static_cast<float>(number_traits<T>::max));
            result = result < largest ? result : largest;
        }
        return T(bit_cast<float>((bits & 0x80000000) | result));
    }
}

/// `x` rounded to `T`, by default to nearest even (tfloat32: ties away from zero, as its constructor does).
template <number T, rounding Mode = rounding::nearest_even>
HALFTONE_HD HALFTONE_INLINE constexpr T round_to(float x) {
    static_assert(Mode != rounding::stochastic,
                  "halftone: round_to: stochastic rounding needs random bits; pass them as the second argument, "
                  "for example random_bits(seed, step, tensor, index)");
    return round_to<T, Mode>(x, 0);
}

namespace detail {

/// A double rounded once to T, in any deterministic mode where T has at most 22 significant bits: the float that is rounded to odd
/// has all that the second rounding asks for (bits.hpp). Other types take the nearest number: float and a wide_number from the
/// double, an own type of 23 or 24 bits, or of unknown spacing, from the floats next to it.
template <number T, rounding Mode = rounding::nearest_even>
HALFTONE_HD HALFTONE_INLINE constexpr T round_double(double x) {
    static_assert(Mode != rounding::stochastic,
                  "halftone: copies of parameters in a type that float does not hold are rounded to nearest, and not "
                  "stochastically (copy_rounding of the policy)");
    if constexpr (std::same_as<T, float> || std::same_as<T, double> || wide_number<T>) {
        return static_cast<T>(x);
    } else if constexpr (number_traits<T>::significand_bits <= 22) {
        return halftone::round_to<T, Mode>(bit_cast<float>(float_bits_odd(x)));
    } else {
        const std::uint32_t odd = float_bits_odd(x);
        const float near = bit_cast<float>(odd);
        if (!(x != static_cast<double>(near)) || (odd & 0x7fffffffu) >= 0x7f7fffffu) return T(near);
        // The last bit was set because x is no float: x lies between this float and one of its neighbours.
        const bool is_beyond = x < 0 ? x < static_cast<double>(near) : x > static_cast<double>(near);
        const T a = T(near), b = T(bit_cast<float>(is_beyond ? odd + 1 : odd - 1));
        const double to_a = x - static_cast<double>(a), to_b = x - static_cast<double>(b);
        return (to_a < 0 ? -to_a : to_a) <= (to_b < 0 ? -to_b : to_b) ? a : b;
    }
}

}  // namespace detail

/// Deleted: a double would be rounded twice, first to the float argument. T(x) rounds it once.
template <number T, rounding Mode = rounding::nearest_even>
T round_to(double x) = delete;

/// `x` rounded to one of its two neighbours in `T`, so that the mean is x. round_to says what `random` has to be.
template <number T>
HALFTONE_HD HALFTONE_INLINE constexpr T round_stochastic(float x, std::uint32_t random) {
    return round_to<T, rounding::stochastic>(x, random);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
