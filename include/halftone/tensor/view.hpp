// SPDX-License-Identifier: MIT
/// \file
/// A view is a pointer with extents and strides; it owns nothing. Every kernel takes views, and users make them of
/// memory that they own.
///
///     ht::view<float, 2> weights{pointer, {rows, columns}};      // row-major, contiguous
///     auto t = ht::transpose(weights);                           // (columns, rows), of the same memory
#pragma once

#include <span>
#include <type_traits>
#include <utility>

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Names the number type with the same bits as a foreign type, so that views accept pointers to the latter:
/// <halftone/kernel.cuh> specialises it for `__half` and `__nv_bfloat16`. Specialise it for types of your own.
template <class T>
struct stands_for {
    using type = T;
};
template <class T>
struct stands_for<const T> {
    using type = const typename stands_for<T>::type;
};
/// The number type with the same bits as T: T itself if stands_for is not specialised.
template <class T>
using stands_for_t = typename stands_for<T>::type;

/// A pointer with Rank extents and strides, in elements. A shape that check_shape rejects throws shape_error on the
/// host, so no operation meets a negative extent or an overflowing number of elements. Strides may be 0 (one element
/// appears at all indices, as PyTorch's expand makes it) or negative (`data` is then not the first element in memory).
/// A view that an operation writes to must contain each element once.
template <class T, int Rank>
class view {
  public:
    using value_type = std::remove_const_t<T>;
    static constexpr int rank = Rank;

    view() = default;
    /// A contiguous row-major view.
    HALFTONE_HD constexpr view(T* data, const halftone::shape<Rank>& shape) : data_(data), shape_(shape) {
        expect_possible_shape();
        extent step = 1;
        for (int axis = Rank - 1; axis >= 0; --axis) {
            strides_[axis] = step;
            step *= shape[axis];
        }
    }
    /// A view with strides, in elements.
    HALFTONE_HD constexpr view(T* data, const halftone::shape<Rank>& shape, const halftone::shape<Rank>& strides)
        : data_(data), shape_(shape), strides_(strides) {
        expect_possible_shape();
    }
    /// A contiguous view of memory of a foreign type (see stands_for).
    template <class U>
        requires(!std::is_same_v<const U, const T> && std::is_same_v<const stands_for_t<U>, const T> &&
                 (std::is_const_v<T> || !std::is_const_v<U>))
    view(U* data, const halftone::shape<Rank>& shape) : view(reinterpret_cast<T*>(data), shape) {
        static_assert(sizeof(U) == sizeof(T) && alignof(U) >= alignof(T),
                      "halftone: stands_for names a type of another size or alignment");
    }
    /// A contiguous view of a span's elements. Throws shape_error if the span's size differs from the shape's.
    template <class U, std::size_t Extent>
        requires(std::is_constructible_v<view, U*, const halftone::shape<Rank>&>)
    view(const std::span<U, Extent>& elements, const halftone::shape<Rank>& shape) : view(elements.data(), shape) {
        if (size() != static_cast<extent>(elements.size()))
            fail<shape_error>("view: a span of ", elements.size(), " elements as ", shape);
    }
    /// A view of const elements, from a view of mutable ones.
    template <class U>
        requires(std::is_same_v<const U, T>)
    HALFTONE_HD constexpr view(const view<U, Rank>& other)  // NOLINT(google-explicit-constructor)
        : data_(other.data()), shape_(other.shape()), strides_(other.strides()) {}

    HALFTONE_HD constexpr T* data() const { return data_; }
    HALFTONE_HD constexpr const halftone::shape<Rank>& shape() const { return shape_; }
    HALFTONE_HD constexpr const halftone::shape<Rank>& strides() const { return strides_; }
    /// The number of elements along an axis.
    HALFTONE_HD constexpr extent extent_of(int axis) const { return shape_[axis]; }
    /// The distance in memory, in elements, between neighbouring indices of an axis.
    HALFTONE_HD constexpr extent stride_of(int axis) const { return strides_[axis]; }
    HALFTONE_HD constexpr extent size() const { return shape_.size(); }

    /// The element at the given indices.
    template <class... Indices>
    HALFTONE_HD constexpr T& operator()(Indices... indices) const {
        static_assert(sizeof...(Indices) == Rank, "halftone: a view takes as many indices as its rank");
        extent offset = 0;
        int axis = 0;
        ((offset += static_cast<extent>(indices) * strides_[axis++]), ...);
        return data_[offset];
    }

    /// The size of the bounding span: elements of memory from the first to the last one, gaps included.
    HALFTONE_HD constexpr extent bounding_size() const {
        extent between = 0;
        for (int axis = 0; axis < Rank; ++axis) between += (shape_[axis] - 1) * magnitude(strides_[axis]);
        return size() == 0 ? 0 : between + 1;
    }
    /// The distance from the first element in memory to `data`: 0 unless a stride is negative.
    HALFTONE_HD constexpr extent elements_before() const {
        extent before = 0;
        for (int axis = 0; axis < Rank; ++axis) {
            if (strides_[axis] < 0) before -= (shape_[axis] - 1) * strides_[axis];
        }
        return size() == 0 ? 0 : before;
    }

    /// Whether the elements are contiguous in row-major order; true for an empty view.
    HALFTONE_HD constexpr bool is_contiguous() const {
        extent step = 1;
        for (int axis = Rank - 1; axis >= 0; --axis) {
            if (shape_[axis] != 1 && strides_[axis] != step) return size() == 0;
            step *= shape_[axis];
        }
        return true;
    }

