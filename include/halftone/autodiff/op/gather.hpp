// SPDX-License-Identifier: MIT
/// \file
/// Operations that choose elements along an axis by an index, or add elements at indexed places, with their gradients:
/// gather, index_select, take_along_dim, scatter_add, index_add.
///
///     auto y = ht::gather(ctx, x, ht::axes<1>, index);                   // y[i][j] = x[i][index[i][j]]
///     auto y = ht::index_select(ctx, x, ht::axes<0>, rows);              // y[i][j] = x[rows[i]][j]
///     auto y = ht::scatter_add(ctx, x, ht::axes<1>, index, source);      // x, and source[i][j] added at [i][index[i][j]]
///     auto y = ht::index_add(ctx, x, ht::axes<0>, rows, source);         // x, and source[i] added to row rows[i]
///
/// An index is a variable or a view of std::int32_t. A view may be in host memory; memory that the device can read must
/// stay unchanged until the backward pass has run. If the host can read an index outside the axis, it throws
/// argument_error; otherwise the element that it chooses is NaN, and the element that it would add is dropped. Negative
/// indices are outside.
///
/// The gradient of gathering is a scatter-add, and the gradient of a scatter-add is a gather, at any order of derivatives.
/// gather, index_select and take_along_dim also take an x of std::int32_t, such as topk's indices, which has no gradient.
///
/// Numeric contract: kernel/gather's: sums in float, in an order that follows from the index, rounded once. In every region
/// results have the type of their inputs; the result of scatter_add has the widest type among its inputs and the region's
/// `compute` (PyTorch's category).
#pragma once

#include <tuple>

#include <halftone/autodiff/engine/rule.hpp>
#include <halftone/autodiff/op/join.hpp>
#include <halftone/kernel/gather/gather.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The type and rank of an argument given as an index, and the index as a variable on the device.
template <class Root, int Rank>
const variable<std::int32_t, Rank>& index_to_device(Root&, const char*, const variable<std::int32_t, Rank>& index, extent) {
    return index;
}
template <class Root, class I, int Rank>
variable<std::int32_t, Rank> index_to_device(Root& root, const char* operation, const view<I, Rank>& index,
                                             extent choices) {
    static_assert(std::is_same_v<std::remove_const_t<I>, std::int32_t>,
                  "halftone: an index is a view or a variable of std::int32_t");
    return ids_to_device(root, operation, "index", const_view<std::int32_t, Rank>(index), choices);
}

/// The rows of y are rows of x, chosen by number; both are flattened to rows of `width` elements.
template <class Op, class X, int XRank, class Y, int Rank>
struct choose_rows_record {
    using operation = Op;
    using reads = reads_nothing;
    static constexpr int roundings = 1;
    variable<std::int32_t, 1> numbers;
    extent width;
    std::tuple<gradient_of<X, XRank>> gradients;
    gradient_of<Y, Rank> dy;

    extent sum_length() const { return numbers.size() + 1; }

    template <class Tape>
    void propagate(Tape& tape) {
        const auto& dx = std::get<0>(gradients);
        if (const auto to = tape.gradient_target(dx)) {
            kernel::gather<typename Tape::device_type>::add(
                tape.device(), as_const(numbers.view()), as_table(as_const(dy.view()), width),
                as_table(view<X, XRank>(to.data, dx.shape()), width), to.mode);
        }
    }
};

/// y is `base`, or 0, with the rows of `from` added to its rows, chosen by number.
template <class Op, class Gradients, class X, int XRank, class Y, int Rank>
struct add_rows_record {
    using operation = Op;
    using reads = reads_nothing;
    static constexpr int roundings = 1;
    static constexpr bool has_base = std::tuple_size_v<Gradients> == 2;
    variable<std::int32_t, 1> numbers;
    extent width;
    Gradients gradients;  ///< of base, if there is one, and of from
    gradient_of<Y, Rank> dy;

    extent sum_length() const { return numbers.size() + 1; }
    const auto& dfrom() const { return std::get<has_base ? 1 : 0>(gradients); }

    template <class Tape>
    void propagate(Tape& tape) {
        contribute(tape, dfrom(), [&](const view<X, XRank>& out) {
            kernel::gather<typename Tape::device_type>::forward(
                tape.device(), as_const(numbers.view()), as_table(as_const(dy.view()), width), as_table(out, width));
        });
        if constexpr (has_base) give_base(tape, std::get<0>(gradients));
    }

