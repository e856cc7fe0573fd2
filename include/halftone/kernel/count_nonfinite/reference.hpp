// SPDX-License-Identifier: MIT
/// \file
/// The definition of count_nonfinite.
///
///     const kernel::nonfinite_counts t = reference::count_nonfinite(values);
#pragma once

#include <halftone/kernel/count_nonfinite/count_nonfinite.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// How many values are NaN or infinite, and the largest magnitude of the others.
template <class T, int Rank>
kernel::nonfinite_counts count_nonfinite(const view<T, Rank>& values) {
    kernel::nonfinite_counts t;
    const auto all = flatten(values);
    for (extent i = 0; i < all.size(); ++i) {
        const float x = static_cast<float>(all(i));
        if (is_nan(x)) {
            ++t.nans;
        } else if (is_inf(x)) {
            ++(x > 0 ? t.positive_infinities : t.negative_infinities);
        } else {
            const float magnitude = x < 0 ? -x : x;
            if (magnitude > t.largest) t.largest = magnitude;
        }
    }
    return t;
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
