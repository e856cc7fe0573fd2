// SPDX-License-Identifier: MIT
/// \file
/// Axes of a tensor, known at compile time: the argument that PyTorch calls `dim`.
///
///     auto totals = ht::sum(ctx, x, ht::axes<1>);                    // x: (rows, columns), totals: (rows)
///     auto means = ht::mean(ctx, x, ht::axes<0, -1>, ht::keepdim);   // -1 is the last axis; x: (2, 3, 4), means: (1, 3, 1)
///
/// An axis that the tensor does not have, or one that is named twice, does not compile.
#pragma once

#include <array>
#include <cstddef>

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The type of `ht::axes<...>`.
template <int... Axes>
struct axis_list {
    static constexpr int count = sizeof...(Axes);
};
/// Some axes of a tensor, in order; negative ones count from the end.
template <int... Axes>
inline constexpr axis_list<Axes...> axes{};

/// The type of `ht::keepdim`.
struct keep_axes {};
/// Passed to a reduction: the result keeps the reduced axes with extent 1, as `keepdim=True` in PyTorch.
inline constexpr keep_axes keepdim{};

namespace detail {

/// A list of axes of a tensor of rank Rank, normalised to numbers from 0. A list with a wrong axis does not compile.
template <int Rank, int... Axes>
struct resolved_axes {
    static_assert(((Axes >= -Rank && Axes < Rank) && ...),
                  "halftone: ht::axes<...> names an axis that the tensor does not have: a tensor of rank R has the axes 0 to R - 1, "
                  "or, counted from the end, -R to -1");
    static constexpr std::size_t count = sizeof...(Axes);
    static constexpr std::array<int, count> values{(Axes < 0 ? Axes + Rank : Axes)...};

    /// Whether the axis is in the list.
    static constexpr bool contains(int axis) {
        for (const int value : values) {
            if (value == axis) return true;
        }
        return false;
    }
    static constexpr bool has_duplicates() {
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t j = 0; j < i; ++j) {
                if (values[i] == values[j]) return true;
            }
        }
        return false;
    }
    static_assert(!has_duplicates(), "halftone: ht::axes<...> names one axis twice");
};
template <int Rank, int... Axes>
constexpr resolved_axes<Rank, Axes...> resolve_axes(axis_list<Axes...>) {
    return {};
}

/// The one axis of a list, from 0.
template <int Rank, int... Axes>
constexpr int only_axis(axis_list<Axes...>) {
    static_assert(sizeof...(Axes) == 1, "halftone: this operation works along one axis: ht::axes<1>");
    return resolved_axes<Rank, Axes...>::values[0];
}

/// The shape without the listed axes.
template <int... Axes, int Rank>
constexpr shape<Rank - static_cast<int>(sizeof...(Axes))> without_axes(const shape<Rank>& s, axis_list<Axes...>) {
    using resolved = resolved_axes<Rank, Axes...>;
    shape<Rank - static_cast<int>(sizeof...(Axes))> rest{};
    int at = 0;
    for (int axis = 0; axis < Rank; ++axis) {
        if (!resolved::contains(axis)) rest[at++] = s[axis];
    }
    return rest;
}
/// The shape with extent 1 along the listed axes.
template <int... Axes, int Rank>
constexpr shape<Rank> with_ones(shape<Rank> s, axis_list<Axes...>) {
    using resolved = resolved_axes<Rank, Axes...>;
    for (const int axis : resolved::values) s[axis] = 1;
    return s;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
