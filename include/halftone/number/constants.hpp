// SPDX-License-Identifier: MIT
/// \file
/// Constants of elementary functions that several kernels compute.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// log2(e), by which the argument of an exponential becomes that of a power of two.
inline constexpr double log2_of_e_in_double = 1.44269504088896341;
/// log2(e), rounded to float.
inline constexpr float log2_of_e = static_cast<float>(log2_of_e_in_double);
static_assert(log2_of_e == 0x1.715476p+0f);

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
