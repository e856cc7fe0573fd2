// SPDX-License-Identifier: MIT
/// \file
/// The definition of what a loss is divided by.
///
///     const double share = reference::divisor_value(divisor_of_micro) / reference::divisor_value(divisor_of_batch);
#pragma once

#include <halftone/kernel/target_share/target_share.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The number, the sum of the terms, and the weights of the classes of all targets that are not ignored, together.
inline double divisor_value(const loss_divisor& d) {
    double sum = d.number;
    for (extent i = 0; i < d.terms.extent_of(0); ++i) sum += static_cast<double>(d.terms(i));
    for (extent i = 0; i < d.targets.extent_of(0); ++i) {
        if (d.targets(i) == d.ignore_index) continue;
        sum += d.weight.data() == nullptr ? 1.0 : static_cast<double>(d.weight(d.targets(i)));
    }
    return sum;
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
