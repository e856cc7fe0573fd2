// SPDX-License-Identifier: MIT
/// \file
/// Lists of layers whose length is known at run time, while rules may name single layers of them: "h.0", "h.last.attn".
///
/// A list of layers consists of one type for all layers without a rule of their own, with policy at<at<P, "h">, "*">,
/// and one type for each index that a rule names, with at<at<P, "h">, index_name(0)> and so on. `class_of` says which
/// of these types the i-th layer has.
///
///     using mine = ht::recipe<ht::amp_bf16, ht::rule<"h.last", ht::full_fp32>, ht::rule<"h.0.norm", ht::full_fp32>>;
///     static_assert(std::is_same_v<ht::detail::classes_of<mine, "h">::type, ht::indices<0, ht::detail::last_index>>);
#pragma once

#include <cstddef>
#include <utility>

#include <halftone/config.hpp>
#include <halftone/policy/path.hpp>
#include <halftone/policy/recipe.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Stands for "last" among indices.
inline constexpr int last_index = -1;

}  // namespace detail

/// The indices of a list that rules name.
template <int... Index>
struct indices {
    using type = indices;
    static constexpr std::size_t size = sizeof...(Index);

    /// The position among these indices of layer `i` of `count`; `size` if no rule names it. A layer that is named by
    /// its number and as "last" belongs to the later rule.
    static constexpr std::size_t class_of([[maybe_unused]] int i, [[maybe_unused]] int count) {
        std::size_t position = 0;
        // At most one term is true; the terms after it are not evaluated, so `position` stays as it is there.
        static_cast<void>((((Index == detail::last_index ? i == count - 1 : i == Index) || (++position, false)) || ...));
        return position;
    }
};

namespace detail {

inline constexpr int no_index = -2;

// The index that `text` begins with, as a whole component of a path.
constexpr int leading_index(const char* text) {
    if (text[0] == 'l' && text[1] == 'a' && text[2] == 's' && text[3] == 't' && (text[4] == 0 || text[4] == '.'))
        return detail::last_index;
    int value = 0;
    int digits = 0;
    while (text[digits] >= '0' && text[digits] <= '9' && digits < 9) value = 10 * value + (text[digits++] - '0');
    const bool canonical = digits == 1 || (digits > 1 && text[0] != '0');
    return canonical && (text[digits] == 0 || text[digits] == '.') ? value : no_index;
}

struct index_set {
    int data[64]{};
    std::size_t count = 0;

    // Moves `index` to the front, so that indices of later rules are found first.
    constexpr void put(int index) {
        std::size_t at = 0;
        while (at < count && data[at] != index) ++at;
        if (at == count) ++count;
        for (; at > 0; --at) data[at] = data[at - 1];
        data[0] = index;
    }

    // Collects every index that `pattern` names directly below a part that matches `list`.
    constexpr void collect(const path_name& pattern, const path_name& list) {
        path_name::characters text = pattern.text();
        const path_name::characters name = list.text();
        for (std::size_t i = 0; text.data[i] != 0; ++i) {
            if (text.data[i] != '.') continue;
            text.data[i] = 0;
            const int index = leading_index(text.data + i + 1);
            if (index != no_index && matches(text.data, name.data, glob_extent::whole)) put(index);
            text.data[i] = '.';
        }
    }
};

template <class Root, path_name List>
struct spelled_indices {
    static constexpr index_set value{};
};
template <class Default, class... Rules, path_name List>
struct spelled_indices<recipe<Default, Rules...>, List> {
    static constexpr index_set find() {
        index_set found;
        (found.collect(Rules::pattern, List), ...);
        return found;
    }
    static constexpr index_set value = find();
};

template <class Found, class Positions>
struct as_indices;
template <class Found, std::size_t... I>
struct as_indices<Found, std::index_sequence<I...>> {
    using type = indices<Found::value.data[I]...>;
};

template <class Found>
using as_indices_t = typename as_indices<Found, std::make_index_sequence<Found::value.count>>::type;

/// The indices that the rules of P name for the list called Name, as a class derived from indices<...>, its `type`: the
/// index of the last rule first, none for a plain policy, at most 64. It is a class template, not an alias, for the
/// reason that `at` is one.
template <class P, path_name Name>
struct classes_of : detail::as_indices_t<detail::spelled_indices<root_of<P>, path_of<at<P, Name>>>> {};

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
