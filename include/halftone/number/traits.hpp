// SPDX-License-Identifier: MIT
/// \file
/// What the library knows about a number type; all error bounds are computed from these traits.
///
///     static_assert(ht::unit_roundoff<ht::bfloat16> == 1.0 / 256);
///
/// A number type of your own has traits, is trivially copyable, of one, two or four bytes, converts to float implicitly
/// and exactly, and has an explicit constructor from float that rounds to nearest:
///
///     template <>
///     struct halftone::number_traits<my_float16> : halftone::ieee_format<10, -29, 32> {
///         static constexpr const char* name = "my_float16";
///     };
///
/// It may then be a role of a policy, and an operand of every kernel. number/check_number_type.hpp tests whether a type
/// keeps what its traits say. A type that float does not hold converts to and from double instead, and may be the type of
/// parameters alone (wide_number below).
#pragma once

#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/number/bits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Traits of a number type. Specialise it for your own by inheriting from `ieee_format` or `fixed_format`, and change what
/// differs. A number x whose magnitude is at most `max` is rounded with an error of at most
/// unit_roundoff |x| + min_subnormal / 2.
template <class T>
struct number_traits;

/// The traits, except the name, of a binary format with one sign bit, subnormal numbers, infinities and NaNs, encoded
/// as IEEE 754 encodes its interchange formats. Exponents are counted as std::numeric_limits counts them.
template <int SignificandBits, int MinExponent, int MaxExponent>
struct ieee_format {
    static constexpr int significand_bits = SignificandBits;  ///< the implicit leading bit included
    static constexpr int min_exponent = MinExponent;          ///< the least normal number is 2^(min_exponent - 1)
    static constexpr int max_exponent = MaxExponent;          ///< all finite numbers are below 2^max_exponent
    static constexpr bool ieee_encoding = true;
    /// Whether the numbers are all multiples of min_subnormal with that many significant bits, up to `max`. A format
    /// whose numbers lie elsewhere, such as a logarithmic one, says false; the three fields above then describe the least
    /// such format that has all of its numbers.
    static constexpr bool ieee_spacing = true;
    static constexpr bool has_infinity = true;  ///< a number beyond the largest becomes infinity
    static constexpr bool has_nan = true;       ///< without infinity it becomes NaN; without both, the largest number
    /// The bound on the relative error of rounding to nearest, for normal numbers.
    static constexpr double unit_roundoff = detail::power_of_two(-SignificandBits);
    static constexpr double max =
        (2 - detail::power_of_two(1 - SignificandBits)) * detail::power_of_two(MaxExponent - 1);
    static constexpr double min_normal = detail::power_of_two(MinExponent - 1);
    static constexpr double min_subnormal = detail::power_of_two(MinExponent - SignificandBits);
};

/// The traits, except the name, of a fixed-point format: multiples of 2^-FractionBits below 2^IntegerBits in magnitude,
/// without infinities and NaNs. Numbers beyond the largest become the largest.
template <int IntegerBits, int FractionBits>
struct fixed_format : ieee_format<IntegerBits + FractionBits, IntegerBits, IntegerBits> {
    static constexpr bool ieee_encoding = false;
    static constexpr bool has_infinity = false;
    static constexpr bool has_nan = false;
    static constexpr double unit_roundoff = 0;
};

template <>
struct number_traits<double> : ieee_format<53, -1021, 1024> {
    static constexpr const char* name = "double";
    static constexpr bool of_library = true;
};

template <>
struct number_traits<float> : ieee_format<24, -125, 128> {
    static constexpr const char* name = "float";
    static constexpr bool of_library = true;
};

namespace detail {

template <class T>
concept has_traits = requires {
    number_traits<T>::name;
    number_traits<T>::significand_bits + number_traits<T>::min_exponent + number_traits<T>::max_exponent;
    number_traits<T>::unit_roundoff + number_traits<T>::max + number_traits<T>::min_normal + number_traits<T>::min_subnormal;
    number_traits<T>::ieee_spacing && number_traits<T>::has_infinity&& number_traits<T>::has_nan;
};

}  // namespace detail

/// A type with number_traits.
template <class T>
concept number = std::is_trivially_copyable_v<T> && detail::has_traits<T>;

