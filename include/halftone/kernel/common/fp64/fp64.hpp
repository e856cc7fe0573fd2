// SPDX-License-Identifier: MIT
/// \file
/// Which operations compute in double: those that read or give one. fp64 is for checking gradients and for what floats
/// cannot hold; its kernels are plain (each.hpp) and no program pays for them that has no double.
///
///     static_assert(kernel::in_double<const double, float>);
#pragma once

#include <type_traits>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Whether an operation on these element types computes in double.
template <class... T>
inline constexpr bool in_double = (std::is_same_v<std::remove_const_t<T>, double> || ...);

/// What such an operation keeps of its sums, and takes as factors.
template <class... T>
using statistic = std::conditional_t<in_double<T...>, double, float>;

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
