// SPDX-License-Identifier: MIT
/// \file
/// Views of the same memory with axes permuted, parts of an axis, axes of extent 1 added or removed, and broadcast
/// axes. Names and arguments are PyTorch's; nothing is copied.
///
///     auto heads = ht::transpose(v, ht::axes<1, 2>);              // (batch, time, heads, size) -> (batch, heads, time, size)
///     auto odd = ht::slice(v, ht::axes<-1>, 1, 100, 2);           // v[..., 1:100:2]
///     auto rows = ht::expand(bias, ht::shape<2>{1000, width});    // one row for all, by strides of 0
///
/// The same functions with a context as first argument take variables (autodiff/op/shapes.hpp). ht::contiguous(device,
/// v, out) makes a copy.
#pragma once

#include <algorithm>

#include <halftone/number/integer.hpp>
#include <halftone/tensor/axes.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// `start` and `stop` of Python's x[start:stop]: negative numbers count from the end, and numbers beyond an end are
/// clamped to it.
struct index_range {
    extent start, count;
};
inline index_range range_of(const char* what, extent size, extent start, extent stop, extent step) {
    if (step < 1)
        fail<argument_error>(what, ": a step of ", step, "; expected 1 or more, and ht::flip turns an axis round");
    const auto within = [size](extent i) { return std::clamp<extent>(i < 0 ? i + size : i, 0, size); };
    const extent first = within(start), last = within(stop);
    return {first, last <= first ? 0 : ceil_div(last - first, step)};
}
inline extent checked_index(const char* what, extent size, extent index) {
    if (index < -size || index >= size)
        fail<argument_error>(what, ": index ", index, " along an axis of ", size, "; expected ", -size, " to ",
                             size - 1);
    return index < 0 ? index + size : index;
}
inline extent checked_start(const char* what, extent size, extent start, extent length) {
    const extent first = start < 0 ? start + size : start;
    if (first < 0 || length < 0 || first > size || length > size - first)
        fail<argument_error>(what, ": ", length, " from ", start, " along an axis of ", size, " go beyond it");
    return first;
}

/// Some positions along an axis, at a constant distance.
template <class T, int Rank>
view<T, Rank> part_of_axis(const view<T, Rank>& v, int axis, extent start, extent count, extent step) {
    shape<Rank> s = v.shape(), strides = v.strides();
    s[axis] = count;
    strides[axis] *= step;
    return {count == 0 ? v.data() : v.data() + start * v.stride_of(axis), s, strides};
}

}  // namespace detail

/// torch.permute: axis i of the result is axis `order[i]` of v.
template <class T, int Rank, int... Order>
view<T, Rank> permute(const view<T, Rank>& v, axis_list<Order...> order) {
    static_assert(sizeof...(Order) == Rank,
                  "halftone: permute names every axis once, in their new order: ht::axes<0, 2, 1>");
    constexpr auto from = decltype(detail::resolve_axes<Rank>(order))::values;
    shape<Rank> s{}, strides{};
    for (int axis = 0; axis < Rank; ++axis) {
        s[axis] = v.extent_of(from[static_cast<std::size_t>(axis)]);
        strides[axis] = v.stride_of(from[static_cast<std::size_t>(axis)]);
    }
    return {v.data(), s, strides};
}
/// torch.transpose: the view with two axes exchanged.
template <class T, int Rank, int A, int B>
view<T, Rank> transpose(const view<T, Rank>& v, axis_list<A, B> both) {
    constexpr auto pair = decltype(detail::resolve_axes<Rank>(both))::values;
    shape<Rank> s = v.shape(), strides = v.strides();
    std::swap(s[pair[0]], s[pair[1]]);
    std::swap(strides[pair[0]], strides[pair[1]]);
    return {v.data(), s, strides};
}

/// x[start:stop:step] along an axis, as in Python: negative numbers count from the end, and numbers beyond an end are
/// clamped to it. Throws argument_error for a step below 1.
template <class T, int Rank, int... Axis>
view<T, Rank> slice(const view<T, Rank>& v, axis_list<Axis...> along, extent start, extent stop, extent step = 1) {
    const int axis = detail::only_axis<Rank>(along);
    const auto [first, count] = detail::range_of("slice", v.extent_of(axis), start, stop, step);
    return detail::part_of_axis(v, axis, first, count, step);
}
/// torch.narrow: `length` positions along an axis, from `start` on; a negative start counts from the end. Throws
/// argument_error if the positions exceed the axis.
template <class T, int Rank, int... Axis>
view<T, Rank> narrow(const view<T, Rank>& v, axis_list<Axis...> along, extent start, extent length) {
    const int axis = detail::only_axis<Rank>(along);
    return detail::part_of_axis(v, axis, detail::checked_start("narrow", v.extent_of(axis), start, length), length, 1);
}
/// torch.select: one position along an axis, which the result does not have; a negative position counts from the end.
/// Throws argument_error.
template <class T, int Rank, int... Axis>
view<T, Rank - 1> select(const view<T, Rank>& v, axis_list<Axis...> along, extent index) {
    static_assert(Rank > 0, "halftone: select takes an axis away, and a single value has none");
    const int axis = detail::only_axis<Rank>(along);
    const extent at = detail::checked_index("select", v.extent_of(axis), index);
    return {v.data() + at * v.stride_of(axis), detail::without_axes(v.shape(), along),
            detail::without_axes(v.strides(), along)};
}
/// torch.flip: in reverse order along these axes, by negative strides.
template <class T, int Rank, int... Axes>
view<T, Rank> flip(const view<T, Rank>& v, axis_list<Axes...>) {
    shape<Rank> strides = v.strides();
    extent offset = 0;
    for (const int axis : detail::resolved_axes<Rank, Axes...>::values) {
        if (v.extent_of(axis) > 0) offset += (v.extent_of(axis) - 1) * strides[axis];
        strides[axis] = -strides[axis];
    }
    return {v.size() == 0 ? v.data() : v.data() + offset, v.shape(), strides};
}

