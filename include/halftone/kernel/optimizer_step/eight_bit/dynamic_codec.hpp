// SPDX-License-Identifier: MIT
/// \file
/// The dynamic map (number/dynamic_map.hpp) as arithmetic, for instruction sets that look up eight numbers in a register faster
/// than one of 256 in memory: within a decade a value is a linear function of its code, and a code of its value.
///
///     const kernel::dynamic_codec codec = kernel::make_dynamic_codec(map);            // of one map, in host memory
///
/// All tables have eight entries, which are chosen by the low three bits of an index.
#pragma once

#include <cmath>
#include <cstdint>

#include <halftone/number/dynamic_map.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// From code to value: let n be the magnitude's rank, in the unsigned map one more. A decade begins where n is a power of
/// two, 2^k, and has 2^k parts. Value n is high + low, rounded once, where high = n slope_high + offset_high is exact, and
/// low = n slope_low + offset_low is what the former lack. The entry is that of the biased exponent of n as a float.
///
/// From quotient to rank: multiplying the upper 16 bits of a float gives its decade, or that below; `next` decides. Then
/// T = quotient rank_slope + rank_offset, at most `last`, is 65536 times the rank plus the place within its part, with an
/// error of at most 3: half a unit each of the product, the sum and the table's two entries, and a unit for the
/// boundary, which lies in the middle of two rounded values. Where T is that near to a boundary, the map's cells decide.
/// The entry is that of the multiplied bits.
struct dynamic_codec {
    static constexpr int entries = 8;
    static constexpr std::uint32_t decade_offset = 219, decade_factor = 140;  ///< found by trial; every boundary is tested
    static constexpr int first_decade = 29;                     ///< the result for the smallest decade
    static constexpr std::uint32_t margin = 8;                  ///< of T, more than its error

    float slope_high[entries], slope_low[entries], offset_high[entries], offset_low[entries];
    float next[entries];         ///< the smallest quotient of the next decade
    float rank_slope[entries], rank_offset[entries];
    std::uint32_t last[entries];  ///< T in the middle of the decade's last part
    float least;                  ///< the smallest quotient whose rank is not 0
};

inline dynamic_codec make_dynamic_codec(const dynamic_map& map) {
    constexpr double ends[dynamic_map::decades] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    const int shift = map.has_sign() ? 0 : 1;  // n is the rank plus this
    const auto boundary = [&](int rank) {  // the smallest quotient of a rank
        const int code = rank + static_cast<int>(map.zero);
        return bit_cast<float>(first_nearer(map.value(code - 1), map.value(code)));
    };
    dynamic_codec c{};
    c.least = boundary(1);
    for (int decade = 0; decade <= dynamic_map::decades; ++decade) {
        const int k = decade + shift, parts = 1 << k, of_exponent = (k + 7) & 7, of_quotient = (decade + dynamic_codec::first_decade) & 7;
        const int first = parts - shift;  // the decade's first rank
        if (decade == dynamic_map::decades) {  // the magnitude 1
            c.offset_high[of_exponent] = 1;
            c.next[of_quotient] = 2;
            c.rank_offset[of_quotient] = 65536.0f * (static_cast<float>(first) + 0.5f);
            c.last[of_quotient] = (static_cast<std::uint32_t>(first) << 16) + 0x8000u;
            continue;
        }
        const double slope = 0.9 * ends[decade] / parts, offset = ends[decade] * (0.1 + 0.45 / parts - 0.9);
        const double unit = std::exp2(std::ceil(std::log2(ends[decade])) - 24);  // values are less than 2^24 of these
        const double high = std::nearbyint(slope / unit) * unit, offset_high = std::nearbyint(offset / unit) * unit;
        c.slope_high[of_exponent] = static_cast<float>(high);
        c.slope_low[of_exponent] = static_cast<float>(slope - high);
        c.offset_high[of_exponent] = static_cast<float>(offset_high);
        c.offset_low[of_exponent] = static_cast<float>(offset - offset_high);
        c.next[of_quotient] = boundary(2 * parts - shift);
        c.rank_slope[of_quotient] = static_cast<float>(65536 / slope);
        c.rank_offset[of_quotient] = static_cast<float>(65536 * (first - parts / 9.0));
        c.last[of_quotient] = (static_cast<std::uint32_t>(first + parts - 1) << 16) + 0x8000u;
    }
    return c;
}

/// The codecs of both maps, with and without a sign.
struct dynamic_codecs {
    dynamic_codec with_sign, without_sign;
};
inline dynamic_codecs make_dynamic_codecs(const dynamic_maps& maps) {
    return {make_dynamic_codec(maps.with_sign), make_dynamic_codec(maps.without_sign)};
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