namespace detail {

/// Number types of the library: those that kernels convert by instructions of their own.
template <class T>
inline constexpr bool of_library = requires { number_traits<T>::of_library; };

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

/// A number type of a user's own: one that is not the library's.
template <class T>
concept own_number = number<T> && !detail::of_library<T>;

/// A number type of a user's own that float does not hold, but double does, to and from which it converts. Parameters may have
/// it (role `param`): optimizers step over them in double, and operands are copies that are rounded once from the double.
template <class T>
concept wide_number = own_number<T> &&(number_traits<T>::significand_bits > number_traits<float>::significand_bits ||
                                       number_traits<T>::max_exponent > number_traits<float>::max_exponent ||
                                       number_traits<T>::min_exponent < number_traits<float>::min_exponent);

namespace detail {

/// Types with operator double() const of their own, besides what they convert to. A concept, since nvcc's front end finds this
/// expression false when a consteval function, instantiated while a class is, asks it.
template <class T>
concept has_operator_double = requires(const T& x) {
    x.operator double();
};

}  // namespace detail

/// A number of two bytes, such as matrix units take.
template <class T>
concept sixteen_bit = number<T> && sizeof(T) == 2;

/// A number of one byte.
template <class T>
concept eight_bit = number<T> && sizeof(T) == 1;

/// True, or a compile-time error that says why T is no number type.
template <class T>
consteval bool check_number() {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>,
                  "halftone: a number type is copied byte by byte, and left as it is in new memory: this one is not "
                  "trivially copyable, or not trivially default constructible; leave its copies, its destructor and its "
                  "default constructor to the compiler (= default)");
    static_assert(detail::has_traits<T>,
                  "halftone: this type has no traits and is thus no number type: take float, double or one of the "
                  "library's, or, for a type of your own, specialise ht::number_traits and inherit from ht::ieee_format, as "
                  "number/traits.hpp shows");
    if constexpr (detail::has_traits<T>) {
        static_assert(number_traits<T>::name != nullptr && *number_traits<T>::name != 0,
                      "halftone: a number type has a name in its traits, by which files know it: static constexpr "
                      "const char* name");
    }
    return true;
}

/// True, or a compile-time error that says why kernels cannot compute with numbers of T.
template <class T>
consteval bool check_computable() {
    static_assert(check_number<T>());
    if constexpr (own_number<T>) {
        static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4,
                      "halftone: a number type of your own has one, two or four bytes");
        static_assert(std::is_convertible_v<T, float> && std::is_constructible_v<T, float> &&
                          !std::is_convertible_v<float, T>,
                      "halftone: a number type of your own converts to float implicitly, and has an explicit constructor "
                      "from float: operator float() const, and explicit my_number(float)");
        static_assert(
            !wide_number<T>,
            "halftone: kernels compute with numbers of your own type in float, which does not hold all of this "
            "one's: its traits state more significand_bits than 24, or a range beyond float's; only parameters "
            "(role `param`) can have it");
    }
    return true;
}

/// True, or a compile-time error that says why parameters cannot have the type T.
template <class T>
consteval bool check_storable() {
    static_assert(check_number<T>());
    if constexpr (wide_number<T>) {
        static_assert(sizeof(T) == 4, "halftone: a number type of your own that float does not hold has four bytes");
        static_assert(
            std::is_convertible_v<T, double> && std::is_constructible_v<T, double> && !std::is_convertible_v<double, T>,
            "halftone: a number type of your own that float does not hold converts to double implicitly, and has "
            "an explicit constructor from double: operator double() const, and explicit my_number(double)");
        static_assert(
            detail::has_operator_double<T>,
            "halftone: a number type of your own that float does not hold has operator double() const, and no "
            "conversion to "
            "float, which would round it");
        static_assert(
            number_traits<T>::significand_bits <= number_traits<double>::significand_bits &&
                number_traits<T>::max_exponent <= number_traits<double>::max_exponent &&
                number_traits<T>::min_exponent >= number_traits<double>::min_exponent,
            "halftone: optimizers step over numbers of your own type in double at most, which does not hold all of "
            "this one's: its traits state more significand_bits than 53, or a range beyond double's");
        return true;
    } else {
        return check_computable<T>();
    }
}

/// Half the distance from 1 to the next larger number: u in every error bound. See number_traits.
template <number T>
inline constexpr double unit_roundoff = number_traits<T>::unit_roundoff;

}  // namespace HALFTONE_ABI
}  // namespace halftone
