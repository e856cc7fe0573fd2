// SPDX-License-Identifier: MIT
/// \file
/// How the CPU normalises a row with care (limits.hpp): in double, element by element, since such rows are rare.
///
///     const careful_row of = norm_with_care<true>(x, width, gain, bias, epsilon, y);       // true: layer norm
#pragma once

#include <cmath>

#include <halftone/kernel/norm/care/limits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The sum of term(j) in double, with eight accumulators.
template <class Term>
double careful_sum(extent width, const Term& term) {
    double sums[8] = {};
    extent j = 0;
    for (; j + 8 <= width; j += 8) {
        for (int k = 0; k < 8; ++k) sums[k] += term(j + k);
    }
    for (; j < width; ++j) sums[0] += term(j);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

struct careful_row {
    double average, scale;
};

/// Normalises one row of numbers that floats hold: by layer norm if it is centred, otherwise by RMS norm, whose mean is
/// 0; the bias may be null. y may be x.
template <bool Centred, class X, class W, class Y>
[[gnu::noinline]] careful_row norm_with_care(const X* x, extent width, const W* gain, const W* bias, double epsilon,
                                             Y* y) {
    const auto count = static_cast<double>(width);
    double average = 0;
    if constexpr (Centred) average = careful_sum(width, [&](extent j) { return static_cast<double>(x[j]); }) / count;
    const auto deviation = [&](extent j) { return static_cast<double>(x[j]) - average; };
    const double squares = careful_sum(width, [&](extent j) { return deviation(j) * deviation(j); });
    const double scale = 1 / std::sqrt(squares / count + epsilon);
    for (extent j = 0; j < width; ++j) {
        const double v = deviation(j) * scale * static_cast<double>(gain[j]);
        y[j] = static_cast<Y>(bias == nullptr ? v : v + static_cast<double>(bias[j]));
    }
    return {average, scale};
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
