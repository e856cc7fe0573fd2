// SPDX-License-Identifier: MIT
/// \file
/// The definition of reading gradients and of their norm, in double.
///
///     double squares = reference::sum_of_squares(gradients, factors);      // factors: kernel::gradient_factors
#pragma once

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// A gradient with its factors applied: unscaled, clipped by norm, then by value.
template <class G>
double read_gradient(const G& g, const kernel::gradient_factors& f) {
    const double v = static_cast<double>(g) * static_cast<double>(f.inv_scale) * static_cast<double>(f.clip);
    if (f.limit == kernel::gradient_factors::no_limit) return v;
    const double limit = static_cast<double>(f.limit);
    return v > limit ? limit : v < -limit ? -limit : v;
}

/// The sum of the squares of read_gradient's results.
template <class G>
double sum_of_squares(const view<G, 1>& gradients, const kernel::gradient_factors& f) {
    double squares = 0;
    for (extent i = 0; i < gradients.size(); ++i) {
        const double v = read_gradient(gradients(i), f);
        squares += v * v;
    }
    return squares;
}

/// Whether no gradient is infinite or NaN.
template <class G>
bool all_finite(const view<G, 1>& gradients) {
    for (extent i = 0; i < gradients.size(); ++i) {
        if (!is_finite(gradients(i))) return false;
    }
    return true;
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
