// SPDX-License-Identifier: MIT
/// \file
/// Tensors that an expression reads by index: the slopes of heads, the documents of positions, a table of biases.
///
///     const auto slope = ht::lookup(slopes), document = ht::lookup(ids);       // (heads), (batch, time)
///     [=](auto score, auto head, auto query, auto key) { return score + slope(head) * (key - query); }
///     [=](auto batch, auto head, auto query, auto key) { return document(batch, query) == document(batch, key); }
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <halftone/kernel/map/expression/expression.hpp>
#include <halftone/kernel/map/expression/scalar.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/number/in_float.hpp>
#include <halftone/tensor/tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Element (index...) of a tensor, evaluated like an opaque functor. An index beyond an end is clamped to it, because
/// vectors may extend beyond the last key.
template <class T, int Rank>
struct lookup_function {
    static constexpr int rank = Rank;
    const T* data;
    extent extents[Rank], strides[Rank];

    template <class V, class... More>
    HALFTONE_HD V operator()(V first, More... more) const {
        const V index[] = {first, more...};
        extent at = 0;
        for (int axis = 0; axis < Rank; ++axis) at += within(index[axis], extents[axis]) * strides[axis];
        return static_cast<V>(number(at));
    }
    /// The value of an element.
    HALFTONE_HD auto number(extent at) const {
        if constexpr (std::is_same_v<T, double>) {
            return data[at];
        } else {
            return detail::in_float(data[at]);
        }
    }
    template <class V>
    HALFTONE_HD static extent within(V index, extent count) {
        if (!(index > V(0))) return 0;  // also for NaN
        return index < static_cast<V>(count) ? static_cast<extent>(index) : count - 1;
    }
};

/// The result of ht::lookup.
template <class T, int Rank>
struct lookup_table {
    lookup_function<T, Rank> function;

    /// The element at these indices, which are numbers or expressions, as an expression.
    template <class... Index>
        requires(sizeof...(Index) == Rank && (symbolic::detail::operand<Index> && ...))
    HALFTONE_HD constexpr auto operator()(const Index&... index) const {
        return symbolic::external<lookup_function<T, Rank>, symbolic::detail::lifted<Index>...>{
            function, make_pack(symbolic::detail::lift(index)...)};
    }
};

/// Calls f(a lookup_function) for each tensor that an expression reads.
struct each_lookup {
    template <class E, class F>
    static void in(const E&, const F&) {}
    template <class Op, class A, class F>
    static void in(const symbolic::unary<Op, A>& e, const F& f) {
        in(e.operand, f);
    }
    template <class Op, class A, class B, class F>
    static void in(const symbolic::binary<Op, A, B>& e, const F& f) {
        in(e.left, f), in(e.right, f);
    }
    template <class Op, class A, class B, class F>
    static void in(const symbolic::comparison<Op, A, B>& e, const F& f) {
        in(e.left, f), in(e.right, f);
    }
    template <class Op, class A, class B, class F>
    static void in(const symbolic::logical<Op, A, B>& e, const F& f) {
        in(e.left, f), in(e.right, f);
    }
    template <class A, class F>
    static void in(const symbolic::complement<A>& e, const F& f) {
        in(e.operand, f);
    }
    template <class C, class A, class B, class F>
    static void in(const symbolic::choice<C, A, B>& e, const F& f) {
        in(e.condition, f), in(e.yes, f), in(e.no, f);
    }
    template <class T, int Rank, class... A, class F>
    static void in(const symbolic::external<lookup_function<T, Rank>, A...>& e, const F& f) {
        f(e.function);
        in_operands(e.operands, f, std::index_sequence_for<A...>{});
    }
    template <class Function, class... A, class F>
    static void in(const symbolic::external<Function, A...>& e, const F& f) {
        in_operands(e.operands, f, std::index_sequence_for<A...>{});
    }

  private:
    template <class Operands, class F, std::size_t... Index>
    static void in_operands(const Operands& operands, const F& f, std::index_sequence<Index...>) {
        (in(operands.template at<Index>(), f), ...);
    }
};

/// Throws shape_error if a tensor that an expression reads is in the memory of what is written, in a call on a device.
template <class Device, class E, class Written>
void expect_lookups_apart(Device& device, const char* operation, const E& e, const char* written, const Written& y) {
    if (device.scratch().is_measuring()) return;
    each_lookup::in(e, [&]<class T, int Rank>(const lookup_function<T, Rank>& l) {
        const char* const type = &type_tag<std::remove_const_t<T>>;
        const named_elements read{"a function's tensor", -1, l.data, sizeof(T), type, Rank, l.extents, l.strides};
        expect_apart(operation, read, elements_of(written, as_view(y)));
    });
}

}  // namespace detail

/// A tensor whose elements expressions read by index: lookup(slopes)(head). It gets no gradient. An index is a whole
/// number; an index beyond an end is clamped to it. The tensor must be in the memory of the device that evaluates the
/// expression, and must stay unchanged until the backward pass has run. Throws shape_error for a tensor without
/// elements.
template <class V>
    requires detail::viewable<V>
auto lookup(const V& values) {
    const auto v = as_view(values);
    using T = typename decltype(v)::value_type;
    constexpr int rank = std::remove_const_t<decltype(v)>::rank;
    static_assert(rank > 0, "halftone: lookup: a tensor of rank 0 has no index; capture the number");
    if (v.size() == 0) fail<shape_error>("lookup: shape ", v.shape(), " has no element");
    detail::lookup_function<T, rank> f{v.data(), {}, {}};
    for (int axis = 0; axis < rank; ++axis) f.extents[axis] = v.extent_of(axis), f.strides[axis] = v.stride_of(axis);
    return detail::lookup_table<T, rank>{f};
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
