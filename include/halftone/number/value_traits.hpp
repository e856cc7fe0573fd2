// SPDX-License-Identifier: MIT
/// \file
/// The traits of a number type at run time, and conversions of arrays of such numbers in host memory: for files and
/// reports, which meet types by their names.
///
///     const ht::value_traits& of = ht::value_traits_of<my_float16>;
///     of.widen(bytes, count, floats);                           // of.name, of.max, ...
#pragma once

#include <cstddef>

#include <halftone/number/round_to.hpp>
#include <halftone/number/saturate.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// number_traits, and conversions to and from float and double, each number rounded once to nearest. Every number type's numbers
/// are doubles; a wide_number's (number/traits.hpp) are rounded in a float.
struct value_traits {
    const char* name;
    std::size_t bytes;  ///< of one number
    int significand_bits, min_exponent, max_exponent;
    double max, min_normal, min_subnormal, unit_roundoff;
    bool ieee_spacing;
    bool has_infinity;           ///< numbers beyond the largest become infinite
    bool shows_overflow;         ///< they become infinite or NaN
    bool is_own;                 ///< a number type of a user's own
    float (*round)(float x);     ///< to the nearest number, as a float
    float (*saturate)(float x);  ///< to the nearest number, as a float; the largest number for larger ones
    void (*widen)(const void* from, std::size_t count, float* to);
    void (*narrow)(const float* from, std::size_t count, void* to);
    void (*to_doubles)(const void* from, std::size_t count, double* to);
    void (*from_doubles)(const double* from, std::size_t count, void* to);

    /// Whether the range ends before float's.
    constexpr bool is_short() const { return max_exponent < number_traits<float>::max_exponent; }
    /// Whether float has all of the numbers, so far as the least format that has them tells.
    constexpr bool is_held_by_float() const {
        using wide = number_traits<float>;
        return significand_bits <= wide::significand_bits && max_exponent <= wide::max_exponent &&
               min_exponent >= wide::min_exponent;
    }
    /// Whether the error of rounding is the same for all magnitudes, so that no number has fewer bits than others.
    constexpr bool is_fixed_point() const { return unit_roundoff == 0; }
};

namespace detail {

template <class T>
struct value_conversions {
    static float round(float x) { return static_cast<float>(static_cast<T>(x)); }
    static float saturate(float x) {
        if constexpr (number_traits<T>::significand_bits > number_traits<float>::significand_bits)
            return x;
        else
            return static_cast<float>(halftone::saturate<T>(x));
    }
    static void widen(const void* from, std::size_t count, float* to) {
        const T* const values = static_cast<const T*>(from);
        for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(values[i]);
    }
    static void narrow(const float* from, std::size_t count, void* to) {
        T* const values = static_cast<T*>(to);
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(from[i]);
    }
    static void to_doubles(const void* from, std::size_t count, double* to) {
        const T* const values = static_cast<const T*>(from);
        for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<double>(values[i]);
    }
    static void from_doubles(const double* from, std::size_t count, void* to) {
        T* const values = static_cast<T*>(to);
        for (std::size_t i = 0; i < count; ++i) values[i] = round_double<T>(from[i]);
    }
    static constexpr value_traits make() {
        using traits = number_traits<T>;
        return {traits::name,
                sizeof(T),
                traits::significand_bits,
                traits::min_exponent,
                traits::max_exponent,
                traits::max,
                traits::min_normal,
                traits::min_subnormal,
                traits::unit_roundoff,
                traits::ieee_spacing,
                traits::has_infinity,
                traits::has_infinity || traits::has_nan,
                own_number<T>,
                round,
                saturate,
                widen,
                narrow,
                to_doubles,
                from_doubles};
    }
};

}  // namespace detail

/// The value_traits of T, whose address identifies the type in a program.
template <number T>
inline constexpr value_traits value_traits_of = detail::value_conversions<T>::make();

}  // namespace HALFTONE_ABI
}  // namespace halftone
