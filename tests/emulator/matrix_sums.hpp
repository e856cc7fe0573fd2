// SPDX-License-Identifier: MIT
/// \file
/// How the emulated GPU's matrix units add: see `accumulation`.
#pragma once

#include <algorithm>
#include <cmath>

#include <emulator/machine.hpp>

namespace halftone::emulator {

/// The parameters of sums in a `truncating` matrix unit: see `accumulation`.
struct sum_format {
    int products, kept, of_sum;
};
inline sum_format format_of(const matrix_unit& unit, int architecture) {
    const int whole = unit.depth, half = unit.depth / 2;
    if (architecture >= 90) return {whole, 25, 23};
    return unit.in_word == 4 ? sum_format{half, 13, 13} : sum_format{half, 24, 23};
}

/// Rounds toward zero, to a float with this number of fraction bits.
inline float truncated(double x, int fraction_bits) {
    const auto near = static_cast<float>(x);
    auto bits = bit_cast<word>(near);
    if (std::fabs(static_cast<double>(near)) > std::fabs(x)) --bits;
    return bit_cast<float>(bits & ~((word{1} << (23 - fraction_bits)) - 1));
}

/// An element of a matrix, and the exponent that the unit uses for it.
struct multiplied {
    float value = 0;
    int exponent = 0;
};
inline int exponent_of(float x, int least) {
    return std::max(static_cast<int>(bit_cast<word>(x) >> 23 & 0xff) - 127, least);
}

/// sum + ab, for n of k.
inline float add_truncated(float sum, const multiplied* a, const multiplied* b, int n, const sum_format& f) {
    constexpr int none = -10000;
    int most = sum == 0 ? none : exponent_of(sum, -126);
    double products[32], plain = static_cast<double>(sum);
    for (int k = 0; k < n; ++k) {
        const multiplied& x = a[k];
        const multiplied& y = b[k];
        products[k] = static_cast<double>(x.value) * static_cast<double>(y.value);
        plain += products[k];
        if (products[k] != 0) most = std::max(most, x.exponent + y.exponent);
    }
    if (!std::isfinite(plain)) return static_cast<float>(plain);
    if (most == none) return 0;
    const double unit = std::ldexp(1.0, f.kept - most);
    auto all = static_cast<std::int64_t>(static_cast<double>(sum) * unit);
    for (int k = 0; k < n; ++k) all += static_cast<std::int64_t>(products[k] * unit);
    return truncated(static_cast<double>(all) / unit, f.of_sum);
}

}  // namespace halftone::emulator