/// torch.squeeze: without these axes, each of extent 1. Throws shape_error if an axis has another extent.
template <class T, int Rank, int... Axes>
view<T, Rank - static_cast<int>(sizeof...(Axes))> squeeze(const view<T, Rank>& v, axis_list<Axes...> gone) {
    for (const int axis : detail::resolved_axes<Rank, Axes...>::values) {
        if (v.extent_of(axis) != 1)
            fail<shape_error>("squeeze: axis ", axis, " of ", v.shape(), " has ", v.extent_of(axis),
                              " elements; expected 1");
    }
    return {v.data(), detail::without_axes(v.shape(), gone), detail::without_axes(v.strides(), gone)};
}
/// torch.unsqueeze: with additional axes of extent 1, at these positions of the result.
template <class T, int Rank, int... Axes>
view<T, Rank + static_cast<int>(sizeof...(Axes))> unsqueeze(const view<T, Rank>& v, axis_list<Axes...>) {
    constexpr int to = Rank + static_cast<int>(sizeof...(Axes));
    using added = detail::resolved_axes<to, Axes...>;
    shape<to> s{}, strides{};
    for (int axis = to - 1, from = Rank - 1; axis >= 0; --axis) {
        const bool is_new = added::contains(axis);
        s[axis] = is_new ? 1 : v.extent_of(from);
        strides[axis] = is_new ? (axis + 1 < to ? s[axis + 1] * strides[axis + 1] : 1) : v.stride_of(from);
        if (!is_new) --from;
    }
    return {v.data(), s, strides};
}

namespace detail {

/// Whether NumPy's rules broadcast a tensor of shape `from` to `to`: from the last axis on, extents are equal or that
/// of `from` is 1; axes in front may be missing.
template <int From, int To>
constexpr bool can_expand(const shape<From>& from, const shape<To>& to) {
    for (int axis = 1; axis <= From; ++axis) {
        if (axis > To || (from[From - axis] != 1 && from[From - axis] != to[To - axis])) return false;
    }
    return true;
}
/// The strides with which a view of shape `s` broadcasts a view of shape `from`.
template <int From, int To>
shape<To> expanded_strides(const shape<From>& from, const shape<From>& strides, const shape<To>& s) {
    shape<To> result{};
    for (int axis = 1; axis <= From; ++axis)
        result[To - axis] = from[From - axis] == 1 && s[To - axis] != 1 ? 0 : strides[From - axis];
    return result;
}
/// The shape with an extent of 1 for each missing axis in front.
template <int To, int From>
constexpr shape<To> lifted(const shape<From>& s) {
    shape<To> all{};
    for (int axis = 0; axis < To; ++axis) all[axis] = axis < To - From ? 1 : s[axis - (To - From)];
    return all;
}

template <int Rank, int To>
void add_to_broadcast(const char* operation, shape<To>& all, const shape<Rank>& s) {
    for (int axis = 1; axis <= Rank; ++axis) {
        extent& e = all[To - axis];
        if (e == s[Rank - axis] || s[Rank - axis] == 1) continue;
        if (e != 1) {
            fail<shape_error>(operation, ": the shapes ", all, " and ", s,
                              " do not go together: from the last axis on, extents have to be equal, or one of them 1");
        }
        e = s[Rank - axis];
    }
}
/// The shape to which NumPy's rules broadcast operands with these shapes. Throws shape_error.
template <int First, int... Rest>
shape<std::max({First, Rest...})> broadcast_shape(const char* operation, const shape<First>& first,
                                                  const shape<Rest>&... rest) {
    auto all = lifted<std::max({First, Rest...})>(first);
    (add_to_broadcast(operation, all, rest), ...);
    return all;
}

}  // namespace detail

/// torch.expand: the view broadcast to a shape by NumPy's rules, with strides of 0. An extent of -1 keeps the view's
/// extent. Throws shape_error.
template <class T, int Rank, int To>
view<T, To> expand(const view<T, Rank>& v, shape<To> s) {
    static_assert(To >= Rank, "halftone: expand adds axes in front, and takes none away");
    for (int axis = 1; axis <= Rank; ++axis) {
        if (s[To - axis] == -1) s[To - axis] = v.extent_of(Rank - axis);
    }
    if (!detail::can_expand(v.shape(), s)) {
        fail<shape_error>("expand: ", v.shape(), " as ", s,
                          ": from the last axis on, extents have to be equal, or the former's 1");
    }
    return {v.data(), s, detail::expanded_strides(v.shape(), v.strides(), s)};
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