  private:
    template <class Tape, class B, int R>
    void give_base(Tape& tape, const gradient_of<B, R>& dbase) {
        if constexpr (std::is_same_v<B, Y>) {
            pass_gradient(tape, dy, dbase);
        } else if (const auto to = tape.gradient_target(dbase)) {
            const shape<2> row{1, dy.shape().size()};
            copy_rows(tape.device(), const_view<Y, 2>(dy.view().data(), row), view<B, 2>(to.data, row), to.mode);
        }
    }
};

/// The rows of x with these numbers, as a result of shape s; numbers() is called after the result is allocated.
template <class Op, class Y, class Context, class X, int XRank, int Rank, class Numbers>
variable<Y, Rank> choose_rows(Context&& context, const variable<X, XRank>& x, const shape<Rank>& s, extent width,
                              const Numbers& numbers) {
    auto& root = context.root();
    const bool wanted = x.wants_gradient();
    auto y = root.template make<Y>(s, wanted);
    const variable<std::int32_t, 1> rows = numbers(root);
    kernel::gather<typename std::remove_cvref_t<Context>::device_type>::forward(
        root.device(), as_const(rows.view()), as_table(as_const(x.view()), width), as_table(y.view(), width));
    if constexpr (std::remove_cvref_t<Context>::records && number<X>) {
        if (wanted)
            root.record(choose_rows_record<Op, X, XRank, Y, Rank>{rows, width, {gradient_of(x)}, gradient_of(y)});
    }
    return y;
}

/// base, or zeros, of shape s, with the rows of `from` added to the rows with these numbers.
template <class Op, class Y, class Context, int Rank, class Base, class X, int XRank, class Numbers>
variable<Y, Rank> add_rows(Context&& context, const shape<Rank>& s, const Base& base, const variable<X, XRank>& from,
                           extent width, const Numbers& numbers) {
    auto& root = context.root();
    const bool wanted = wants_gradient(base) || from.wants_gradient();
    auto y = root.template make<Y>(s, wanted);
    const variable<std::int32_t, 1> rows = numbers(root);
    if constexpr (!is_absent<Base>) {
        const shape<2> row{1, s.size()};
        copy_rows(root.device(), const_view<typename Base::value_type, 2>(base.view().data(), row),
                  view<Y, 2>(y.view().data(), row), write_mode::overwrite);
    }
    kernel::gather<typename std::remove_cvref_t<Context>::device_type>::add(
        root.device(), as_const(rows.view()), as_table(as_const(from.view()), width), as_table(y.view(), width),
        is_absent<Base> ? write_mode::overwrite : write_mode::add);
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (!wanted) return y;
        if constexpr (is_absent<Base>) {
            using gradients = std::tuple<gradient_of<X, XRank>>;
            root.record(add_rows_record<Op, gradients, X, XRank, Y, Rank>{
                rows, width, gradients{gradient_of(from)}, gradient_of(y)});
        } else {
            using gradients = std::tuple<gradient_of<typename Base::value_type, Rank>, gradient_of<X, XRank>>;
            root.record(add_rows_record<Op, gradients, X, XRank, Y, Rank>{
                rows, width, gradients{gradient_of(base), gradient_of(from)}, gradient_of(y)});
        }
    }
    return y;
}

// ---- gradients of gradients

template <class Op, class X, int XRank, class Y, int Rank>
struct rule<choose_rows_record<Op, X, XRank, Y, Rank>> {
    template <class Tape>
    static void run(Tape& tape, const choose_rows_record<Op, X, XRank, Y, Rank>& r, const variable<Y, Rank>& dy) {
        const auto& dx = std::get<0>(r.gradients);
        if (tape.takes(dx))
            tape.give(dx, add_rows<Op, X>(tape.inner(), dx.shape(), absent{}, dy, r.width,
                                          [&](auto&) { return r.numbers; }));
    }
};
template <class Op, class Gradients, class X, int XRank, class Y, int Rank>
struct rule<add_rows_record<Op, Gradients, X, XRank, Y, Rank>> {
    using record = add_rows_record<Op, Gradients, X, XRank, Y, Rank>;

