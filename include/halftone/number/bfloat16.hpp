// SPDX-License-Identifier: MIT
/// \file
/// bfloat16, the upper half of a float: 1 sign, 8 exponent and 7 fraction bits. It has float's range (9e-41 to 3.4e38)
/// and
/// rounds with a relative error of at most 2^-8.
///
/// Numeric contract: conversion from any arithmetic type rounds once, to nearest even. Values beyond the range become
/// infinity. Subnormal numbers are kept (the instruction VCVTNEPS2BF16 flushes them to zero and agrees in all else). A
/// NaN
/// becomes quiet and keeps the top bits of its payload (in code for a GPU: any NaN). Conversion to float is exact and
/// keeps
/// every bit. Arithmetic is float's; rounding the float result of +, -, * or / back to bfloat16 gives the correctly
/// rounded
/// result wherever it is normal, since a float has more than 2 * 8 + 2 bits (Figueroa, "When is double rounding
/// innocuous?", 1995).
///
///     static_assert(ht::bfloat16(1.0f / 3).bits() == 0x3eab);
///     ht::bfloat16 sum{256};
///     sum += 1;                       // still 256: why sums are kept in float
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

/// float to bfloat16, bit pattern to bit pattern; in code for a GPU one instruction.
HALFTONE_HD constexpr std::uint16_t bfloat16_from_float(std::uint32_t bits) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (!__builtin_is_constant_evaluated()) {
        std::uint16_t result = 0;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(bit_cast<float>(bits)));
        return result;
    }
#endif
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    const std::uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return static_cast<std::uint16_t>((nan ? bits | 0x400000 : rounded) >> 16);
}

/// bfloat16 to float, bit pattern to bit pattern. In code for a GPU the float is assembled from two 16-bit halves,
/// since a
/// shift would cost an instruction more.
HALFTONE_HD constexpr std::uint32_t float_from_bfloat16(std::uint16_t bits) {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
        std::uint32_t result = 0;
        asm("mov.b32 %0, {0, %1};" : "=r"(result) : "h"(bits));
        return result;
    }
#endif
    return static_cast<std::uint32_t>(bits) << 16;
}

}  // namespace detail

/// A 16-bit number with float's exponent: 8 bits of precision, normal from 1.2e-38 to 3.4e38.
class bfloat16 : detail::narrow_arithmetic<bfloat16> {
  public:
    /// Uninitialised like a float's default constructor, as __shared__ memory demands; `bfloat16{}` is zero.
    bfloat16() = default;

    /// Rounds to nearest even.
    HALFTONE_HD constexpr explicit bfloat16(float x)
        : bits_{detail::bfloat16_from_float(bit_cast<std::uint32_t>(x))} {}

    /// Rounds once, also from types wider than float (no double rounding by way of float).
    template <detail::device_arithmetic Arithmetic>
    HALFTONE_HD HALFTONE_INLINE constexpr explicit bfloat16(Arithmetic x)
        : bits_{detail::bfloat16_from_float(detail::float_bits_odd(x))} {}

    /// Rounds once.
    template <std::same_as<long double> LongDouble>
    HALFTONE_INLINE constexpr explicit bfloat16(LongDouble x)
        : bits_{detail::bfloat16_from_float(detail::float_bits_odd(x))} {}

    HALFTONE_HD constexpr operator float() const { return bit_cast<float>(detail::float_from_bfloat16(bits_)); }

    /// The encoding: sign, 8 bits of exponent, 7 of fraction.
    HALFTONE_HD constexpr std::uint16_t bits() const { return bits_; }

    /// The number with this encoding.
    HALFTONE_HD static constexpr bfloat16 from_bits(std::uint16_t bits) {
        bfloat16 result{};
        result.bits_ = bits;
        return result;
    }

    HALFTONE_HD constexpr bfloat16 operator-() const { return from_bits(static_cast<std::uint16_t>(bits_ ^ 0x8000)); }

  private:
    std::uint16_t bits_;
};

template <>
struct number_traits<bfloat16> : ieee_format<8, -125, 128> {
    static constexpr const char* name = "bfloat16";
    static constexpr bool of_library = true;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

template <>
class std::numeric_limits<halftone::bfloat16>
    : public halftone::detail::ieee_limits<halftone::bfloat16, std::uint16_t, 0, false> {
};  // is_iec559 false: encoded as IEEE 754 does, but not one of its formats
