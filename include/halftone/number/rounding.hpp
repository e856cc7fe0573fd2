// SPDX-License-Identifier: MIT
/// \file
/// The modes in which a number is rounded to a narrower type. `round_to.hpp` performs them.
///
///     ht::round_to<ht::bfloat16, ht::rounding::toward_zero>(1.999f)     // 1.9921875
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How a number is rounded to a narrower type.
enum class rounding {
    nearest_even,  ///< the nearer neighbour; a tie goes to the one whose last bit is zero (IEEE 754's default)
    nearest_away,  ///< the nearer neighbour; a tie goes to the one of larger magnitude
    toward_zero,   ///< the neighbour of smaller magnitude: truncation
    stochastic,    ///< either neighbour, with probabilities that make the mean equal to the number
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
