// SPDX-License-Identifier: MIT
/// \file
/// Reshapes tensors, and joins them along an axis: reshape; cat along an existing axis, stack along a new one.
///
///     auto rows = ht::reshape(ctx, x, ht::shape<2>{n, width});           // the same memory and the same gradient
///     auto y = ht::cat(ctx, 1, a, b);                    // a: (rows, 3), b: (rows, 5), y: (rows, 8)
///     auto y = ht::stack(ctx, 0, a, b, c);               // each (rows, width), y: (3, rows, width)
///     auto y = ht::cat(ctx, ht::axes<-1>, a, b);         // the last axis, as ht::axes or as a number
///
/// The result has the type that all inputs promote to, in every region (PyTorch's category), unless one is given
/// explicitly: ht::cat<float>(ctx, 0, a, b). Values are copied, and rounded once if that type is narrower.
#pragma once

#include <tuple>

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

template <class Op, class Y, int Rank, class... Inputs>
struct join_record {
    using operation = Op;
    using reads = reads_nothing;  // the gradient is a copy of parts
    join_layout layout;
    std::tuple<gradient_of<typename Inputs::value_type, Inputs::rank>...> gradients;
    gradient_of<Y, Rank> dy;

    template <class Tape>
    void propagate(Tape& tape) {
        extent begin = 0;
        std::apply([&](const auto&... dx) { (give(tape, dx, begin), ...); }, gradients);
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

template <class Op, class As, class Context, int Rank, class... Inputs>
auto join(Context&& context, const shape<Rank>& s, extent rows, const Inputs&... inputs) {
    using Y = chosen_output<As, policy_of<Context>, Op, typename Inputs::value_type...>;
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(Op::name);
    const bool wanted = (inputs.wants_gradient() || ...);
    auto y = root.template make<Y>(s, wanted);
    const join_layout layout{rows, rows == 0 ? 0 : s.size() / rows};
    extent begin = 0;
    const auto put = [&](const auto& x) {
        using X = typename std::remove_cvref_t<decltype(x)>::value_type;
        const extent width = layout.width_of(x.size());
        copy_rows(root.device(), const_view<X, 2>(x.view().data(), {rows, width}), layout.part(y.view(), begin, width),
                  write_mode::overwrite);
        begin += width;
    };
    (put(inputs), ...);
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) root.record(join_record<Op, Y, Rank, Inputs...>{layout, {gradient_of(inputs)...}, gradient_of(y)});
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

/// The same values in another shape, without a copy. Throws shape_error for a shape of another size, and argument_error
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

/// The inputs, concatenated along an axis. Their other extents must be equal. Throws shape_error and
/// argument_error.
template <class As = by_category, recording_context Context, class First, int Rank, class... Rest>
    requires(detail::is_variable<Rest> && ...)
auto cat(Context&& context, int axis, const variable<First, Rank>& first, const Rest&... rest) {
    static_assert(((Rest::rank == Rank) && ...), "halftone: cat joins variables of one rank; stack adds an axis");
    static_assert(Rank > 0, "halftone: cat joins along an axis, which a single value does not have; stack adds one");
    const int along = detail::checked_axis("cat", axis, Rank);
    shape<Rank> all = first.shape();
    const auto add = [&](const shape<Rank>& s) {
        for (int i = 0; i < Rank; ++i) {
            if (i != along && s[i] != all[i])
                fail<shape_error>("cat: along axis ", along, " ", s, " does not match ", first.shape());
        }
        all[along] += s[along];
    };
    (add(rest.shape()), ...);
    extent rows = 1;
    for (int i = 0; i < along; ++i) rows *= all[i];
    return detail::join<op::cat, As>(context, all, rows, first, rest...);
}

/// The same along an axis that is known at compile time: ht::cat(ctx, ht::axes<1>, a, b).
template <class As = by_category, recording_context Context, int... Axis, class First, int Rank, class... Rest>
    requires(detail::is_variable<Rest> && ...)
auto cat(Context&& context, axis_list<Axis...> along, const variable<First, Rank>& first, const Rest&... rest) {
    return cat<As>(context, detail::only_axis<Rank>(along), first, rest...);
}

/// The inputs, which all have the same shape, joined along a new axis. Throws shape_error and argument_error.
template <class As = by_category, recording_context Context, class First, int Rank, class... Rest>
    requires(detail::is_variable<Rest> && ...)
auto stack(Context&& context, int axis, const variable<First, Rank>& first, const Rest&... rest) {
    static_assert(((Rest::rank == Rank) && ...), "halftone: stack joins variables of one shape");
    const int along = detail::checked_axis("stack", axis, Rank + 1);
    [[maybe_unused]] const auto check = [&](const shape<Rank>& s) {
        if (!(s == first.shape())) fail<shape_error>("stack: one input is ", first.shape(), ", another ", s);
    };
    (check(rest.shape()), ...);
    shape<Rank + 1> all{};
    extent rows = 1;
    for (int i = 0; i <= Rank; ++i)
        all[i] = i == along ? extent{1} + static_cast<extent>(sizeof...(rest)) : first.shape()[i < along ? i : i - 1];
    for (int i = 0; i < along; ++i) rows *= all[i];
    return detail::join<op::stack, As>(context, all, rows, first, rest...);
}

/// The same along an axis of the result that is known at compile time: ht::stack(ctx, ht::axes<-1>, a, b).
template <class As = by_category, recording_context Context, int... Axis, class First, int Rank, class... Rest>
    requires(detail::is_variable<Rest> && ...)
auto stack(Context&& context, axis_list<Axis...> along, const variable<First, Rank>& first, const Rest&... rest) {
    return stack<As>(context, detail::only_axis<Rank + 1>(along), first, rest...);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
