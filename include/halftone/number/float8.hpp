// SPDX-License-Identifier: MIT
/// \file
/// float8_e4m3 and float8_e5m2, the two one-byte number types that matrix units multiply (Micikevicius et al., "FP8
/// Formats
/// for Deep Learning", 2022; Open Compute Project, "OFP8").
///
/// | type        | sign, exponent, fraction | least number | least normal | largest | overflow gives | relative
/// rounding error |
/// | ----------- | ------------------------ | ------------ | ------------ | ------- | -------------- |
/// ----------------------- |
/// | float8_e4m3 | 1, 4, 3                  | 2^-9         | 2^-6         | 448     | NaN            | 2^-4           
///         |
/// | float8_e5m2 | 1, 5, 2                  | 2^-16        | 2^-14        | 57344   | infinity       | 2^-3           
///         |
///
/// Numeric contract: float8_e4m3 has no infinity, and one NaN of each sign, all ones (PyTorch calls it float8_e4m3fn).
/// float8_e5m2 is encoded as IEEE 754 encodes its formats. Conversion from any arithmetic type rounds once, to nearest
/// even;
/// subnormal numbers are kept. From halfway past the largest number on (above 464; from 61440) the result is what the
/// table
/// says for overflow, and so it is for infinity; `saturate<T>(x)` gives the largest number instead. A NaN becomes the
/// quiet
/// NaN of its sign (in code for a GPU: of any sign). Conversion to float is exact, and so are products of two float8 in
/// float. Arithmetic is float's; writing a result back rounds it correctly.
///
///     ht::float8_e4m3 w{0.3};                                        // 0.3125
///     static_assert(ht::saturate<ht::float8_e4m3>(1e6f) == 448);
#pragma once

#include <concepts>
#include <cstdint>

#include <halftone/config.hpp>
#include <halftone/number/arithmetic.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/limits.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

class float8_e4m3;
class float8_e5m2;

template <>
struct number_traits<float8_e4m3> : ieee_format<4, -5, 9> {
    static constexpr const char* name = "float8_e4m3";
    static constexpr bool of_library = true;
    static constexpr bool ieee_encoding = false;  // the pattern that IEEE 754 gives to infinity is 256, that of 480 is NaN
    static constexpr bool has_infinity = false;
    static constexpr double max = 448;
};

template <>
struct number_traits<float8_e5m2> : ieee_format<3, -13, 16> {
    static constexpr const char* name = "float8_e5m2";
    static constexpr bool of_library = true;
};

namespace detail {

/// Codes (magnitudes) of a type: what numbers beyond the largest become, and a NaN; and the least float that is beyond.
template <class T>
struct float8_codes;
template <>
struct float8_codes<float8_e4m3> {
    static constexpr std::uint32_t largest = 0x7e, beyond = 0x7f, nan = 0x7f, first_beyond = 0x43e80001;
};
template <>
struct float8_codes<float8_e5m2> {
    static constexpr std::uint32_t largest = 0x7b, beyond = 0x7c, nan = 0x7e, first_beyond = 0x47700000;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
// The GPU's instructions convert two floats at a time, and saturate.
__device__ inline std::uint16_t saturated_float8(float x, const float8_e4m3*) {
    std::uint16_t result = 0;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(result) : "f"(0.0f), "f"(x));
    return result;
}
__device__ inline std::uint16_t saturated_float8(float x, const float8_e5m2*) {
    std::uint16_t result = 0;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(result) : "f"(0.0f), "f"(x));
    return result;
}
#endif

