// SPDX-License-Identifier: MIT
/// \file
/// float16, IEEE 754's binary16: 1 sign, 5 exponent and 10 fraction bits. It rounds with a relative error of at most
/// 2^-11,
/// but its range is short (6e-8 to 65504), so gradients kept in it need a loss scale.
///
/// Numeric contract: conversion from any arithmetic type rounds once, to nearest even, with the same bits as the
/// instruction
/// VCVTPS2PH. Values beyond the range become infinity, subnormal numbers are kept, a NaN becomes quiet and keeps the
/// top
/// bits of its payload (in code for a GPU: any NaN). Conversion to float is exact. Arithmetic is float's; rounding the
/// float
/// result of +, -, * or / back to float16 gives the correctly rounded result, since a float has 2 * 11 + 2 bits
/// (Figueroa,
/// "When is double rounding innocuous?", 1995).
///
///     ht::float16 a{0.1};             // 0.0999755859375
///     float b = a * a;                // exact in float
///     a += 1;                         // computed in float, rounded once
#pragma once

#include <concepts>
#include <cstdint>

#include <halftone/config.hpp>
#include <halftone/number/arithmetic.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/limits.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// float to float16, bit pattern to bit pattern; in code for a GPU one instruction.
HALFTONE_HD constexpr std::uint16_t float16_from_float(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        std::uint16_t result = 0;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(bit_cast<float>(bits)));
        return result;
    }
#endif
    const std::uint32_t sign = (bits >> 16) & 0x8000;
    const std::uint32_t magnitude = bits & 0x7fffffff;
    const std::uint32_t exponent = magnitude >> 23;
    std::uint32_t result = 0;
    if (magnitude > 0x7f800000) {
        result = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    } else if (exponent > 112) {  // normal in float16 (from 2^-14 on): rounds off 13 bits; the carry may give infinity
        const std::uint32_t rebiased = magnitude - (112u << 23);
        result = (rebiased + 0xfff + ((rebiased >> 13) & 1)) >> 13;
        result = result < 0x7c00 ? result : 0x7c00;
    } else {  // subnormal in float16, a multiple of 2^-24; shifts of 25 or more give zero
        const std::uint32_t shift = exponent > 101 ? 126 - exponent : 25;
        const std::uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
        result = (significand + (1u << (shift - 1)) - 1 + ((significand >> shift) & 1)) >> shift;
    }
    return static_cast<std::uint16_t>(sign | result);
}

/// float16 to float, bit pattern to bit pattern; in code for a GPU one instruction. No float operation here has a
/// subnormal
/// operand or result, so that flushing of subnormals changes nothing.
HALFTONE_HD constexpr std::uint32_t float_from_float16(std::uint16_t bits) {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        float result = 0;
        asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(bits));
        return bit_cast<std::uint32_t>(result);
    }
#endif
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
    const std::uint32_t magnitude = bits & 0x7fff;
    std::uint32_t result = 0;
    if (magnitude < 0x0400) {
        result = bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    } else {
        const std::uint32_t rebias = magnitude < 0x7c00 ? 112u << 23 : 224u << 23;
        const std::uint32_t quiet = magnitude > 0x7c00 ? 1u << 22 : 0;
        result = ((magnitude << 13) + rebias) | quiet;
    }
    return sign | result;
}

}  // namespace detail

/// IEEE 754's binary16: 11 bits of precision, normal from 6.1e-5 to 65504, subnormal down to 6e-8.
class float16 : detail::narrow_arithmetic<float16> {
  public:
    /// Uninitialised like a float's default constructor, as __shared__ memory demands; `float16{}` is zero.
    float16() = default;

    /// Rounds to nearest even.
    HALFTONE_HD constexpr explicit float16(float x)
        : bits_{detail::float16_from_float(bit_cast<std::uint32_t>(x))} {}

    /// Rounds once, also from types wider than float (no double rounding by way of float).
    template <detail::device_arithmetic Arithmetic>
    HALFTONE_HD HALFTONE_INLINE constexpr explicit float16(Arithmetic x)
        : bits_{detail::float16_from_float(detail::float_bits_odd(x))} {}

    /// Rounds once.
    template <std::same_as<long double> LongDouble>
    HALFTONE_INLINE constexpr explicit float16(LongDouble x)
        : bits_{detail::float16_from_float(detail::float_bits_odd(x))} {}

    HALFTONE_HD constexpr operator float() const { return bit_cast<float>(detail::float_from_float16(bits_)); }

    /// The encoding: sign, 5 bits of exponent, 10 of fraction.
    HALFTONE_HD constexpr std::uint16_t bits() const { return bits_; }

    /// The number with this encoding.
    HALFTONE_HD static constexpr float16 from_bits(std::uint16_t bits) {
        float16 result{};
        result.bits_ = bits;
        return result;
    }

    HALFTONE_HD constexpr float16 operator-() const { return from_bits(static_cast<std::uint16_t>(bits_ ^ 0x8000)); }

  private:
    std::uint16_t bits_;
};

template <>
struct number_traits<float16> : ieee_format<11, -13, 16> {
    static constexpr const char* name = "float16";
    static constexpr bool of_library = true;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

template <>
class std::numeric_limits<halftone::float16>
    : public halftone::detail::ieee_limits<halftone::float16, std::uint16_t, 0, true> {};
