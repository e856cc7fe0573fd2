// SPDX-License-Identifier: MIT
/// \file
/// float to a narrower number in each rounding mode, for every type with number_traits.
///
/// | mode         | finite x between two numbers of T             | beyond T's largest number                   |
/// | ------------ | --------------------------------------------- | ------------------------------------------- |
/// | nearest_even | the nearer one: T(x)                          | infinity from its upper rounding limit on   |
/// | nearest_away | the nearer one, of two the larger in magnitude | infinity, likewise                          |
/// | toward_zero  | the one of smaller magnitude                  | the largest number                          |
/// | stochastic   | the upper one with its share of the distance  | infinity, likewise                          |
///
/// A type without infinity (float8_e4m3) has NaN in its place; saturate.hpp stops at the largest number.
///
/// What T holds stays what it is in every mode, infinities and NaNs (quietened) too. Integer arithmetic: the same bits
/// on the host and on a GPU.
///
///     ht::bfloat16 w = ht::round_stochastic<ht::bfloat16>(master, ht::random_bits(seed, step, tensor, index));
#pragma once

#include <cstdint>

#include <halftone/config.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/rounding.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// What is added to the bits that do not fit T, all of which `mask` has, before they are dropped.
template <rounding Mode, class Word>
HALFTONE_HD HALFTONE_INLINE constexpr Word added_to_rest(Word mask, std::uint32_t random) {
    if constexpr (Mode == rounding::nearest_away) {
        return (mask >> 1) + 1;
    } else {
        return Mode == rounding::stochastic ? random & mask : 0;
    }
}

/// A finite float's magnitude, moved down or up to a multiple of T's step there. The exponent is not bounded above:
/// that is T's own affair.
template <class T, rounding Mode>
HALFTONE_HD HALFTONE_INLINE constexpr std::uint32_t to_grid(std::uint32_t magnitude, std::uint32_t random) {
    using traits = number_traits<T>;
    constexpr int dropped = 24 - traits::significand_bits;
    constexpr int least_exponent = traits::min_exponent + 126;  // of T's normal numbers, biased as a float's
    if constexpr (least_exponent > 1) {
        const int exponent = static_cast<int>(magnitude >> 23);
        if (exponent < least_exponent) {  // the step no longer shrinks with x: count how often it fits
            std::uint64_t significand = exponent > 0 ? (magnitude & 0x7fffff) | 0x800000 : magnitude;
            int shift = dropped + least_exponent - (exponent > 0 ? exponent : 1);
            if (shift > 32) {  // random has 32 bits: a share below 2^-32 of a step is taken for none
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

/// `x` rounded to `T` in the given mode. Only rounding::stochastic reads `random`, 32 bits that are uniform and
/// independent from call to call: of them the low `24 - significand_bits` (16 for bfloat16, 13 for float16), more where
/// the result is subnormal. Over all values of these bits the mean of the results is exactly x. There are two
/// exceptions: below 2^-9 of T's least subnormal number the mean is low by less than 2^-32 of that number; and above
/// T's largest number infinity takes the place of the next power of two, and follows from there on whatever `random`
/// is.
template <number T, rounding Mode>
HALFTONE_HD HALFTONE_INLINE constexpr T round_to(float x, std::uint32_t random) {
    if constexpr (Mode == rounding::nearest_even || number_traits<T>::significand_bits >= 24) {
        return T(x);
    } else {
        const std::uint32_t bits = detail::bit_cast<std::uint32_t>(x);
        const std::uint32_t magnitude = bits & 0x7fffffff;
        if (magnitude >= 0x7f800000) return T(x);
        std::uint32_t result = detail::to_grid<T, Mode>(magnitude, random);
        if constexpr (Mode == rounding::toward_zero) {
            constexpr std::uint32_t largest =
                detail::bit_cast<std::uint32_t>(static_cast<float>(number_traits<T>::max));
            result = result < largest ? result : largest;
        }
        return T(detail::bit_cast<float>((bits & 0x80000000) | result));
    }
}

/// `x` rounded to `T`, to nearest even (tfloat32: ties away from zero, as its constructor) unless `Mode` says
/// otherwise.
template <number T, rounding Mode = rounding::nearest_even>
HALFTONE_HD HALFTONE_INLINE constexpr T round_to(float x) {
    static_assert(Mode != rounding::stochastic,
                  "halftone: round_to: stochastic rounding needs random bits; pass them as the second argument, "
                  "for example random_bits(seed, step, tensor, index)");
    return round_to<T, Mode>(x, 0);
}

/// A double would be rounded twice, once on its way into the argument: T(x) rounds it once.
template <number T, rounding Mode = rounding::nearest_even>
T round_to(double x) = delete;

/// `x` rounded to one of its two neighbours in `T`, so that the mean is x. See round_to for what `random` has to be.
template <number T>
HALFTONE_HD HALFTONE_INLINE constexpr T round_stochastic(float x, std::uint32_t random) {
    return round_to<T, rounding::stochastic>(x, random);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
