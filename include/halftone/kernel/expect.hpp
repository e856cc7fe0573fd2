// SPDX-License-Identifier: MIT
/// \file
/// Checks of kernels' arguments, with messages of one form:
///
///     layer_norm: gain is (128); expected (256)
#pragma once

#include <cstdint>
#include <type_traits>

#include <halftone/exec/measurement.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The addresses of a view's elements, from the first byte to the one behind the last; empty for a view without elements or data.
/// It is dense if every byte in between is one of an element.
struct address_span {
    std::uintptr_t first = 0, end = 0;
    bool is_dense = false;

    bool contains(std::uintptr_t address) const { return first <= address && address < end; }
};

inline address_span address_span_of(const void* data, std::size_t element, int rank, const extent* extents,
                                    const extent* strides) {
    extent before = 0, between = 0, count = 1;
    for (int axis = 0; axis < rank; ++axis) {
        if (extents[axis] == 0) return {};
        const extent stride = strides[axis] < 0 ? -strides[axis] : strides[axis];
        if (strides[axis] < 0) before += (extents[axis] - 1) * stride;
        between += (extents[axis] - 1) * stride;
        if (stride != 0) count *= extents[axis];
    }
    if (data == nullptr) return {};
    const auto first = reinterpret_cast<std::uintptr_t>(data) - static_cast<std::uintptr_t>(before) * element;
    return {first, first + static_cast<std::uintptr_t>(between + 1) * element, count == between + 1};
}
template <class T, int Rank>
address_span address_span_of(const view<T, Rank>& v) {
    return address_span_of(v.data(), sizeof(T), Rank, v.shape().extents, v.strides().extents);
}

/// Whether two views have memory in common, as far as their spans tell: not where the elements of both have gaps, as columns of a
/// matrix have, in which those of the other may be, and not in calls that are measured.
inline bool share_memory(const address_span& a, const address_span& b) {
    if (measurement::is_under_way()) return false;
    if (a.end <= b.first || b.end <= a.first) return false;
    if (a.is_dense && b.is_dense) return true;
    const auto has_an_end_of = [](const address_span& x, const address_span& y) {
        return x.is_dense && (x.contains(y.first) || x.contains(y.end - 1));
    };
    return has_an_end_of(a, b) || has_an_end_of(b, a);
}

/// Whether each element of y, where it is computed, is the one of x that is read for it: x broadcast to y, as NumPy does.
template <class X, int RankX, class Y, int RankY>
bool are_same_elements(const view<X, RankX>& x, const view<Y, RankY>& y) {
    bool same = sizeof(X) == sizeof(Y) && static_cast<const void*>(x.data()) == static_cast<const void*>(y.data());
    for (int axis = 1; axis <= RankY; ++axis) {
        const extent of_x = axis <= RankX ? x.stride_of(axis <= RankX ? RankX - axis : 0) : 0;
        same = same && (y.extent_of(RankY - axis) == 1 || of_x == y.stride_of(RankY - axis));
    }
    return same;
}

}  // namespace detail

namespace kernel {

/// Throws shape_error if the view has another shape or is not contiguous.
template <class T, int Rank>
void expect(const char* operation, const char* argument, const view<T, Rank>& v, const shape<Rank>& expected) {
    if (!(v.shape() == expected))
        fail<shape_error>(operation, ": ", argument, " is ", v.shape(), "; expected ", expected);
    detail::expect_contiguous(operation, argument, v);
}

/// The same for an optional view: one without data passes.
template <class T, int Rank>
void expect_optional(const char* operation, const char* argument, const view<T, Rank>& v, const shape<Rank>& expected) {
    if (v.data() != nullptr) expect(operation, argument, v, expected);
}

/// For a view that is read while another one is written to. Throws shape_error if they have memory in common.
template <class X, int RankX, class Y, int RankY>
void expect_apart(const char* operation, const char* read, const view<X, RankX>& x, const char* written,
                  const view<Y, RankY>& y) {
    if (detail::share_memory(detail::address_span_of(x), detail::address_span_of(y)))
        fail<shape_error>(operation, ": ", read, " ", x.shape(), " is in the memory of ", written, " ", y.shape(),
                          ", which is written to while it is read; copy it first");
}
/// The same, except if each element is read where it is written: for operations in place.
template <class X, int RankX, class Y, int RankY>
void expect_apart_or_same(const char* operation, const char* read, const view<X, RankX>& x, const char* written,
                          const view<Y, RankY>& y) {
    if (!detail::are_same_elements(x, y)) expect_apart(operation, read, x, written, y);
}

/// As expect(), for a matrix with any leading dimension.
template <class T>
void expect_rows(const char* operation, const char* argument, const view<T, 2>& v, const shape<2>& expected) {
    if (!(v.shape() == expected))
        fail<shape_error>(operation, ": ", argument, " is ", v.shape(), "; expected ", expected);
    detail::expect_whole_rows(operation, argument, v);
}

/// The same for such a matrix that is written to.
template <class T>
void expect_written_rows(const char* operation, const char* argument, const view<T, 2>& v, const shape<2>& expected) {
    expect_rows(operation, argument, v, expected);
    detail::expect_elements_once(operation, argument, v);
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
