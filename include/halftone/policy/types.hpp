// SPDX-License-Identifier: MIT
/// \file
/// A list of types, and the few operations on it that policies and models need.
///
///     using kinds = ht::types<float, ht::bfloat16>;
///     static_assert(kinds::size == 2);
#pragma once

#include <cstddef>
#include <type_traits>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A list of types; an object of it holds nothing.
template <class... Ts>
struct types {
    static constexpr std::size_t size = sizeof...(Ts);
};

namespace detail {

template <class... Lists>
struct concatenate {
    using type = types<>;
};
template <class... Ts>
struct concatenate<types<Ts...>> {
    using type = types<Ts...>;
};
template <class... Ts, class... Us, class... Rest>
struct concatenate<types<Ts...>, types<Us...>, Rest...> : concatenate<types<Ts..., Us...>, Rest...> {};

template <class Found, class... Ts>
struct distinct {
    using type = Found;
};
template <class... Found, class T, class... Rest>
struct distinct<types<Found...>, T, Rest...>
    : distinct<std::conditional_t<(std::is_same_v<Found, T> || ...), types<Found...>, types<Found..., T>>, Rest...> {};

template <class List>
struct unique;
template <class... Ts>
struct unique<types<Ts...>> : distinct<types<>, Ts...> {};

/// The lists one after another.
template <class... Lists>
using concatenate_t = typename concatenate<Lists...>::type;

/// The list without its repetitions, in the order of first appearance.
template <class List>
using unique_t = typename unique<List>::type;

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
