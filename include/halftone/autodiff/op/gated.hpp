// SPDX-License-Identifier: MIT
/// \file
/// Gated linear units (Dauphin et al. 2017; Shazeer 2020, "GLU variants"): a function of one half of the last axis
/// times the other half, in one pass over the result of one product.
///
///     auto y = ht::swiglu(ctx, x);                          // x: (…, 2 hidden), y: (…, hidden): silu(first) second
///     auto y = ht::geglu(ctx, x);                           // gelu(first) second
///     auto y = ht::glu(ctx, x);                             // first sigmoid(second), as torch.nn.functional.glu
///     auto y = ht::gated(ctx, [](auto gate, auto up) { return ht::tanh(gate) * up; }, x);     // or any other function
///
/// The kernel reads both halves in place, and the backward pass writes both gradients in place: one kernel forward and
/// one backward. The contract is that of maps (kernel/map). The result has x's type, or the one given:
/// ht::swiglu<float>(ctx, x).
#pragma once

#include <tuple>

#include <halftone/autodiff/op/pointwise.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// One half of each row, as a view of x's memory.
template <class T>
view<T, 2> half_of_rows(T* data, extent rows, extent half, int which) {
    return {data + which * half, {rows, half}, {2 * half, 1}};
}

template <class Op, class Expression, class Y, class X, int Rank>
struct gated_record {
    using operation = Op;
    struct reads {  // one map computes both gradients
        template <std::size_t, std::size_t>
        static constexpr bool value = true;
    };
    variable<X, Rank> x;
    std::tuple<gradient_of<X, Rank>> gradients;
    gradient_of<Y, Rank> dy;
    pack<Expression> expression;

    extent half() const { return dy.shape()[Rank - 1]; }
    extent rows() const { return rows_of(dy.shape()); }

    template <class Tape>
    void propagate(Tape& tape) {
        const auto to = tape.gradient_target(std::get<0>(gradients));
        const X* const from = x.view().data();
        const auto target = [&](int which) {
            return kernel::gradient<X, 2>{half_of_rows(to.data, rows(), half(), which), to.mode};
        };
        kernel::map<typename Tape::device_type>::backward(
            tape.device(), expression, make_pack(const_view<Y, 2>(dy.view().data(), {rows(), half()})),
            make_pack(half_of_rows(from, rows(), half(), 0), half_of_rows(from, rows(), half(), 1)),
            make_pack(target(0), target(1)));
    }
};

template <class Op, class As, class Context, class F, class X, int Rank>
auto gated_by(Context&& context, const F& f, const variable<X, Rank>& x) {
    static_assert(Rank >= 1, "halftone: gated units halve the last axis, which a single value does not have");
    using Y = chosen_output<As, policy_of<Context>, Op, X>;
    using device = typename std::remove_cvref_t<Context>::device_type;
    auto& root = context.root();
    const extent both = x.shape()[Rank - 1], half = both / 2, rows = rows_of(x.shape());
    if (both % 2 != 0)
        fail<shape_error>(Op::name, ": x is ", x.shape(), "; its last extent is odd, and has no halves");
    const auto range = root.template range<policy_of<Context>>(Op::name);
    const bool wanted = x.wants_gradient();
    auto y = root.template make<Y>(with_last(x.shape(), half), wanted);
    const auto expression = make_pack(halftone::trace<2>(f));
    const X* const from = as_const(x.view()).data();
    kernel::map<device>::run(root.device(), expression, make_pack(view<Y, 2>(y.view().data(), {rows, half})),
                             make_pack(half_of_rows(from, rows, half, 0), half_of_rows(from, rows, half, 1)));
    if constexpr (std::remove_cvref_t<Context>::records) {
        using expression_type = std::remove_cvref_t<decltype(expression.first)>;
        if (wanted)
            root.record(gated_record<Op, expression_type, Y, X, Rank>{x, {gradient_of(x)}, gradient_of(y), expression});
    }
    return y;
}

struct glu_function {
    constexpr auto operator()(auto a, auto b) const { return a * halftone::sigmoid(b); }
};
struct swiglu_function {
    constexpr auto operator()(auto gate, auto up) const { return halftone::silu(gate) * up; }
};
struct geglu_function {
    constexpr auto operator()(auto gate, auto up) const { return halftone::gelu(gate) * up; }
};

}  // namespace detail

/// f(first half, second half) of the last axis: (…, 2 n) to (…, n). f is a lambda as for ht::map. Throws shape_error if
/// the last extent is odd.
template <class As = by_category, recording_context Context, class F, class X, int Rank>
auto gated(Context&& context, const F& f, const variable<X, Rank>& x) {
    return detail::gated_by<op::map, As>(context, f, x);
}
/// The first half of the last axis times the sigmoid of the second, as torch.nn.functional.glu. Throws shape_error.
template <class As = by_category, recording_context Context, class X, int Rank>
auto glu(Context&& context, const variable<X, Rank>& x) {
    return detail::gated_by<op::glu, As>(context, detail::glu_function{}, x);
}
/// silu of the first half of the last axis times the second: the gate of Llama's perceptron. Throws shape_error.
template <class As = by_category, recording_context Context, class X, int Rank>
auto swiglu(Context&& context, const variable<X, Rank>& x) {
    return detail::gated_by<op::swiglu, As>(context, detail::swiglu_function{}, x);
}
/// gelu (its tanh form, as in GPT-2 and Gemma) of the first half of the last axis times the second half. Throws
/// shape_error.
template <class As = by_category, recording_context Context, class X, int Rank>
auto geglu(Context&& context, const variable<X, Rank>& x) {
    return detail::gated_by<op::geglu, As>(context, detail::geglu_function{}, x);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
