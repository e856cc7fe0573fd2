// SPDX-License-Identifier: MIT
/// \file
/// The definition of quantisation to eight bits, and of its scale.
///
///     const double scale = reference::scale(reference::amax(x), 448, rule, 1);
///     reference::quantize(x, scale, y);
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <halftone/number/classify.hpp>
#include <halftone/number/saturate.hpp>
#include <halftone/policy/scaling.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The largest magnitude; infinity if a number is not finite.
template <class X>
double amax(const view<X, 1>& x) {
    double largest = 0;
    for (extent i = 0; i < x.size(); ++i) {
        if (!is_finite(x(i))) return std::numeric_limits<double>::infinity();
        largest = std::max(largest, std::fabs(static_cast<double>(x(i))));
    }
    return largest;
}

/// (largest number of the format / amax) / 2^margin, optionally rounded down to a power of two; between 2^-126 and
/// float's largest number. `before` if amax is 0 or not finite.
inline double scale(double amax, double largest, const scaling_rule& rule, double before) {
    if (amax == 0 || !is_finite(amax)) return before;
    double scale = std::clamp(std::ldexp(largest / amax, -rule.margin), 0x1p-126, number_traits<float>::max);
    if (rule.steps == scale_steps::powers_of_two) scale = std::exp2(std::floor(std::log2(scale)));
    return scale;
}

/// y = scale x, rounded once and saturated at the largest number of y's type; an x that is not finite stays so.
template <class X, class Y>
void quantize(const view<X, 1>& x, double scale, const view<Y, 1>& y) {
    for (extent i = 0; i < x.size(); ++i)
        y(i) = is_finite(x(i)) ? saturate<Y>(static_cast<double>(x(i)) * scale) : Y(static_cast<float>(x(i)));
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