    /// Whether no element appears at two indices, decided by the strides: each must exceed the span of all axes of
    /// smaller stride. Also false where axes interleave without sharing elements; operations are never asked to write
    /// to such a view.
    HALFTONE_HD constexpr bool shows_elements_once() const {
        if (is_contiguous()) return true;
        extent spanned = 1, last_step = 0;  // of the axes so far: their span, and the largest stride
        for (int seen = 0; seen < Rank; ++seen) {
            int next = -1;
            for (int axis = 0; axis < Rank; ++axis) {
                if (shape_[axis] == 1 || (seen > 0 && magnitude(strides_[axis]) <= last_step)) continue;
                if (next < 0 || magnitude(strides_[axis]) < magnitude(strides_[next])) next = axis;
            }
            int alike = 0;  // number of axes with this stride: two would share elements
            for (int axis = 0; axis < Rank && next >= 0; ++axis)
                alike += shape_[axis] != 1 && magnitude(strides_[axis]) == magnitude(strides_[next]) ? 1 : 0;
            if (next < 0) return true;
            last_step = magnitude(strides_[next]);
            if (alike > 1 || last_step < spanned) return false;
            spanned += (shape_[next] - 1) * last_step;
        }
        return true;
    }

  private:
    HALFTONE_HD static constexpr extent magnitude(extent stride) { return stride < 0 ? -stride : stride; }
    HALFTONE_HD constexpr void expect_possible_shape() const {
#if !defined(__CUDA_ARCH__)
        if (!detail::is_possible(shape_)) detail::refuse_shape("view", shape_);
#endif
    }

    T* data_ = nullptr;
    halftone::shape<Rank> shape_{}, strides_{};
};

template <class T, int Rank>
view(T*, shape<Rank>) -> view<stands_for_t<T>, Rank>;
template <class T, std::size_t Extent, int Rank>
view(std::span<T, Extent>, shape<Rank>) -> view<stands_for_t<T>, Rank>;

/// A view of const elements: what kernels read.
template <class T, int Rank>
using const_view = view<const T, Rank>;

/// A view of anything that has one: a view, a tensor, a std::span.
template <class T, int Rank>
HALFTONE_HD constexpr view<T, Rank> as_view(const view<T, Rank>& v) {
    return v;
}
template <class T, std::size_t Extent>
constexpr view<stands_for_t<T>, 1> as_view(const std::span<T, Extent>& s) {
    return {s.data(), {static_cast<extent>(s.size())}};
}

/// The view's memory with the last two axes exchanged.
template <class T, int Rank>
HALFTONE_HD constexpr view<T, Rank> transpose(const view<T, Rank>& v) {
    static_assert(Rank >= 2, "halftone: a transpose needs at least two axes");
    shape<Rank> s = v.shape(), t = v.strides();
    s[Rank - 1] = v.extent_of(Rank - 2), s[Rank - 2] = v.extent_of(Rank - 1);
    t[Rank - 1] = v.stride_of(Rank - 2), t[Rank - 2] = v.stride_of(Rank - 1);
    return {v.data(), s, t};
}

/// The matrix at `index` along the first axis.
template <class T>
HALFTONE_HD constexpr view<T, 2> matrix(const view<T, 3>& v, extent index) {
    return {v.data() + index * v.stride_of(0), {v.extent_of(1), v.extent_of(2)}, {v.stride_of(1), v.stride_of(2)}};
}

namespace detail {

/// Throws shape_error unless a view is contiguous, with the same sentence everywhere: "flatten: the view (2, 4) is not
/// contiguous; its strides are ...".
template <class T, int Rank>
void expect_contiguous(const char* operation, const char* argument, const view<T, Rank>& v) {
    if (v.is_contiguous()) return;
    fail<shape_error>(operation, ": ", argument, " ", v.shape(), " is not contiguous; its strides are ", v.strides());
}
template <class T>
void expect_whole_rows(const char* operation, const char* argument, const view<T, 2>& v) {
    if (v.stride_of(1) == 1 || v.extent_of(1) <= 1 || v.extent_of(0) == 0) return;
    fail<shape_error>(operation, ": ", argument, " ", v.shape(), " has gaps within its rows; its strides are ",
                      v.strides());
}
/// Throws shape_error for a view that is written to if an element appears twice.
template <class T, int Rank>
void expect_elements_once(const char* operation, const char* argument, const view<T, Rank>& v) {
    if (v.shows_elements_once()) return;
    fail<shape_error>(operation, ": ", argument, " ", v.shape(), " is written to and overlaps itself; its strides are ",
                      v.strides());
}

}  // namespace detail

/// A contiguous view as a matrix (rows, last extent), as row-wise kernels take it. Throws shape_error for any other
/// view.
template <class T, int Rank>
view<T, 2> as_rows(const view<T, Rank>& v) {
    static_assert(Rank >= 1, "halftone: rows need at least one axis");
    detail::expect_contiguous("as_rows", "the view", v);
    extent rows = 1;
    for (int axis = 0; axis + 1 < Rank; ++axis) rows *= v.extent_of(axis);
    return {v.data(), {rows, v.extent_of(Rank - 1)}};
}

/// A contiguous view as one axis. Throws shape_error for any other view.
template <class T, int Rank>
view<T, 1> flatten(const view<T, Rank>& v) {
    detail::expect_contiguous("flatten", "the view", v);
    return {v.data(), {v.size()}};
}

namespace detail {

/// Anything that has a view: views, tensors, spans.
template <class T>
concept viewable = requires(const T& x) {
    as_view(x);
};
template <class T>
using view_of = decltype(as_view(std::declval<const T&>()));

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
