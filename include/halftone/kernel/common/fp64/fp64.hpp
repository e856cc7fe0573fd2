// SPDX-License-Identifier: MIT
/// \file
/// Which operations compute in double: those with a double among their operands or results. fp64 is for checking
/// gradients and for values that floats cannot hold; its kernels are plain (each.hpp), and programs without doubles do
/// not compile them.
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

/// The type of such an operation's sums and factors.
template <class... T>
using statistic = std::conditional_t<in_double<T...>, double, float>;

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
