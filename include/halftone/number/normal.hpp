// SPDX-License-Identifier: MIT
/// \file
/// Normally distributed numbers from random words. number.hpp does not include this file, since its <cmath> costs more
/// compile time than all of number.hpp.
///
/// Computed in double and rounded once to float, so that two mathematical libraries whose doubles differ in the last
/// bits
/// give the same float in all but about one of 2^28 cases.
///
///     auto [a, b] = ht::normal(block[0], block[1]);       // mean 0, standard deviation 1
#pragma once

#include <cmath>
#include <cstdint>

#include <halftone/config.hpp>

#include <halftone/number/precise/begin.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {

/// The result of normal(): two independent numbers.
struct normal_pair {
    float first;
    float second;
};

/// Two independent standard normal numbers from two independent uniform words (Box and Muller 1958). None exceeds
/// sqrt(64 ln 2) = 6.66 in magnitude.
HALFTONE_HD inline normal_pair normal(std::uint32_t a, std::uint32_t b) {
    const double radius = std::sqrt(-2.0 * std::log((a + 1.0) * 0x1p-32));  // (a + 1) / 2^32 is in (0, 1]: log never gets zero
    const double angle = 6.283185307179586 * (b * 0x1p-32);
    return {static_cast<float>(radius * std::cos(angle)), static_cast<float>(radius * std::sin(angle))};
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/number/precise/end.hpp>
