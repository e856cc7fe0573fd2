// SPDX-License-Identifier: MIT
/// \file
/// Conversions of numbers that float does not hold (wide_number in number/traits.hpp), an element at a time: factor times element
/// in double, rounded once.
#pragma once

#include <halftone/number/round_to.hpp>
#include <halftone/number/saturate.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class Y, bool Saturates, wide_number X>
HALFTONE_HD HALFTONE_INLINE Y converted_wide(const X& x, float factor) {
    const double v = static_cast<double>(x) * static_cast<double>(factor);
    if constexpr (Saturates && !wide_number<Y>) {
        return halftone::saturate<Y>(v);
    } else {
        return halftone::detail::round_double<Y>(v);
    }
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