    template <class Tape>
    static void run(Tape& tape, const record& r, const variable<Y, Rank>& dy) {
        if (tape.takes(r.dfrom()))
            tape.give(r.dfrom(), choose_rows<Op, X>(tape.inner(), dy, r.dfrom().shape(), r.width,
                                                    [&](auto&) { return r.numbers; }));
        if constexpr (record::has_base) give_base(tape, std::get<0>(r.gradients), dy);
    }

  private:
    template <class Tape, class B>
    static void give_base(Tape& tape, const gradient_of<B, Rank>& dbase, const variable<Y, Rank>& dy) {
        if (!tape.takes(dbase)) return;
        if constexpr (std::is_same_v<B, Y>) {
            tape.give(dbase, dy);
        } else {
            tape.give(dbase, evaluate<op::map, B>(tape.inner(), dy.shape(), symbolic::argument<0>{}, dy));
        }
    }
};

// ---- shared by the operations

/// Computes the row numbers of a layout, in memory of the context.
template <class Op, int Rank>
auto numbers_of(const kernel::gather_layout& layout, const variable<std::int32_t, Rank>& index) {
    return [layout, index](auto& root) {
        auto numbers = root.template make<std::int32_t>(shape<1>{layout.rows()}, false);
        kernel::gather<typename std::remove_cvref_t<decltype(root)>::device_type>::row_numbers(
            root.device(), Op::name, layout, as_const(flatten(index)), numbers.view());
        return numbers;
    };
}

/// The type of the chosen elements; std::int32_t for an x of indices, which is not cast.
template <class Op, class As, class P, class X>
struct chosen_type {
    using type = chosen_output<As, P, Op, X>;
};
template <class Op, class As, class P>
struct chosen_type<Op, As, P, std::int32_t> {
    using type = std::int32_t;
};

/// The elements of x at the positions of a result of shape s, except that the index, of shape i, gives the position
/// along the axis.
template <class Op, class As, class Context, class X, int Rank, int IndexRank>
auto choose(Context&& context, const variable<X, Rank>& x, int axis, const variable<std::int32_t, IndexRank>& index,
            const shape<Rank>& i, const shape<Rank>& s) {
    using Y = typename chosen_type<Op, As, policy_of<Context>, X>::type;
    const kernel::gather_layout layout = kernel::gather_layout_of(x.shape(), axis, i, s);
    return choose_rows<Op, Y>(context, x, s, layout.width, numbers_of<Op>(layout, index));
}
/// x, with `from`, of shape s, added at its positions, except that the index, of shape i, gives the position along the
/// axis.
template <class Op, class Y, class Context, class X, int Rank, class S, int IndexRank>
auto add_at(Context&& context, const variable<X, Rank>& x, int axis, const variable<std::int32_t, IndexRank>& index,
            const shape<Rank>& i, const variable<S, Rank>& from) {
    const kernel::gather_layout layout = kernel::gather_layout_of(x.shape(), axis, i, from.shape());
    return add_rows<Op, Y>(context, x.shape(), x, from, layout.width, numbers_of<Op>(layout, index));
}

/// The extents of two tensors that broadcast to each other along axes where one of them has extent 1. Throws shape_error.
template <int Rank>
shape<Rank> stretched(const char* operation, const shape<Rank>& x, const shape<Rank>& index, int axis) {
    shape<Rank> s = index;
    for (int a = 0; a < Rank; ++a) {
        if (a == axis) continue;
        if (x[a] != index[a] && x[a] != 1 && index[a] != 1)
            fail<shape_error>(operation, ": the index is ", index, ", the tensor ", x, "; along axis ", a,
                              " their extents are equal, or one of them is 1");
        if (index[a] == 1) s[a] = x[a];
    }
    return s;
}

}  // namespace detail

/// torch.gather(x, axis, index): y[p] = x[p'], where p' is p with index[p] as its position along the axis. The index is
/// a variable or view of std::int32_t with x's rank; apart from the axis its extents are at most x's. The result has
/// the index's shape. Recorded with the gradient with respect to x. Throws shape_error and argument_error.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axis, class Index>
    requires(Index::rank == Rank)
