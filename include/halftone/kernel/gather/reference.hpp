// SPDX-License-Identifier: MIT
/// \file
/// The definition of gather and scatter_add, in double. p' is p with index[p] as its position along the axis.
///
///     reference::gather(x, axis, index, y);                // y[p] = x[p']
///     reference::scatter_add(from, axis, index, to);       // to[p'] += from[p]
#pragma once

#include <cstdint>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Calls f(p, q) for each position p of the index, where q is p'.
template <int Rank, class F>
void for_each_choice(const const_view<std::int32_t, Rank>& index, int axis, const F& f) {
    for (extent i = 0; i < index.size(); ++i) {
        shape<Rank> p{}, q{};
        extent rest = i;
        for (int a = Rank - 1; a >= 0; --a) p[a] = rest % index.extent_of(a), rest /= index.extent_of(a);
        extent at = 0;
        for (int a = 0; a < Rank; ++a) q[a] = p[a], at += p[a] * index.stride_of(a);
        q[axis] = index.data()[at];
        f(p, q);
    }
}
/// The element of a view at a position.
template <class T, int Rank>
T& element_at(const view<T, Rank>& v, const shape<Rank>& place) {
    extent at = 0;
    for (int a = 0; a < Rank; ++a) at += place[a] * v.stride_of(a);
    return v.data()[at];
}

/// y has the index's shape.
template <class X, int Rank, class Y>
void gather(const view<X, Rank>& x, int axis, const const_view<std::int32_t, Rank>& index, const view<Y, Rank>& y) {
    for_each_choice(index, axis, [&](const shape<Rank>& p, const shape<Rank>& q) {
        element_at(y, p) = static_cast<Y>(static_cast<double>(element_at(x, q)));
    });
}
/// `from` has the index's shape.
template <class X, int Rank, class Y>
void scatter_add(const view<X, Rank>& from, int axis, const const_view<std::int32_t, Rank>& index,
                 const view<Y, Rank>& to) {
    for_each_choice(index, axis, [&](const shape<Rank>& p, const shape<Rank>& q) {
        Y& sum = element_at(to, q);
        sum = static_cast<Y>(static_cast<double>(sum) + static_cast<double>(element_at(from, p)));
    });
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
