// SPDX-License-Identifier: MIT
/// \file
/// x * y + z of floats, rounded once, in place of std::fma, which is wrong in a quarter of cases with mingw-w64 (10.0).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace support {

inline float fused(float x, float y, float z) {
    const double product = static_cast<double>(x) * y;  // exact
    double sum = product + z;
    const double back = sum - product, error = (product - (sum - back)) + (z - back);  // exact, too (Knuth)
    // Rounded to odd, after which rounding to float is as a single rounding: a double has more than two additional
    // bits.
    if (std::isfinite(sum) && error != 0 && std::bit_cast<std::uint64_t>(sum) % 2 == 0) {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        sum = std::nextafter(sum, error > 0 ? infinity : -infinity);
    }
    return static_cast<float>(sum);
}

}  // namespace support
