// SPDX-License-Identifier: MIT
/// \file
/// Reshapes tensors, and joins them along an axis: reshape; cat along an existing axis, stack along a new one.
///
///     auto rows = ht::reshape(ctx, x, ht::shape<2>{n, width});           // the same memory and the same gradient
///     auto y = ht::cat(ctx, 1, a, b);                    // a: (rows, 3), b: (rows, 5), y: (rows, 8)
///     auto y = ht::stack(ctx, 0, a, b, c);               // each (rows, width), y: (3, rows, width)
///     auto y = ht::cat(ctx, ht::axes<-1>, a, b);         // the last axis, as ht::axes or as a number
///     auto y = ht::stack(ctx, 0, steps);                 // std::vector<ht::variable<float, 2>> steps, or a std::span of them
///
/// The result has the type that all inputs promote to, in every region (PyTorch's category), unless one is given
/// explicitly: ht::cat<float>(ctx, 0, a, b). Values are copied, and rounded once if that type is narrower.
#pragma once

#include <concepts>
#include <cstddef>
#include <tuple>
#include <vector>

#include <halftone/autodiff/op/pointwise.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// `to` = (or +=) `from`, by rows, with any leading dimensions.
template <class Device, class From, class To>
void copy_rows(Device& device, const view<From, 2>& from, const view<To, 2>& to, write_mode mode) {
    if (mode == write_mode::overwrite) {
        kernel::map<Device>::run(device, make_pack(symbolic::argument<0>{}), make_pack(to), make_pack(as_const(from)));
    } else {
        kernel::map<Device>::run(device, make_pack(symbolic::argument<0>{} + symbolic::argument<1>{}), make_pack(to),
                                 make_pack(as_const(to), as_const(from)));
    }
}

/// The layout of the inputs in the result: adjacent in each of `rows` rows.
struct join_layout {
    extent rows, columns;

    template <class T, int Rank>
    view<T, 2> part(const view<T, Rank>& all, extent begin, extent width) const {
        return {all.data() + begin, {rows, width}, {columns, 1}};
    }
    extent width_of(extent size) const { return rows == 0 ? 0 : size / rows; }
};

/// Calls f(x) for each of the inputs of a join, or of their gradients: a tuple, or as many of one type as there are at run
/// time.
template <class... X, class F>
void for_each_joined(const std::tuple<X...>& all, const F& f) {
    std::apply([&](const auto&... x) { (f(x), ...); }, all);
}
template <class X, class F>
void for_each_joined(const std::vector<X>& all, const F& f) {
    for (const X& x : all) f(x);
}

/// Gradients: a tuple or a vector of gradient_of.
template <class Op, class Y, int Rank, class Gradients>
struct join_record {
    using operation = Op;
    using reads = reads_nothing;  // the gradient is a copy of parts
    join_layout layout;
    Gradients gradients;
    gradient_of<Y, Rank> dy;

    template <class Tape>
    void propagate(Tape& tape) {
        extent begin = 0;
        for_each_joined(gradients, [&](const auto& dx) { give(tape, dx, begin); });
    }

  private:
    template <class Tape, class T, int R>
    void give(Tape& tape, const gradient_of<T, R>& dx, extent& begin) const {
        const extent width = layout.width_of(dx.shape().size());
        if (const auto to = tape.gradient_target(dx)) {
            copy_rows(tape.device(), layout.part(as_const(dy.view()), begin, width),
                      view<T, 2>(to.data, {layout.rows, width}), to.mode);
        }
        begin += width;
    }
};

/// The inputs of a join: variables of any types, or a run-time number of one type.
template <class... Inputs>
struct joined_inputs {
    template <class As, class P, class Op>
    using output = chosen_output<As, P, Op, typename Inputs::value_type...>;

    std::tuple<const Inputs&...> all;

    auto gradients() const {
        return std::apply([](const auto&... x) { return std::make_tuple(gradient_of(x)...); }, all);
    }
    template <class F>
    void each(const F& f) const {
        for_each_joined(all, f);
    }
};
template <class Input>
struct joined_list {
    template <class As, class P, class Op>
    using output = chosen_output<As, P, Op, typename Input::value_type>;

    const Input* first;
    std::size_t count;

