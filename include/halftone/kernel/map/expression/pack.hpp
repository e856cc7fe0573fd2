// SPDX-License-Identifier: MIT
/// \file
/// A fixed list of values of different types, as std::tuple, but usable in kernels: std::tuple does not work on a GPU.
///
///     auto both = ht::make_pack(1, 2.0f);
///     both.at<1>() == 2.0f
#pragma once

#include <cstddef>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Values of various types: a std::tuple that can be a kernel's argument.
template <class... T>
struct pack {
    static constexpr std::size_t count = 0;
};

template <class First, class... Rest>
struct pack<First, Rest...> {
    static constexpr std::size_t count = 1 + sizeof...(Rest);
    First first;
    pack<Rest...> rest;

    /// The element with that index.
    template <std::size_t Index>
    HALFTONE_HD HALFTONE_INLINE constexpr const auto& at() const {
        static_assert(Index < count, "halftone: a pack has no element of this index");
        if constexpr (Index == 0) {
            return first;
        } else {
            return rest.template at<Index - 1>();
        }
    }
};

/// A pack of these values.
HALFTONE_HD constexpr pack<> make_pack() { return {}; }
template <class First, class... Rest>
HALFTONE_HD constexpr pack<First, Rest...> make_pack(const First& first, const Rest&... rest) {
    return {first, make_pack(rest...)};
}

namespace detail {

/// Whether T is a pack.
template <class T>
inline constexpr bool is_pack = false;
template <class... T>
inline constexpr bool is_pack<pack<T...>> = true;

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