/// float to a one-byte number, bit pattern to bit pattern; one instruction in code for a GPU that has it. Every
/// magnitude
/// that would round to more than the largest number becomes `Beyond`.
template <class T, std::uint32_t Beyond = float8_codes<T>::beyond>
HALFTONE_HD constexpr std::uint8_t float8_from_float(std::uint32_t bits) {
    using codes = float8_codes<T>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if (!__builtin_is_constant_evaluated()) {
        const auto code =
            static_cast<std::uint8_t>(saturated_float8(bit_cast<float>(bits), static_cast<const T*>(nullptr)));
        const std::uint32_t above =
            (bits & 0x7fffffff) - codes::first_beyond;  // wraps around for numbers that are not beyond
        if (Beyond == codes::largest || above > 0x7f800000 - codes::first_beyond) return code;
        return static_cast<std::uint8_t>(((bits >> 24) & 0x80) | Beyond);
    }
#endif
    constexpr int dropped = 24 - number_traits<T>::significand_bits;
    constexpr std::uint32_t least_exponent =
        number_traits<T>::min_exponent + 126;  // the least normal number's exponent, with float's bias
    const std::uint32_t sign = (bits >> 24) & 0x80;
    const std::uint32_t magnitude = bits & 0x7fffffff;
    const std::uint32_t exponent = magnitude >> 23;
    std::uint32_t result = codes::nan;
    if (magnitude <= 0x7f800000) {
        if (exponent >= least_exponent) {
            const std::uint32_t rebiased = magnitude - ((least_exponent - 1) << 23);
            result = (rebiased + (1u << (dropped - 1)) - 1 + ((rebiased >> dropped) & 1)) >> dropped;
            result = result > codes::largest ? Beyond : result;
        } else {  // subnormal: a multiple of the least number; shifts of 25 or more give zero
            constexpr std::uint32_t most = dropped + least_exponent;
            const std::uint32_t shift = exponent + 25 > most ? most - exponent : 25;
            const std::uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
            result = (significand + (1u << (shift - 1)) - 1 + ((significand >> shift) & 1)) >> shift;
        }
    }
    return static_cast<std::uint8_t>(sign | result);
}

/// float8_e4m3 to float, bit pattern to bit pattern. No float operation here has a subnormal operand or result, so that
/// flushing of subnormals changes nothing.
HALFTONE_HD constexpr std::uint32_t float_from_float8(const float8_e4m3*, std::uint8_t bits) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if (!__builtin_is_constant_evaluated()) {
        std::uint32_t halves = 0;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(bits)));
        return float_from_float16(static_cast<std::uint16_t>(halves));
    }
#endif
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80) << 24;
    const std::uint32_t magnitude = bits & 0x7f;
    std::uint32_t result = 0;
    if (magnitude < 0x08) {
        result = bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9f);
    } else {
        result = magnitude < 0x7f ? (magnitude << 20) + (120u << 23) : 0x7fc00000;
    }
    return sign | result;
}

/// float8_e5m2 to float: its bits are the upper half of a float16's.
HALFTONE_HD constexpr std::uint32_t float_from_float8(const float8_e5m2*, std::uint8_t bits) {
    return float_from_float16(static_cast<std::uint16_t>(bits << 8));
}

/// What the two types share. `Number` is the type that inherits (CRTP).
template <class Number>
class float8 : narrow_arithmetic<Number> {
  public:
    float8() = default;

    HALFTONE_HD constexpr operator float() const {
        return bit_cast<float>(float_from_float8(static_cast<const Number*>(nullptr), bits_));
    }

    HALFTONE_HD constexpr std::uint8_t bits() const { return bits_; }

    HALFTONE_HD static constexpr Number from_bits(std::uint8_t bits) {
        Number result{};
        result.bits_ = bits;
        return result;
    }

    /// Implements `saturate`. `bits` are those of a float that was rounded to odd.
    HALFTONE_HD static constexpr Number saturated_from_float(std::uint32_t bits) {
        return from_bits(float8_from_float<Number, float8_codes<Number>::largest>(bits));
    }

    HALFTONE_HD constexpr Number operator-() const { return from_bits(static_cast<std::uint8_t>(bits_ ^ 0x80)); }

  protected:
    HALFTONE_HD constexpr explicit float8(std::uint32_t float_bits) : bits_{float8_from_float<Number>(float_bits)} {}

  private:
    std::uint8_t bits_;
};

}  // namespace detail

