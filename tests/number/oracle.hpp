// SPDX-License-Identifier: MIT
/// \file
/// Binary formats by their definition, with ldexp and frexp: the reference for the library's bit manipulations, with which it
/// shares no code.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

namespace oracle {

/// As in std::numeric_limits: digits, and exponents such that the least normal number is 2^(min_exponent - 1).
struct format {
    int digits, min_exponent, max_exponent;

    int infinity() const { return (max_exponent - min_exponent + 2) << (digits - 1); }
};

inline constexpr format half{11, -13, 16};
inline constexpr format brain{8, -125, 128};

/// The value of a pattern without sign; infinity and NaN patterns are the caller's affair.
inline double value(format f, int pattern) {
    const int fraction = pattern & ((1 << (f.digits - 1)) - 1);
    const int exponent = pattern >> (f.digits - 1);
    if (exponent == 0) return std::ldexp(fraction, f.min_exponent - f.digits);
    return std::ldexp(fraction + (1 << (f.digits - 1)), f.min_exponent - f.digits + exponent - 1);
}

enum class mode { nearest, zero };

/// The 16-bit pattern of x, finite or infinite, in format f. `Real` is double or long double.
template <class Real>
int pattern(format f, Real x, mode m = mode::nearest) {
    const int sign = std::signbit(x) ? 0x8000 : 0;
    Real a = std::fabs(x);
    if (std::isinf(a)) return sign | f.infinity();
    int exponent = 0;
    std::frexp(a, &exponent);
    exponent = a == 0 ? f.min_exponent : std::max(exponent, f.min_exponent);
    const Real scaled = std::ldexp(a, f.digits - exponent);
    const Real count = m == mode::nearest ? std::nearbyint(scaled) : std::trunc(scaled);
    const bool too_large =
        exponent > f.max_exponent || std::ldexp(count, exponent - f.digits) >= std::ldexp(Real{1}, f.max_exponent);
    if (too_large) return sign | (m == mode::nearest ? f.infinity() : f.infinity() - 1);
    return sign | (((exponent - f.min_exponent) << (f.digits - 1)) + static_cast<int>(count));
}

inline float as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t as_bits(float x) { return std::bit_cast<std::uint32_t>(x); }

/// The pattern of any float, by its bits. A NaN keeps its top payload bits and becomes quiet.
inline int pattern_of_float(format f, std::uint32_t bits, mode m = mode::nearest) {
    if ((bits & 0x7fffffff) > 0x7f800000) {
        const int payload = static_cast<int>((bits & 0x7fffff) >> (24 - f.digits));
        return static_cast<int>(bits >> 16 & 0x8000) | f.infinity() | payload | 1 << (f.digits - 2);
    }
    return pattern(f, static_cast<double>(as_float(bits)), m);
}

/// Floats where rounding to the format is most likely to go wrong: every number of the format, every halfway point,
/// quarter points, and the floats within one ulp of all of these, of both signs; infinity, and past the largest number.
inline std::vector<std::uint32_t> neighbourhoods(format f) {
    std::vector<std::uint32_t> result;
    for (int h = 0; h < f.infinity(); ++h) {
        const double low = value(f, h);
        // From the largest number the format's grid goes on to where infinity begins: value() of that pattern is 2^max.
        const double step = value(f, h + 1) - low;
        for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0}) {
            const auto near = static_cast<float>(low + share * step);
            for (const int ulp : {-1, 0, 1}) {
                const std::uint32_t bits = as_bits(near) + static_cast<std::uint32_t>(ulp);
                if ((bits & 0x80000000) != 0) continue;  // one below zero
                result.push_back(bits);
                result.push_back(bits | 0x80000000);
            }
        }
    }
    return result;
}

/// Counts what differs and remembers the first case, so that four billion comparisons cost one CHECK.
struct tally {
    std::uint64_t checked = 0, wrong = 0;
    std::string first;

    template <class Input>
    void expect(std::int64_t found, std::int64_t expected, Input input) {
        ++checked;
        if (found == expected) return;
        if (wrong++ == 0) {
            std::ostringstream out;
            out << std::hexfloat << "input " << input << std::hex << " gives 0x" << found << ", not 0x" << expected;
            first = out.str();
        }
    }
};

}  // namespace oracle

/// Fails on a wrong case, and on a loop that met no case at all.
#define CHECK_TALLY(t)          \
    do {                        \
        INFO((t).first);        \
        CHECK((t).checked > 0); \
        CHECK((t).wrong == 0);  \
    } while (false)