auto gather(Context&& context, const variable<X, Rank>& x, axis_list<Axis...> along, const Index& index) {
    const int axis = detail::only_axis<Rank>(along);
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::gather::name);
    detail::check_gather("gather", x.shape(), axis, index.shape());
    const auto chosen = detail::index_to_device(root, op::gather::name, index, x.shape()[axis]);
    return detail::choose<op::gather, As>(context, x, axis, chosen, index.shape(), index.shape());
}

/// torch.index_select(x, axis, index): the slices of x along the axis whose numbers the index has, in its order. The
/// index has rank 1 and any length; a slice may occur several times. Recorded with the gradient with respect to x.
/// Throws argument_error.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axis, class Index>
    requires(Index::rank == 1)
auto index_select(Context&& context, const variable<X, Rank>& x, axis_list<Axis...> along, const Index& index) {
    const int axis = detail::only_axis<Rank>(along);
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::index_select::name);
    const extent count = index.shape()[0];
    const auto chosen = detail::index_to_device(root, op::index_select::name, index, x.shape()[axis]);
    return detail::choose<op::index_select, As>(context, x, axis, chosen, detail::along_only<Rank>(axis, count),
                                                detail::selected_shape(x.shape(), axis, count));
}

/// torch.take_along_dim(x, index, axis): gather, with x and the index broadcast to each other along the other axes. Throws
/// shape_error and argument_error.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axis, class Index>
    requires(Index::rank == Rank)
auto take_along_dim(Context&& context, const variable<X, Rank>& x, axis_list<Axis...> along, const Index& index) {
    const int axis = detail::only_axis<Rank>(along);
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::take_along_dim::name);
    const shape<Rank> s = detail::stretched("take_along_dim", x.shape(), index.shape(), axis);
    const auto chosen = detail::index_to_device(root, op::take_along_dim::name, index, x.shape()[axis]);
    return detail::choose<op::take_along_dim, As>(context, x, axis, chosen, index.shape(), s);
}

/// torch.scatter_add(x, axis, index, source): x, with source[p] added at p', where p' is p with index[p] as its
/// position along the axis. source and the index have the same shape, whose extents apart from the axis are at most
/// x's. Elements added at the same position are summed in float, in an order that follows from the index, and rounded
/// once. Recorded with the gradients with respect to x and source. Throws shape_error and argument_error.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axis, class Index, class S>
    requires(Index::rank == Rank)
auto scatter_add(Context&& context, const variable<X, Rank>& x, axis_list<Axis...> along, const Index& index,
                 const variable<S, Rank>& source) {
    const int axis = detail::only_axis<Rank>(along);
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::scatter_add::name);
    detail::check_gather("scatter_add", x.shape(), axis, index.shape());
    if (!(source.shape() == index.shape()))
        fail<shape_error>("scatter_add: the source is ", source.shape(), "; expected the index's shape, ", index.shape());
    const auto chosen = detail::index_to_device(root, op::scatter_add::name, index, x.shape()[axis]);
    using Y = chosen_output<As, policy_of<Context>, op::scatter_add, X, S>;
    return detail::add_at<op::scatter_add, Y>(context, x, axis, chosen, index.shape(), source);
}

/// torch.index_add(x, axis, index, source): x, with the slices of source along the axis added to the slices whose
/// numbers the index has. source has x's shape, except along the axis, where it is as long as the index. The result has
/// x's type, whatever source's type. Sums, gradients and errors as for scatter_add.
template <class As = by_category, recording_context Context, class X, int Rank, int... Axis, class Index, class S>
    requires(Index::rank == 1)
auto index_add(Context&& context, const variable<X, Rank>& x, axis_list<Axis...> along, const Index& index,
               const variable<S, Rank>& source) {
    const int axis = detail::only_axis<Rank>(along);
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::index_add::name);
    const extent count = index.shape()[0];
    const shape<Rank> expected = detail::selected_shape(x.shape(), axis, count);
    if (!(source.shape() == expected))
        fail<shape_error>("index_add: the source is ", source.shape(), "; expected ", expected, ", for ", count,
                          " indices into ", x.shape());
    const auto chosen = detail::index_to_device(root, op::index_add::name, index, x.shape()[axis]);
    using Y = chosen_output<As, policy_of<Context>, op::index_add, X>;
    return detail::add_at<op::index_add, Y>(context, x, axis, chosen, detail::along_only<Rank>(axis, count), source);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
