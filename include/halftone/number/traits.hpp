// SPDX-License-Identifier: MIT
/// \file
/// What the library knows about a number type; all error bounds are computed from these traits.
///
///     static_assert(ht::unit_roundoff<ht::bfloat16> == 1.0 / 256);
///
/// A number type of your own needs traits, an implicit conversion to float and an explicit constructor from float:
///
///     template <>
///     struct halftone::number_traits<my_float24> : halftone::ieee_format<17, -61, 64> {
///         static constexpr const char* name = "my_float24";
///     };
#pragma once

#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/number/bits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Traits of a number type. Specialise it for your own, preferably by inheriting from `ieee_format`.
template <class T>
struct number_traits;

/// The traits, except the name, of a binary format with one sign bit, subnormal numbers, infinities and NaNs, encoded
/// as
/// IEEE 754 encodes its interchange formats. Exponents are counted as std::numeric_limits counts them.
template <int SignificandBits, int MinExponent, int MaxExponent>
struct ieee_format {
    static constexpr int significand_bits = SignificandBits;  ///< the implicit leading bit included
    static constexpr int min_exponent = MinExponent;          ///< the least normal number is 2^(min_exponent - 1)
    static constexpr int max_exponent = MaxExponent;          ///< all finite numbers are below 2^max_exponent
    static constexpr bool ieee_encoding = true;
    /// The bound on the relative error of rounding to nearest, for normal numbers.
    static constexpr double unit_roundoff = detail::power_of_two(-SignificandBits);
    static constexpr double max =
        (2 - detail::power_of_two(1 - SignificandBits)) * detail::power_of_two(MaxExponent - 1);
    static constexpr double min_normal = detail::power_of_two(MinExponent - 1);
    static constexpr double min_subnormal = detail::power_of_two(MinExponent - SignificandBits);
};

template <>
struct number_traits<double> : ieee_format<53, -1021, 1024> {
    static constexpr const char* name = "double";
};

template <>
struct number_traits<float> : ieee_format<24, -125, 128> {
    static constexpr const char* name = "float";
};

/// A type with number_traits.
template <class T>
concept number = std::is_trivially_copyable_v<T> && requires {
    number_traits<T>::name;
    number_traits<T>::significand_bits;
    number_traits<T>::unit_roundoff;
};

namespace detail {

template <class T>
struct storage_type {
    using type = T;
};
template <class T>
    requires requires { typename number_traits<T>::storage; }
struct storage_type<T> {
    using type = typename number_traits<T>::storage;
};

}  // namespace detail

/// The type in which numbers of T are stored in memory: T, or what its traits name as `storage`. A format of operands
/// alone,
/// such as tfloat32, is stored in a wider type and rounded by the kernel that multiplies.
template <number T>
using storage_of = typename detail::storage_type<T>::type;

/// A number of two bytes, such as matrix units take.
template <class T>
concept sixteen_bit = number<T> && sizeof(T) == 2;

/// A number of one byte.
template <class T>
concept eight_bit = number<T> && sizeof(T) == 1;

/// Half the distance from 1 to the next larger number: u in every error bound. See number_traits.
template <number T>
inline constexpr double unit_roundoff = number_traits<T>::unit_roundoff;

}  // namespace HALFTONE_ABI
}  // namespace halftone
