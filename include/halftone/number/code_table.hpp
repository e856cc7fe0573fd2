// SPDX-License-Identifier: MIT
/// \file
/// The floats of all codes of a one-byte number type of a user's own, a constant of the program: on CPUs its numbers are widened
/// by a look-up, whatever the type's own conversion costs.
///
///     detail::widened(x)          // static_cast<float>(x), from the table if there is one
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <halftone/number/bits.hpp>
#include <halftone/number/in_float.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Whether the compiler can compute a table: the conversion to float is constexpr.
template <class T>
concept has_code_table = own_number<T> && sizeof(T) == 1 && requires {
    typename std::bool_constant<(static_cast<void>(static_cast<float>(bit_cast<T>(std::uint8_t{1}))), true)>;
};

template <has_code_table T>
struct code_table {
    alignas(64) float values[256] = {};

    constexpr code_table() {
        for (std::size_t code = 0; code < 256; ++code)
            values[code] = static_cast<float>(bit_cast<T>(static_cast<std::uint8_t>(code)));
    }
};
template <has_code_table T>
inline constexpr code_table<T> code_table_of{};

/// A number of a user's own type as a float, for kernels that compute in float.
template <own_number T>
HALFTONE_INLINE float widened(const T& x) {
    static_assert(check_in_float<T>());
    if constexpr (has_code_table<T>) {
        return code_table_of<T>.values[bit_cast<std::uint8_t>(x)];
    } else {
        return static_cast<float>(x);
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
