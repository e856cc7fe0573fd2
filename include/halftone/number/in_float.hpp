// SPDX-License-Identifier: MIT
/// \file
/// Numbers as floats, for kernels that compute in float: exact, or a compile-time error.
///
///     detail::in_float(x)         // static_cast<float>(x)
#pragma once

#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// True, or a compile-time error that says why kernels that compute in float do not read numbers of T.
template <class T>
consteval bool check_in_float() {
    static_assert(
        !wide_number<T>,
        "halftone: this function computes in float, which does not hold all numbers of this type of your own: convert "
        "them first, ht::convert(device, x, floats); only optimizers' steps and conversions read them as they are");
    return true;
}

/// A number of any type as kernels for GPUs read it. On a CPU those of a user's own may have a table (code_table.hpp).
template <class T>
HALFTONE_HD HALFTONE_INLINE float in_float(const T& x) {
    static_assert(check_in_float<T>());
    return static_cast<float>(x);
}

/// A number in the type that a kernel computes in, float or double.
template <class S, class T>
HALFTONE_HD HALFTONE_INLINE S in_type(const T& x) {
    if constexpr (std::is_same_v<S, float>) {
        return in_float(x);
    } else {
        return static_cast<S>(x);
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
