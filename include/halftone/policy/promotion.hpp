// SPDX-License-Identifier: MIT
/// \file
/// Which number type holds all numbers of another, and the type that several types promote to.
///
/// Both follow from number_traits alone, so user-defined number types take part.
///
///     static_assert(ht::contains<float, ht::float16>);
///     static_assert(std::is_same_v<ht::promote<ht::float16, ht::bfloat16>, float>);   // neither holds the other
#pragma once

#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Wide has at least the significand and the exponent range of Narrow, and all numbers of such a format.
template <class Wide, class Narrow>
concept contains = number<Wide> && number<Narrow> &&
    (number_traits<Wide>::ieee_spacing || std::is_same_v<Wide, Narrow>)&&number_traits<Wide>::significand_bits >=
        number_traits<Narrow>::significand_bits&& number_traits<Wide>::max_exponent >=
        number_traits<Narrow>::max_exponent&& number_traits<Wide>::min_exponent <= number_traits<Narrow>::min_exponent;

namespace detail {

// The first candidate that holds both types, A before B; none is wider than double.
template <class A, class B>
using meet = std::conditional_t<
    contains<A, B>, A,
    std::conditional_t<contains<B, A>, B, std::conditional_t<contains<float, A> && contains<float, B>, float, double>>>;

template <class Found, class... Ts>
struct widest {
    using type = Found;
};
template <class T, class... Rest>
    requires number<T>
struct widest<void, T, Rest...> : widest<T, Rest...> {
};
template <class Found, class T, class... Rest>
    requires number<Found> && number<T>
struct widest<Found, T, Rest...> : widest<meet<Found, T>, Rest...> {
};
// Types that are no numbers (indices, masks) are skipped.
template <class Found, class T, class... Rest>
    requires(!number<T>)
struct widest<Found, T, Rest...> : widest<Found, Rest...> {};

}  // namespace detail

/// The narrowest type that holds all numbers of all Ts: one of the Ts if possible, else float, else double. Types that
/// are not numbers are skipped; void if no number type is among them.
template <class... Ts>
using promote = typename detail::widest<void, Ts...>::type;

}  // namespace HALFTONE_ABI
}  // namespace halftone
