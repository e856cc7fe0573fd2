// SPDX-License-Identifier: MIT
/// \file
/// Conversions that give the largest number of a type where its constructor would give infinity or NaN. They suit
/// values
/// that were scaled into the range of a type: one that is slightly too large loses less by saturating than by
/// overflowing.
///
///     static_assert(ht::saturate<ht::float8_e4m3>(1e6f) == 448);
///     static_assert(ht::saturate<ht::float16>(-1e6) == -65504);
///     auto w = ht::round_stochastic<ht::float8_e5m2>(ht::clamp_to<ht::float8_e5m2>(x), random);
#pragma once

#include <cstdint>

#include <halftone/config.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Works on bits, so that -ffast-math cannot assume infinities away. T is no wider than float.
template <number T>
HALFTONE_HD HALFTONE_INLINE constexpr std::uint32_t clamp_bits(std::uint32_t bits) {
    static_assert(number_traits<T>::significand_bits <= 24 && number_traits<T>::max_exponent <= 128,
                  "halftone: saturate: only a type that float contains has a largest number to stop a float at");
    constexpr std::uint32_t largest = bit_cast<std::uint32_t>(static_cast<float>(number_traits<T>::max));
    const std::uint32_t magnitude = bits & 0x7fffffff;
    return magnitude > largest && magnitude <= 0x7f800000 ? (bits & 0x80000000) | largest : bits;
}

}  // namespace detail

/// `x`, or T's largest number with x's sign where x is larger or infinite. A NaN stays a NaN.
template <number T>
HALFTONE_HD HALFTONE_INLINE constexpr float clamp_to(float x) {
    return bit_cast<float>(detail::clamp_bits<T>(bit_cast<std::uint32_t>(x)));
}

/// `x` rounded once to `T`, to nearest even; T's largest number with x's sign where x is larger or infinite. A NaN
/// stays a NaN.
template <number T, detail::device_arithmetic Arithmetic>
HALFTONE_HD HALFTONE_INLINE constexpr T saturate(Arithmetic x) {
    const std::uint32_t bits = detail::float_bits_odd(x);
    if constexpr (requires { T::saturated_from_float(bits); }) {
        return T::saturated_from_float(bits);
    } else {
        return T(bit_cast<float>(detail::clamp_bits<T>(bits)));
    }
}

/// A narrow number `x` rounded once to `T`, to nearest even; T's largest number with x's sign where x is larger or
/// infinite. A NaN stays a NaN.
template <number T, number From>
    requires(!detail::device_arithmetic<From>)
HALFTONE_HD HALFTONE_INLINE constexpr T saturate(const From& x) {
    return saturate<T>(static_cast<float>(x));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