    auto gradients() const {
        std::vector<gradient_of<typename Input::value_type, Input::rank>> all;
        each([&](const Input& x) { all.push_back(gradient_of(x)); });
        return all;
    }
    template <class F>
    void each(const F& f) const {
        for (std::size_t i = 0; i < count; ++i) f(first[i]);
    }
};

template <class Op, class As, class Context, int Rank, class Inputs>
auto join(Context&& context, const shape<Rank>& s, extent rows, const Inputs& inputs) {
    using Y = typename Inputs::template output<As, policy_of<Context>, Op>;
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(Op::name);
    bool wanted = false;
    inputs.each([&](const auto& x) { wanted = wanted || x.wants_gradient(); });
    auto y = root.template make<Y>(s, wanted);
    const join_layout layout{rows, rows == 0 ? 0 : s.size() / rows};
    extent begin = 0;
    inputs.each([&](const auto& x) {
        using X = typename std::remove_cvref_t<decltype(x)>::value_type;
        const extent width = layout.width_of(x.size());
        copy_rows(root.device(), const_view<X, 2>(x.view().data(), {rows, width}), layout.part(y.view(), begin, width),
                  write_mode::overwrite);
        begin += width;
    });
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            auto gradients = inputs.gradients();
            root.record(join_record<Op, Y, Rank, decltype(gradients)>{layout, std::move(gradients), gradient_of(y)});
        }
    }
    return y;
}

/// An axis counted from 0; negative ones count from the end, -1 is the last. Throws argument_error.
inline int checked_axis(const char* operation, int axis, int rank) {
    const int counted = axis < 0 ? axis + rank : axis;
    if (counted < 0 || counted >= rank)
        fail<argument_error>(operation, ": axis ", axis, " of a result of rank ", rank, "; expected ", -rank, " to ",
                             rank - 1);
    return counted;
}

}  // namespace detail

/// The values of x in another shape, without a copy. Throws shape_error for a shape of another size, and argument_error
/// for a variable of another context.
template <recording_context Context, class T, int Rank, int To>
variable<T, To> reshape(Context&& context, const variable<T, Rank>& x, const shape<To>& s) {
    check_shape("reshape", s);
    if (x.size() != s.size())
        fail<shape_error>("reshape: ", x.shape(), " has ", x.size(), " elements, ", s, " has ", s.size());
    if (&x.graph() != &context.root().graph())
        fail<argument_error>("reshape: a variable that belongs to another context");
    x.graph().retain(x.slot());
    return {x.graph(), x.slot(), s};
}

namespace detail {

/// A list of variables of one type whose length is known at run time: a std::vector, a std::span, an array.
template <class List>
concept list_of_variables = requires(const List& list) {
    { list.size() } -> std::convertible_to<std::size_t>;
    requires is_variable<std::remove_cvref_t<decltype(*list.data())>>;
};
template <list_of_variables List>
using variable_in = std::remove_cvref_t<decltype(*std::declval<const List&>().data())>;

/// The list as inputs of a join. Throws argument_error for an empty one.
template <class List>
joined_list<variable_in<List>> joined(const char* operation, const List& list) {
    if (list.size() == 0) fail<argument_error>(operation, ": the list of variables is empty; expected at least one");
    return {list.data(), list.size()};
}

template <class As, class Context, int Rank, class Inputs>
auto cat_along(Context&& context, int axis, const shape<Rank>& first, const Inputs& inputs) {
    static_assert(Rank > 0, "halftone: cat joins along an axis, which a single value does not have; stack adds one");
    const int along = checked_axis("cat", axis, Rank);
    shape<Rank> all = first;
    all[along] = 0;
    inputs.each([&](const auto& x) {
        const shape<Rank>& s = x.shape();
        for (int i = 0; i < Rank; ++i) {
            if (i != along && s[i] != all[i])
                fail<shape_error>("cat: along axis ", along, " ", s, " does not match ", first);
        }
        all[along] += s[along];
    });
    extent rows = 1;
    for (int i = 0; i < along; ++i) rows *= all[i];
    return join<op::cat, As>(context, all, rows, inputs);
}
template <class As, class Context, int Rank, class Inputs>
auto stack_along(Context&& context, int axis, const shape<Rank>& first, const Inputs& inputs) {
    const int along = checked_axis("stack", axis, Rank + 1);
    extent count = 0;
    inputs.each([&](const auto& x) {
        if (!(x.shape() == first)) fail<shape_error>("stack: one input is ", first, ", another ", x.shape());
        ++count;
    });
    shape<Rank + 1> all{};
    extent rows = 1;
    for (int i = 0; i <= Rank; ++i) all[i] = i == along ? count : first[i < along ? i : i - 1];
    for (int i = 0; i < along; ++i) rows *= all[i];
    return join<op::stack, As>(context, all, rows, inputs);
}

}  // namespace detail

