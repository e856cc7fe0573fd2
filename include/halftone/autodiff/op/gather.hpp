// SPDX-License-Identifier: MIT
/// \file
/// Elements chosen along an axis by an index, and sums to where an index says, with their gradients: gather, index_select,
/// take_along_dim, scatter_add, index_add.
///
///     auto y = ht::gather(ctx, x, ht::axes<1>, index);                   // y[i][j] = x[i][index[i][j]]
///     auto y = ht::index_select(ctx, x, ht::axes<0>, rows);              // y[i][j] = x[rows[i]][j]
///     auto y = ht::scatter_add(ctx, x, ht::axes<1>, index, source);      // x, and source[i][j] added at [i][index[i][j]]
///     auto y = ht::index_add(ctx, x, ht::axes<0>, rows, source);         // x, and source[i] added to row rows[i]
///
/// An index is of std::int32_t: a variable, or a view, which may lie in host memory; what the device can reach must stay until
/// the backward pass is through. Where the host can read it an index outside the axis throws argument_error, elsewhere what
/// it chooses is NaN, and what it adds goes nowhere. Negative ones are outside.
///
/// The gradient of what is chosen is added up where it came from, and that of what is added is chosen: each is the other's
/// gradient, as often as it is differentiated. gather, index_select and take_along_dim also take an x of std::int32_t, such as
/// topk's indices, which has no gradient.
///
/// Numeric contract: kernel/gather's: sums in float, in an order that follows from the index, one rounding. Results have their
/// inputs' type in every region; of scatter_add the widest of both and of the region's (PyTorch's category).
#pragma once

#include <tuple>

#include <halftone/autodiff/engine/rule.hpp>
#include <halftone/autodiff/op/join.hpp>
#include <halftone/kernel/gather/gather.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The type and rank of what is given as an index, and that as a variable on the device.
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

/// y's rows are rows of x, by number; both are flattened to rows of `width` elements.
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
    void backward(Tape& tape) {
        if (!dy.is_there()) return;
        const auto& dx = std::get<0>(gradients);
        if (const auto to = tape.gradient_target(dx)) {
            kernel::gather<typename Tape::device_type>::add(
                tape.device(), as_const(numbers.view()), as_table(as_const(dy.view()), width),
                as_table(view<X, XRank>(to.data, dx.shape()), width), to.mode);
        }
        tape.finish(dy);
    }
};

/// y is `base`, or 0, and rows of `from` added to its rows, by number.
template <class Op, class Gradients, class X, int XRank, class Y, int Rank>
struct add_rows_record {
    using operation = Op;
    using reads = reads_nothing;
    static constexpr int roundings = 1;
    static constexpr bool has_base = std::tuple_size_v<Gradients> == 2;
    variable<std::int32_t, 1> numbers;
    extent width;
    Gradients gradients;  ///< of base, where it is there, and from
    gradient_of<Y, Rank> dy;

    extent sum_length() const { return numbers.size() + 1; }
    const auto& dfrom() const { return std::get<has_base ? 1 : 0>(gradients); }

    template <class Tape>
    void backward(Tape& tape) {
        if (!dy.is_there()) return;
        contribute(tape, dfrom(), [&](const view<X, XRank>& out) {
            kernel::gather<typename Tape::device_type>::forward(
                tape.device(), as_const(numbers.view()), as_table(as_const(dy.view()), width), as_table(out, width));
        });
        if constexpr (has_base) give_base(tape, std::get<0>(gradients));
        tape.finish(dy);
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

/// The rows of x with these numbers as a result of shape s; numbers() is called once the result is there.
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

/// base, or zeros, of shape s, and the rows of `from` added to those with these numbers.
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
    static void run(Tape& tape, const choose_rows_record<Op, X, XRank, Y, Rank>& r) {
        if (!tape.has(r.dy)) return;
        const variable<Y, Rank> dy = tape.take(r.dy);
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
    static void run(Tape& tape, const record& r) {
        if (!tape.has(r.dy)) return;
        const variable<Y, Rank> dy = tape.take(r.dy);
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

// ---- what the operations have in common

/// Gives the row numbers of a layout, in memory of the context's.
template <class Op, int Rank>
auto numbers_of(const kernel::gather_layout& layout, const variable<std::int32_t, Rank>& index) {
    return [layout, index](auto& root) {
        auto numbers = root.template make<std::int32_t>(shape<1>{layout.rows()}, false);
        kernel::gather<typename std::remove_cvref_t<decltype(root)>::device_type>::row_numbers(
            root.device(), Op::name, layout, as_const(flatten(index)), numbers.view());
        return numbers;
    };
}

/// Indices may be chosen from, too, and stay what they are.
template <class Op, class As, class P, class X>
struct chosen_type {
    using type = chosen_output<As, P, Op, X>;
};
template <class Op, class As, class P>
struct chosen_type<Op, As, P, std::int32_t> {
    using type = std::int32_t;
};

/// x at the places of a result of shape s, but for the axis, along which the index, of shape i, says where.
template <class Op, class As, class Context, class X, int Rank, int IndexRank>
auto choose(Context&& context, const variable<X, Rank>& x, int axis, const variable<std::int32_t, IndexRank>& index,
            const shape<Rank>& i, const shape<Rank>& s) {
    using Y = typename chosen_type<Op, As, policy_of<Context>, X>::type;
    const kernel::gather_layout layout = kernel::gather_layout_of(x.shape(), axis, i, s);
    return choose_rows<Op, Y>(context, x, s, layout.width, numbers_of<Op>(layout, index));
}
/// x, with `from`, of shape s, added at its places, but for the axis, along which the index, of shape i, says where.
template <class Op, class Y, class Context, class X, int Rank, class S, int IndexRank>
auto add_at(Context&& context, const variable<X, Rank>& x, int axis, const variable<std::int32_t, IndexRank>& index,
            const shape<Rank>& i, const variable<S, Rank>& from) {
    const kernel::gather_layout layout = kernel::gather_layout_of(x.shape(), axis, i, from.shape());
    return add_rows<Op, Y>(context, x.shape(), x, from, layout.width, numbers_of<Op>(layout, index));
}

/// The extents of tensors that stretch to each other's along axes where one of them has 1. Throws shape_error.
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

/// y[p] = x[p], but for the axis, along which index[p] says where; in the index's shape, whose extents are x's at most but
/// for the axis: torch.gather(x, axis, index). The index: variable or view of std::int32_t, of x's rank. Recorded with its
/// gradient by x. Throws shape_error and argument_error.
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

/// The slices of x along the axis that the index names, in its order: torch.index_select(x, axis, index). The index is of
/// rank 1, of any length; a slice may be named several times. Recorded with its gradient by x. Throws argument_error.
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

/// As gather, where along the other axes x or the index may have extent 1 and stretches to the other's extent:
/// torch.take_along_dim(x, index, axis). Throws shape_error and argument_error.
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

/// x, with source[p] added at p, but for the axis, along which index[p] says where: torch.scatter_add(x, axis, index, source).
/// source and the index have one shape, whose extents are x's at most but for the axis. What meets in one place is summed
/// in float, in an order that follows from the index, and rounded once. Recorded with its gradients by x and source. Throws
/// shape_error and argument_error.
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

/// x, with the slices of source along the axis added to those that the index names: torch.index_add(x, axis, index, source).
/// source has x's shape, but for the axis, along which it is as long as the index. The result has x's type, whatever the
/// source's. Sums, gradients and errors as of scatter_add.
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
