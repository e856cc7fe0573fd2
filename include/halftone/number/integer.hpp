// SPDX-License-Identifier: MIT
/// \file
/// Division of counts that rounds up. All pieces, padded extents and sizes of memory are computed by these two functions.
#pragma once

#include <concepts>
#include <type_traits>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The number of pieces of y that hold x: x / y, rounded up. x is not negative, y is positive, and x + y - 1 does not exceed
/// the type of x + y, which the result has; an unsigned sum wraps around. A signed with an unsigned integer does not compile.
template <std::integral X, std::integral Y>
    requires(std::is_signed_v<X> == std::is_signed_v<Y>)
HALFTONE_HD HALFTONE_INLINE constexpr auto ceil_div(X x, Y y) -> decltype(x + y) {
    return (x + (y - 1)) / y;
}

/// The least multiple of y that is not below x. x is not negative, y is positive, and, where the type of x + y is signed,
/// x + y - 1 does not exceed it. Where it is unsigned, as of sizes of memory, an x beyond its largest multiple of y gives that
/// multiple, of which no memory has as many bytes: a sum that wraps around would be a small size.
template <std::integral X, std::integral Y>
    requires(std::is_signed_v<X> == std::is_signed_v<Y>)
HALFTONE_HD HALFTONE_INLINE constexpr auto round_up(X x, Y y) -> decltype(x + y) {
    using sum = decltype(x + y);
    if constexpr (std::is_unsigned_v<sum>) {
        const sum below = x / y * y;
        return below == x || below > static_cast<sum>(-1) - y ? below : below + y;
    } else {
        return ceil_div(x, y) * y;
    }
}

}  // namespace detail

using detail::round_up;

}  // namespace HALFTONE_ABI
}  // namespace halftone