/// The inputs, concatenated along an axis. Their other extents must be equal. Throws shape_error and
/// argument_error.
template <class As = by_category, recording_context Context, class First, int Rank, class... Rest>
    requires(detail::is_variable<Rest> && ...)
auto cat(Context&& context, int axis, const variable<First, Rank>& first, const Rest&... rest) {
    static_assert(((Rest::rank == Rank) && ...), "halftone: cat joins variables of one rank; stack adds an axis");
    return detail::cat_along<As>(context, axis, first.shape(),
                                 detail::joined_inputs<variable<First, Rank>, Rest...>{{first, rest...}});
}
/// As many variables as there are at run time, of one type, concatenated along an axis: a std::vector or a std::span of
/// them. Throws argument_error for none.
template <class As = by_category, recording_context Context, detail::list_of_variables List>
auto cat(Context&& context, int axis, const List& list) {
    const auto inputs = detail::joined("cat", list);
    return detail::cat_along<As>(context, axis, inputs.first->shape(), inputs);
}

/// The inputs, concatenated along an axis that is known at compile time: ht::cat(ctx, ht::axes<1>, a, b).
template <class As = by_category, recording_context Context, int... Axis, class First, int Rank, class... Rest>
    requires(detail::is_variable<Rest> && ...)
auto cat(Context&& context, axis_list<Axis...> along, const variable<First, Rank>& first, const Rest&... rest) {
    return cat<As>(context, detail::only_axis<Rank>(along), first, rest...);
}
/// The variables of a list, concatenated along an axis that is known at compile time.
template <class As = by_category, recording_context Context, int... Axis, detail::list_of_variables List>
auto cat(Context&& context, axis_list<Axis...> along, const List& list) {
    return cat<As>(context, detail::only_axis<detail::variable_in<List>::rank>(along), list);
}

/// The inputs, which all have the same shape, joined along a new axis. Throws shape_error and argument_error.
template <class As = by_category, recording_context Context, class First, int Rank, class... Rest>
    requires(detail::is_variable<Rest> && ...)
auto stack(Context&& context, int axis, const variable<First, Rank>& first, const Rest&... rest) {
    static_assert(((Rest::rank == Rank) && ...), "halftone: stack joins variables of one shape");
    return detail::stack_along<As>(context, axis, first.shape(),
                                   detail::joined_inputs<variable<First, Rank>, Rest...>{{first, rest...}});
}
/// As many variables as there are at run time, of one type and shape, joined along a new axis: a std::vector or a
/// std::span of them. Throws argument_error for none.
template <class As = by_category, recording_context Context, detail::list_of_variables List>
auto stack(Context&& context, int axis, const List& list) {
    const auto inputs = detail::joined("stack", list);
    return detail::stack_along<As>(context, axis, inputs.first->shape(), inputs);
}

/// The inputs, joined along a new axis of the result that is known at compile time: ht::stack(ctx, ht::axes<-1>, a, b).
template <class As = by_category, recording_context Context, int... Axis, class First, int Rank, class... Rest>
    requires(detail::is_variable<Rest> && ...)
auto stack(Context&& context, axis_list<Axis...> along, const variable<First, Rank>& first, const Rest&... rest) {
    return stack<As>(context, detail::only_axis<Rank + 1>(along), first, rest...);
}
/// The variables of a list, joined along a new axis of the result that is known at compile time.
template <class As = by_category, recording_context Context, int... Axis, detail::list_of_variables List>
auto stack(Context&& context, axis_list<Axis...> along, const List& list) {
    return stack<As>(context, detail::only_axis<detail::variable_in<List>::rank + 1>(along), list);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
