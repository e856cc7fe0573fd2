// SPDX-License-Identifier: MIT
/// \file
/// What the library knows about a number type: all its error bounds come from here.
///
///     static_assert(ht::unit_roundoff<ht::bfloat16> == 1.0 / 256);
///
/// A type of your own takes part as soon as it has traits; it converts to float implicitly and from float explicitly:
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

/// Specialise it for a number type, best by way of `ieee_format`.
template <class T>
struct number_traits;

/// The traits, all but the name, of a binary format with one sign bit, subnormal numbers, infinities and NaNs, encoded
/// as IEEE 754 encodes its interchange formats. Exponents count as those of std::numeric_limits do.
template <int SignificandBits, int MinExponent, int MaxExponent>
struct ieee_format {
    static constexpr int significand_bits = SignificandBits;  ///< with the hidden bit
    static constexpr int min_exponent = MinExponent;          ///< the least normal number is 2^(min_exponent - 1)
    static constexpr int max_exponent = MaxExponent;          ///< all finite numbers are below 2^max_exponent
    static constexpr bool ieee_encoding = true;
    /// The bound of the relative error of rounding to nearest, in the range of normal numbers.
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

/// The type in which numbers of T lie in memory: T, or what its traits name as `storage`. A format of operands alone,
/// such as tfloat32, is read out of a wider type, and whoever multiplies rounds.
template <number T>
using storage_of = typename detail::storage_type<T>::type;

/// A number of two bytes: what storage and matrix units take.
template <class T>
concept sixteen_bit = number<T> && sizeof(T) == 2;

/// A number of one byte.
template <class T>
concept eight_bit = number<T> && sizeof(T) == 1;

/// Half the distance from 1 to the next number: u in every error bound. See number_traits.
template <number T>
inline constexpr double unit_roundoff = number_traits<T>::unit_roundoff;

}  // namespace HALFTONE_ABI
}  // namespace halftone
