// SPDX-License-Identifier: MIT
/// \file
/// is_finite, is_inf and is_nan, decided from the bits. Under -ffast-math compilers replace std::isfinite by `true`;
/// the
/// check for overflow that a loss scale depends on must work there too.
///
///     if (!ht::is_finite(gradient)) skip_this_step();
#pragma once

#include <cstdint>
#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A number encoded by IEEE 754's rules: infinity has all exponent bits set and a zero fraction; a larger pattern is a
/// NaN.
template <class T>
concept ieee_number = number<T> && !own_number<T> && number_traits<T>::ieee_encoding;

namespace detail {

/// The bits of a number without its sign, and those of infinity: comparing the two classifies the number.
template <class T>
struct magnitude_bits {
    using natural = unsigned_of_size<sizeof(T)>;
    static constexpr std::uint64_t mask = ~std::uint64_t{0} >> (65 - 8 * sizeof(T));
    // All exponent and fraction bits of the type, shifted down to bit 0.
    static constexpr std::uint64_t fraction = mask / (2 * std::uint64_t{number_traits<T>::max_exponent});
    static constexpr natural infinity = static_cast<natural>(mask & ~fraction);

    HALFTONE_HD HALFTONE_INLINE static constexpr natural of(const T& x) {
        return static_cast<natural>(bit_cast<natural>(x) & static_cast<natural>(mask));
    }
};

}  // namespace detail

/// Whether x is neither infinite nor NaN.
template <ieee_number T>
HALFTONE_HD HALFTONE_INLINE constexpr bool is_finite(const T& x) {
    return detail::magnitude_bits<T>::of(x) < detail::magnitude_bits<T>::infinity;
}

/// Whether x is an infinity, of either sign.
template <ieee_number T>
HALFTONE_HD HALFTONE_INLINE constexpr bool is_inf(const T& x) {
    return detail::magnitude_bits<T>::of(x) == detail::magnitude_bits<T>::infinity;
}

/// Whether x is NaN.
template <ieee_number T>
HALFTONE_HD HALFTONE_INLINE constexpr bool is_nan(const T& x) {
    return detail::magnitude_bits<T>::of(x) > detail::magnitude_bits<T>::infinity;
}

/// Whether x, a number of a user's own type, is neither infinite nor a NaN; its numbers are what their conversion to float
/// says. The float's bits are compared, so that -ffast-math cannot assume infinities and NaNs away.
template <own_number T>
HALFTONE_HD HALFTONE_INLINE constexpr bool is_finite(const T& x) {
    return is_finite(static_cast<float>(x));
}
/// Whether x, a number of a user's own type, is infinite.
template <own_number T>
HALFTONE_HD HALFTONE_INLINE constexpr bool is_inf(const T& x) {
    return is_inf(static_cast<float>(x));
}
/// Whether x, a number of a user's own type, is a NaN.
template <own_number T>
HALFTONE_HD HALFTONE_INLINE constexpr bool is_nan(const T& x) {
    return is_nan(static_cast<float>(x));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
