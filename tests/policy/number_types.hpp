// SPDX-License-Identifier: MIT
/// \file
/// User-defined number types, which halftone does not know.
#pragma once

#include <cstdint>

#include <halftone/number/traits.hpp>

/// 24 bits: 1 sign, 8 exponent, 15 fraction.
struct float24 {
    std::uint8_t bytes[3];
};

/// 8 bits: 1 sign, 5 exponent, 2 fraction.
struct quarter {
    std::uint8_t bits;
};

/// 16 bits, of which 10 are the exponent's.
struct wide_range {
    std::uint16_t bits;
};

template <>
struct halftone::number_traits<float24> : halftone::ieee_format<16, -125, 128> {
    static constexpr const char* name = "float24";
};
template <>
struct halftone::number_traits<quarter> : halftone::ieee_format<3, -13, 16> {
    static constexpr const char* name = "quarter";
};
template <>
struct halftone::number_traits<wide_range> : halftone::ieee_format<6, -509, 512> {
    static constexpr const char* name = "wide_range";
};
