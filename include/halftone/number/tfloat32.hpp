// SPDX-License-Identifier: MIT
/// \file
/// tfloat32 ("tf32"), the format to which matrix units round floats: 1 sign, 8 exponent and 10 fraction bits, the
/// upper 19
/// of a float's. It has float's range (1.1e-41 to 3.4e38) and float16's relative rounding error (2^-11).
///
/// This is a format of operands, not of memory: numbers are stored as floats, and a product that computes in tfloat32
/// rounds them as it reads them (storage_of). Numeric contract: conversion from any arithmetic type rounds once, to
/// nearest,
/// ties away from zero, as the instruction cvt.rna.tf32.f32 does (PTX ISA, "cvt"). Values beyond the range become
/// infinity, subnormal numbers are kept, a NaN becomes quiet and keeps the top bits of its payload (in code for a GPU:
/// any
/// NaN). Conversion to float is exact and keeps every bit. Arithmetic is float's, in which products of two tfloat32
/// are exact.
///
///     static_assert(ht::tfloat32(1.0f / 3) == 0x1.554p-2f);
///     float c = ht::tfloat32(a) * ht::tfloat32(b);            // one term of a product under the policy tf32
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

/// The bits of a float that a tfloat32 has.
inline constexpr std::uint32_t tfloat32_mask = 0xffffe000;

/// float to tfloat32, bit pattern to bit pattern; in code for a GPU one instruction, which leaves the lower 13 bits
/// undefined.
HALFTONE_HD constexpr std::uint32_t tfloat32_from_float(std::uint32_t bits) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (!__builtin_is_constant_evaluated()) {
        std::uint32_t result = 0;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(bit_cast<float>(bits)));
        return result & tfloat32_mask;
    }
#endif
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    return (nan ? bits | 0x400000 : bits + 0x1000) &
           tfloat32_mask;  // the carry may give infinity, but goes no further
}

}  // namespace detail

/// A float of which matrix units read 19 bits: float's exponent and 11 bits of precision. It is stored as a float whose
/// lower 13 bits are 0.
class tfloat32 : detail::narrow_arithmetic<tfloat32> {
  public:
    /// Uninitialised like a float's default constructor; `tfloat32{}` is zero.
    tfloat32() = default;
    HALFTONE_HD constexpr explicit tfloat32(float x)
        : bits_{detail::tfloat32_from_float(bit_cast<std::uint32_t>(x))} {}
    /// Rounds once, also from types wider than float (no double rounding by way of float).
    template <detail::device_arithmetic Arithmetic>
    HALFTONE_HD HALFTONE_INLINE constexpr explicit tfloat32(Arithmetic x)
        : bits_{detail::tfloat32_from_float(detail::float_bits_odd(x))} {}
    template <std::same_as<long double> LongDouble>
    HALFTONE_INLINE constexpr explicit tfloat32(LongDouble x)
        : bits_{detail::tfloat32_from_float(detail::float_bits_odd(x))} {}

    HALFTONE_HD constexpr operator float() const { return bit_cast<float>(bits_); }

    /// The bits of the float; the lower 13 are zero.
    HALFTONE_HD constexpr std::uint32_t bits() const { return bits_; }
    /// Drops the lower 13 bits, as a matrix unit does.
    HALFTONE_HD static constexpr tfloat32 from_bits(std::uint32_t bits) {
        tfloat32 result{};
        result.bits_ = bits & detail::tfloat32_mask;
        return result;
    }

    HALFTONE_HD constexpr tfloat32 operator-() const { return from_bits(bits_ ^ 0x80000000u); }

  private:
    std::uint32_t bits_;
};

template <>
struct number_traits<tfloat32> : ieee_format<11, -125, 128> {
    static constexpr const char* name = "tfloat32";
    static constexpr bool of_library = true;
    using storage = float;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

template <>
class std::numeric_limits<halftone::tfloat32>
    : public halftone::detail::ieee_limits<halftone::tfloat32, std::uint32_t, 13, false> {
};  // is_iec559 false: encoded as IEEE 754 does, but not one of its formats