/// One byte with 4 bits of precision: normal from 2^-6 to 448. For operands of the forward pass.
class float8_e4m3 : public detail::float8<float8_e4m3> {
  public:
    /// Uninitialised like a float's default constructor, as __shared__ memory demands; `float8_e4m3{}` is zero.
    float8_e4m3() = default;

    /// Rounds to nearest even; NaN above 464.
    HALFTONE_HD constexpr explicit float8_e4m3(float x) : float8{bit_cast<std::uint32_t>(x)} {}

    /// Rounds once, also from types wider than float.
    template <detail::device_arithmetic Arithmetic>
    HALFTONE_HD HALFTONE_INLINE constexpr explicit float8_e4m3(Arithmetic x) : float8{detail::float_bits_odd(x)} {}

    /// Rounds once.
    template <std::same_as<long double> LongDouble>
    HALFTONE_INLINE constexpr explicit float8_e4m3(LongDouble x) : float8{detail::float_bits_odd(x)} {}
};

/// One byte with 3 bits of precision: normal from 2^-14 to 57344. For gradients, which need range.
class float8_e5m2 : public detail::float8<float8_e5m2> {
  public:
    /// Uninitialised like a float's default constructor, as __shared__ memory demands; `float8_e5m2{}` is zero.
    float8_e5m2() = default;

    /// Rounds to nearest even; infinity from 61440 on.
    HALFTONE_HD constexpr explicit float8_e5m2(float x) : float8{bit_cast<std::uint32_t>(x)} {}

    /// Rounds once, also from types wider than float.
    template <detail::device_arithmetic Arithmetic>
    HALFTONE_HD HALFTONE_INLINE constexpr explicit float8_e5m2(Arithmetic x) : float8{detail::float_bits_odd(x)} {}

    /// Rounds once.
    template <std::same_as<long double> LongDouble>
    HALFTONE_INLINE constexpr explicit float8_e5m2(LongDouble x) : float8{detail::float_bits_odd(x)} {}
};

// float8_e5m2 is an ieee_number and needs no overloads of its own (classify.hpp).
/// Whether x is NaN.
HALFTONE_HD HALFTONE_INLINE constexpr bool is_nan(const float8_e4m3& x) { return (x.bits() & 0x7f) == 0x7f; }
/// Never: the format has no infinity.
HALFTONE_HD HALFTONE_INLINE constexpr bool is_inf(const float8_e4m3&) { return false; }
/// Whether x is not NaN.
HALFTONE_HD HALFTONE_INLINE constexpr bool is_finite(const float8_e4m3& x) { return !is_nan(x); }

}  // namespace HALFTONE_ABI
}  // namespace halftone

template <>
class std::numeric_limits<halftone::float8_e5m2>
    : public halftone::detail::ieee_limits<halftone::float8_e5m2, std::uint8_t, 0, false> {
};  // is_iec559 false: encoded as IEEE 754 does, but not one of its formats

/// infinity() returns NaN, since the format has no infinity.
template <>
class std::numeric_limits<halftone::float8_e4m3>
    : public halftone::detail::ieee_limits<halftone::float8_e4m3, std::uint8_t, 0, false> {
    using number = halftone::float8_e4m3;

  public:
    static constexpr bool has_infinity = false;
    static constexpr bool has_signaling_NaN = false;

    HALFTONE_HD static constexpr number max() noexcept { return number::from_bits(0x7e); }
    HALFTONE_HD static constexpr number lowest() noexcept { return number::from_bits(0xfe); }
    HALFTONE_HD static constexpr number epsilon() noexcept { return number::from_bits(0x20); }      // 2^-3
    HALFTONE_HD static constexpr number round_error() noexcept { return number::from_bits(0x30); }  // 0.5
    HALFTONE_HD static constexpr number infinity() noexcept { return quiet_NaN(); }
    HALFTONE_HD static constexpr number quiet_NaN() noexcept { return number::from_bits(0x7f); }
    HALFTONE_HD static constexpr number signaling_NaN() noexcept { return quiet_NaN(); }
};
