// SPDX-License-Identifier: MIT
/// \file
/// The ways to get from a number to one of its two neighbours in a narrower type. `round_to.hpp` performs them.
///
///     ht::round_to<ht::bfloat16, ht::rounding::toward_zero>(1.999f)     // 1.9921875
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How a number is rounded to a narrower type.
enum class rounding {
    nearest_even,  ///< the nearer neighbour, of two equally near ones the one whose last bit is zero (IEEE 754's
                   ///< default)
    nearest_away,  ///< the nearer neighbour, of two equally near ones the one of larger magnitude
    toward_zero,   ///< the neighbour of smaller magnitude: the bits that do not fit are dropped
    stochastic,    ///< either neighbour, the nearer one more often, so that the mean is the number itself
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
