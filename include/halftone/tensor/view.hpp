// SPDX-License-Identifier: MIT
/// \file
/// A view is a pointer with extents and strides: what every kernel takes, and what a user makes of memory that is
/// already there. It owns nothing.
///
///     ht::view<float, 2> weights{pointer, {rows, columns}};      // row-major, contiguous
///     auto t = ht::transpose(weights);                           // (columns, rows), the same memory
#pragma once

#include <span>
#include <type_traits>
#include <utility>

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Says of a foreign type which number type it holds bit for bit, so that views take pointers to it:
/// <halftone/kernel.cuh> says it of `__half` and `__nv_bfloat16`. Specialise it for your own.
template <class T>
struct stands_for {
    using type = T;
};
template <class T>
struct stands_for<const T> {
    using type = const typename stands_for<T>::type;
};
/// The number type that T holds bit for bit: T itself where nothing is said of it.
template <class T>
using stands_for_t = typename stands_for<T>::type;

/// On the host, a shape that check_shape refuses throws shape_error: no operation sees a negative extent, nor a number of
/// elements that overflows. Strides are in elements; they may be 0, so that one element stands for many, and negative,
/// where `data` is not the first element in memory. What operations write to shows each element once.
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
    /// A contiguous view of memory that a foreign type names.
    template <class U>
        requires(!std::is_same_v<const U, const T> && std::is_same_v<const stands_for_t<U>, const T> &&
                 (std::is_const_v<T> || !std::is_const_v<U>))
    view(U* data, const halftone::shape<Rank>& shape) : view(reinterpret_cast<T*>(data), shape) {
        static_assert(sizeof(U) == sizeof(T) && alignof(U) >= alignof(T),
                      "halftone: stands_for names a type of another size or alignment");
    }
    /// A contiguous view of a span's elements. Throws shape_error where their number is another.
    template <class U, std::size_t Extent>
        requires(std::is_constructible_v<view, U*, const halftone::shape<Rank>&>)
    view(const std::span<U, Extent>& elements, const halftone::shape<Rank>& shape) : view(elements.data(), shape) {
        if (size() != static_cast<extent>(elements.size()))
            fail<shape_error>("view: a span of ", elements.size(), " elements as ", shape);
    }
    /// A view of constants out of a view of variables.
    template <class U>
        requires(std::is_same_v<const U, T>)
    HALFTONE_HD constexpr view(const view<U, Rank>& other)  // NOLINT(google-explicit-constructor)
        : data_(other.data()), shape_(other.shape()), strides_(other.strides()) {}

    HALFTONE_HD constexpr T* data() const { return data_; }
    HALFTONE_HD constexpr const halftone::shape<Rank>& shape() const { return shape_; }
    HALFTONE_HD constexpr const halftone::shape<Rank>& strides() const { return strides_; }
    /// The number of elements along an axis.
    HALFTONE_HD constexpr extent extent_of(int axis) const { return shape_[axis]; }
    /// How many elements of memory there are from one index to the next along an axis.
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

    /// How many elements of memory there are from the first to the last one, gaps among them.
    HALFTONE_HD constexpr extent bounding_size() const {
        extent between = 0;
        for (int axis = 0; axis < Rank; ++axis) between += (shape_[axis] - 1) * magnitude(strides_[axis]);
        return size() == 0 ? 0 : between + 1;
    }
    /// How many elements before `data` the first one in memory lies: 0 but for negative strides.
    HALFTONE_HD constexpr extent elements_before() const {
        extent before = 0;
        for (int axis = 0; axis < Rank; ++axis) {
            if (strides_[axis] < 0) before -= (shape_[axis] - 1) * strides_[axis];
        }
        return size() == 0 ? 0 : before;
    }

    /// True where the elements lie next to each other in row-major order, and where there are none.
    HALFTONE_HD constexpr bool is_contiguous() const {
        extent step = 1;
        for (int axis = Rank - 1; axis >= 0; --axis) {
            if (shape_[axis] != 1 && strides_[axis] != step) return size() == 0;
            step *= shape_[axis];
        }
        return true;
    }

    /// True where every stride steps over all that the axes of smaller strides span, so that no element is shown twice.
    /// False where one is, and where axes interleave, which no operation is asked to write.
    HALFTONE_HD constexpr bool shows_elements_once() const {
        if (is_contiguous()) return true;
        extent spanned = 1, last_step = 0;  // by the axes seen so far; the step of the last of them
        for (int seen = 0; seen < Rank; ++seen) {
            int next = -1;
            for (int axis = 0; axis < Rank; ++axis) {
                if (shape_[axis] == 1 || (seen > 0 && magnitude(strides_[axis]) <= last_step)) continue;
                if (next < 0 || magnitude(strides_[axis]) < magnitude(strides_[next])) next = axis;
            }
            int alike = 0;  // axes of this step: of two, one shows what the other does
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

/// A view of constants: what kernels read.
template <class T, int Rank>
using const_view = view<const T, Rank>;

/// The view of something that shows memory: a view itself, a tensor, a std::span.
template <class T, int Rank>
HALFTONE_HD constexpr view<T, Rank> as_view(const view<T, Rank>& v) {
    return v;
}
template <class T, std::size_t Extent>
constexpr view<stands_for_t<T>, 1> as_view(const std::span<T, Extent>& s) {
    return {s.data(), {static_cast<extent>(s.size())}};
}

/// The same memory with the last two axes exchanged.
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

/// Throw shape_error, in the same words everywhere: "flatten: the view (2, 4) is not contiguous; its strides are ...".
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
/// Of what is written to: no element is shown twice.
template <class T, int Rank>
void expect_elements_once(const char* operation, const char* argument, const view<T, Rank>& v) {
    if (v.shows_elements_once()) return;
    fail<shape_error>(operation, ": ", argument, " ", v.shape(), " is written to and overlaps itself; its strides are ",
                      v.strides());
}

}  // namespace detail

/// A contiguous view as (rows, last extent): what row-wise kernels take. Throws shape_error for a view with holes.
template <class T, int Rank>
view<T, 2> as_rows(const view<T, Rank>& v) {
    static_assert(Rank >= 1, "halftone: rows need at least one axis");
    detail::expect_contiguous("as_rows", "the view", v);
    extent rows = 1;
    for (int axis = 0; axis + 1 < Rank; ++axis) rows *= v.extent_of(axis);
    return {v.data(), {rows, v.extent_of(Rank - 1)}};
}

/// A contiguous view as one axis. Throws shape_error for a view with holes.
template <class T, int Rank>
view<T, 1> flatten(const view<T, Rank>& v) {
    detail::expect_contiguous("flatten", "the view", v);
    return {v.data(), {v.size()}};
}

namespace detail {

/// What an operation takes for a view: views, tensors, spans.
template <class T>
concept viewable = requires(const T& x) {
    as_view(x);
};
template <class T>
using view_of = decltype(as_view(std::declval<const T&>()));

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
