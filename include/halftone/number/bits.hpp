// SPDX-License-Identifier: MIT
/// \file
/// Functions on the bit patterns of numbers, from which the conversions of this folder are built. They use integer
/// arithmetic only, so that neither -ffast-math nor a processor that flushes subnormals changes a result.
///
///     detail::float_bits_odd(0.1)     // 0.1 is between two floats: the bits of the one whose last bit is one
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// std::bit_cast, also for GPU code, as the conversions of a number type of your own need it. The argument is passed by
/// reference: a float passed by value may be assumed finite by a compiler under -ffinite-math-only.
template <class To, class From>
HALFTONE_HD HALFTONE_INLINE constexpr To bit_cast(const From& from) {
    return __builtin_bit_cast(To, from);
}

namespace detail {

/// The unsigned integer of 1, 2, 4 or 8 bytes.
template <std::size_t Bytes>
using unsigned_of_size = std::conditional_t<
    Bytes == 1, std::uint8_t,
    std::conditional_t<Bytes == 2, std::uint16_t, std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;

/// The arithmetic types that GPU code has: all but long double.
template <class T>
concept device_arithmetic = std::is_arithmetic_v<T> && !std::same_as<T, long double>;

/// 2^exponent, for exponents from -1074 (double's least subnormal number) to 1023.
HALFTONE_HD constexpr double power_of_two(int exponent) {
    const std::uint64_t bits =
        exponent >= -1022 ? static_cast<std::uint64_t>(exponent + 1023) << 52 : std::uint64_t{1} << (exponent + 1074);
    return bit_cast<double>(bits);
}

/// The bits of `x` as a float, rounded to odd: x itself where a float holds it, otherwise that of the two neighbouring
/// floats
/// whose last bit is one. Rounding the result again, to any type of at most 22 significant bits and in any mode, gives
/// what
/// rounding x directly gives, because the odd last bit tells "a little more than half" from "exactly half" (Boldo and
/// Melquiond, "When double rounding is odd", 2005). A NaN becomes quiet and keeps the top bits of its payload.
HALFTONE_HD constexpr std::uint32_t float_bits_odd(double x) {
    const std::uint64_t bits = bit_cast<std::uint64_t>(x);
    const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 32) & 0x80000000u;
    const std::uint64_t fraction = bits & 0xfffffffffffffu;
    const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
    const int float_exponent = exponent - 1023 + 127;
    if (exponent == 0x7ff) {
        const std::uint32_t payload = fraction != 0 ? 0x400000u | static_cast<std::uint32_t>(fraction >> 29) : 0;
        return sign | 0x7f800000u | payload;
    }
    if (float_exponent > 254) return sign | 0x7f7fffffu;  // the largest float, whose last bit is one
    if (float_exponent > 0) {
        const std::uint32_t rest = (fraction & 0x1fffffffu) != 0 ? 1 : 0;
        return sign | (static_cast<std::uint32_t>(float_exponent) << 23) | static_cast<std::uint32_t>(fraction >> 29) |
               rest;
    }
    const std::uint64_t significand = exponent > 0 ? fraction | (std::uint64_t{1} << 52) : fraction;
    const int shift = 30 - float_exponent < 63 ? 30 - float_exponent : 63;
    const std::uint32_t rest = (significand & ((std::uint64_t{1} << shift) - 1)) != 0 ? 1 : 0;
    return sign | static_cast<std::uint32_t>(significand >> shift) | rest;
}

HALFTONE_HD constexpr std::uint32_t float_bits_odd(float x) { return bit_cast<std::uint32_t>(x); }

/// For long double where it is wider than double: rounded to odd twice (to double, then to float) equals rounding to
/// odd once.
constexpr std::uint32_t float_bits_odd(long double x) {
    const auto nearest = static_cast<double>(x);
    std::uint64_t bits = bit_cast<std::uint64_t>(nearest);
    const std::uint64_t magnitude = bits & 0x7fffffffffffffffu;
    if (magnitude > 0x7ff0000000000000u || x == static_cast<long double>(nearest)) return float_bits_odd(nearest);
    const bool grown = bits >> 63 != 0 ? static_cast<long double>(nearest) < x : static_cast<long double>(nearest) > x;
    bits = (bits - (grown ? 1 : 0)) | 1;
    return float_bits_odd(bit_cast<double>(bits));
}

template <std::integral Integer>
HALFTONE_HD HALFTONE_INLINE constexpr std::uint32_t float_bits_odd(Integer x) {
    if constexpr (sizeof(Integer) < 8) {
        return float_bits_odd(static_cast<double>(x));
    } else {
        auto magnitude = static_cast<std::make_unsigned_t<Integer>>(x);
        double unit = 1;
        if constexpr (std::is_signed_v<Integer>) {
            if (x < 0) {
                magnitude = 0 - magnitude;
                unit = -1;
            }
        }
        while (magnitude >> 53 != 0) {  // rounds to odd, bit by bit, until a double holds the magnitude
            magnitude = (magnitude >> 11) | ((magnitude & 0x7ff) != 0 ? 1 : 0);
            unit *= 2048;
        }
        return float_bits_odd(static_cast<double>(magnitude) * unit);
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
