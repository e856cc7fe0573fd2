// SPDX-License-Identifier: MIT
/// \file
/// Pointwise operations on a tape: any generic lambda, with one kernel forward and one backward, and the usual ones by
/// name.
///
///     auto y = ht::map(ctx, [k](auto a, auto b) { return a * b + k * ht::tanh(a); }, x, z);
///     auto y = ht::add(ctx, x, z);
///
/// The result has the type that PyTorch's autocast gives in the context's region (policy/category.hpp), and on a bare
/// tape that of the inputs; a type that is given explicitly, ht::add<float>(ctx, x, z), overrides both. Inputs are
/// broadcast by NumPy's rules: from the last axis on, their extents are equal or 1, and axes in front may be missing.
/// The forward pass makes no copy of a broadcast input. The gradient of a broadcast input is a sum. If the input is one
/// value, or one for each column, the kernel that computes the gradient also sums it. Otherwise each addend is rounded
/// to the input's type, as in PyTorch, and a second kernel adds them in float, in an order that depends only on the
/// shape.
#pragma once

#include <array>
#include <tuple>

#include <halftone/autodiff/engine/given_parameter.hpp>
#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/kernel/map/broadcast/sum.hpp>
#include <halftone/tensor/rearrange.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Which inputs of a pointwise expression its gradients read: only those are kept for the backward pass.
template <class Expression, class... Inputs>
struct kept_inputs {
    template <std::size_t I>
    static constexpr bool keeps() {
        return is_read<I>(std::index_sequence_for<Inputs...>{});
    }
    static constexpr std::array<bool, sizeof...(Inputs)> each() { return each(std::index_sequence_for<Inputs...>{}); }

  private:
    template <std::size_t I, std::size_t... By>
    static constexpr bool is_read(std::index_sequence<By...>) {
        return (reads<static_cast<int>(I), decltype(derivative<static_cast<int>(By)>(std::declval<Expression>()))> ||
                ...);
    }
    template <std::size_t... I>
    static constexpr std::array<bool, sizeof...(Inputs)> each(std::index_sequence<I...>) {
        return {keeps<I>()...};
    }
};

/// The data that a pointwise operation stores for the backward pass, independent of its expression.
template <class Y, int Rank, class... Inputs>
struct kept_operands {
    std::tuple<Inputs...> inputs;  // empty if no gradient reads them
    std::tuple<gradient_of<typename Inputs::value_type, Inputs::rank>...> gradients;
    gradient_of<Y, Rank> dy;

    static kept_operands of(const variable<Y, Rank>& y, const std::array<bool, sizeof...(Inputs)>& keeps,
                            const Inputs&... inputs) {
        std::size_t i = 0;
        return {{(keeps[i++] ? inputs : Inputs{})...}, {gradient_of(inputs)...}, gradient_of(y)};
    }
};

/// The inputs that the gradients of a record read, apart from the gradient of its result (used by
/// observe/operations.hpp): value<I, By> is true if the gradient of input By reads input I.
struct reads_nothing {
    template <std::size_t, std::size_t>
    static constexpr bool value = false;
};
struct reads_others {
    template <std::size_t I, std::size_t By>
    static constexpr bool value = I != By;
};

/// The values of a kept input; for any other, a view of its shape without data.
template <class T, int Rank>
const_view<T, Rank> values_of(const variable<T, Rank>& kept, const shape<Rank>& s) {
    return {kept.is_empty() ? nullptr : kept.view().data(), s};
}

// Inputs with another shape than the result's. The kernel itself broadcasts inputs of rank 0, and inputs of rank 1 with
// one value for each column; the following code is for all others.

template <int Rank, int To>
constexpr bool fits_as_it_is(const shape<Rank>& s, const shape<To>& result) {
    if constexpr (Rank == To) {
        return s == result;
    } else if constexpr (Rank == 0) {
        return true;
    } else {
        return Rank == 1 && s[0] == result[To - 1];
    }
}
/// Whether inputs of this rank may be left to the kernel; fits_as_it_is decides by the shape.
template <int To, int Rank>
inline constexpr bool may_fit = Rank == To || Rank <= 1;

/// The gradient of an input that a strided map computes: the gradient itself, or the addends that are summed afterwards.
/// The addends have the input's type if the plain map would round to it as well, otherwise float.
template <class T, int Rank, int To>
struct expanded_gradient {
    static constexpr bool in_double = std::is_same_v<T, double>;
    using each_type = std::conditional_t<Rank == To || in_double, T, float>;
    variable<each_type, To> each;
    view<T, Rank> to;
    write_mode mode = write_mode::overwrite;

    template <class Tape>
    expanded_gradient(Tape& tape, const gradient_of<T, Rank>& g, const shape<To>& all) {
        const auto target = tape.gradient_target(g);
        to = {target.data, g.shape()}, mode = target.mode;
        if (target && !is_written_at_once(all)) each = tape.template make<each_type>(all, false);
    }
    bool is_written_at_once(const shape<To>& all) const {
        return std::is_same_v<each_type, T> && lifted<To>(to.shape()) == all;
    }
    /// The memory that the map writes.
    kernel::gradient<each_type, To> target(const shape<To>& all) const {
        if constexpr (std::is_same_v<each_type, T>) {
            if (to.data() != nullptr && is_written_at_once(all)) return {view<T, To>(to.data(), all), mode};
        }
        return {view<each_type, To>(each.is_empty() ? nullptr : each.view().data(), all), write_mode::overwrite};
    }
    template <class Tape>
    void add_up(Tape& tape) const {
        if (each.is_empty()) return;
        kernel::sum_over_broadcast(tape.device(), each.view(), view<T, To>(to.data(), lifted<To>(to.shape())), mode);
    }
};

template <class Op, class Expression, class Y, int Rank, class... Inputs>
struct map_record : kept_operands<Y, Rank, Inputs...> {
    using operation = Op;
    struct reads {  // one map computes all gradients
        template <std::size_t I, std::size_t>
        static constexpr bool value = kept_inputs<Expression, Inputs...>::template keeps<I>();
    };
    pack<Expression> expression;

    template <class Tape>
    void propagate(Tape& tape) {
        run(tape, std::index_sequence_for<Inputs...>{});
    }

  private:
    // The gradient of an input that takes none is computed and dropped, so that the kernel is compiled only once.
    template <class Tape, class T, int R>
    static kernel::gradient<T, R> target(Tape& tape, const gradient_of<T, R>& g) {
        const auto to = tape.gradient_target(g);
        return {view<T, R>(to.data, g.shape()), to.mode};
    }
    template <class Tape, std::size_t... I>
    void run(Tape& tape, std::index_sequence<I...> all) {
        if constexpr (sizeof...(Inputs) > 1) {
            if (!(fits_as_it_is(std::get<I>(this->gradients).shape(), this->dy.shape()) && ...))
                return run_expanded(tape, all);
        }
        if constexpr ((may_fit<Rank, Inputs::rank> && ...)) {
            // One after another, in the order in which the kernel writes them, because an input may occur twice.
            const std::tuple<kernel::gradient<typename Inputs::value_type, Inputs::rank>...> targets{
                target(tape, std::get<I>(this->gradients))...};
            kernel::map<typename Tape::device_type>::backward(
                tape.device(), expression, make_pack(as_const(this->dy.view())),
                make_pack(values_of(std::get<I>(this->inputs), std::get<I>(this->gradients).shape())...),
                make_pack(std::get<I>(targets)...));
        }
    }
    template <class Tape, std::size_t... I>
    void run_expanded(Tape& tape, std::index_sequence<I...>) {
        const shape<Rank>& all = this->dy.shape();
        const std::tuple<expanded_gradient<typename Inputs::value_type, Inputs::rank, Rank>...> targets{
            {tape, std::get<I>(this->gradients), all}...};
        kernel::map<typename Tape::device_type>::template backward<kernel::map_layout::strided>(
            tape.device(), expression, make_pack(as_const(this->dy.view())),
            make_pack(expand(values_of(std::get<I>(this->inputs), std::get<I>(this->gradients).shape()), all)...),
            make_pack(std::get<I>(targets).target(all)...));
        (std::get<I>(targets).add_up(tape), ...);
    }
};

template <class Device, class Expression, class Y, int Rank, class... Inputs>
void evaluate_into(Device& device, const pack<Expression>& expression, const view<Y, Rank>& y, const Inputs&... inputs) {
    if constexpr (sizeof...(Inputs) > 1) {
        if (!(fits_as_it_is(inputs.shape(), y.shape()) && ...)) {
            kernel::map<Device>::template run<kernel::map_layout::strided>(device, expression, make_pack(y),
                                                                           make_pack(expand(inputs, y.shape())...));
            return;
        }
    }
    if constexpr ((may_fit<Rank, Inputs::rank> && ...))
        kernel::map<Device>::run(device, expression, make_pack(y), make_pack(inputs...));
}

/// The values of an expression over the inputs in the shape s, to which theirs can be broadcast.
template <class Op, class Y, class Context, int Rank, class Expression, class... Inputs>
variable<Y, Rank> evaluate(Context&& context, const shape<Rank>& s, const Expression& e, const Inputs&... inputs) {
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(Op::name);
    const bool wanted = (inputs.wants_gradient() || ...);
    auto y = root.template make<Y>(s, wanted);
    const auto expression = make_pack(e);
    evaluate_into(root.device(), expression, y.view(), as_const(inputs.view())...);
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            root.record(map_record<Op, Expression, Y, Rank, Inputs...>{
                kept_operands<Y, Rank, Inputs...>::of(y, kept_inputs<Expression, Inputs...>::each(), inputs...),
                expression});
        }
    }
    return y;
}

template <class Op, class As = by_category, class Context, class F, class First, class... Rest>
auto pointwise(Context&& context, const F& f, const First& first, const Rest&... rest) {
    using Y = chosen_output<As, policy_of<Context>, Op, typename First::value_type, typename Rest::value_type...>;
    if constexpr (sizeof...(Rest) == 0) {
        return evaluate<Op, Y>(context, first.shape(), halftone::trace<1>(f), first);
    } else {
        return evaluate<Op, Y>(context, broadcast_shape(Op::name, first.shape(), rest.shape()...),
                               halftone::trace<1 + sizeof...(Rest)>(f), first, rest...);
    }
}

struct add_function {
    constexpr auto operator()(auto a, auto b) const { return a + b; }
};
struct subtract_function {
    constexpr auto operator()(auto a, auto b) const { return a - b; }
};
struct multiply_function {
    constexpr auto operator()(auto a, auto b) const { return a * b; }
};
struct gelu_function {
    constexpr auto operator()(auto a) const { return halftone::gelu(a); }
};
struct relu_function {
    constexpr auto operator()(auto a) const { return halftone::relu(a); }
};
struct tanh_function {
    constexpr auto operator()(auto a) const { return halftone::tanh(a); }
};

}  // namespace detail

/// A context in which operations are called.
template <class T>
concept recording_context = requires(T& t) {
    typename std::remove_cvref_t<T>::policy;
    t.root();
};

/// f of every element; inputs are broadcast by NumPy's rules. Throws shape_error.
template <class As = by_category, recording_context Context, class F, class... Variables>
    requires(sizeof...(Variables) > 0 && (detail::is_variable<Variables> && ...))
auto map(Context&& context, const F& f, const Variables&... inputs) {
    return detail::pointwise<op::map, As>(context, f, inputs...);
}

/// a + b, broadcast by NumPy's rules. The result has the type that a and b promote to, in every region; with As, type As.
/// Throws shape_error.
template <class As = by_category, recording_context Context, class A, class B, int Rank, int Other>
auto add(Context&& context, const variable<A, Rank>& a, const variable<B, Other>& b) {
    return detail::pointwise<op::add, As>(context, detail::add_function{}, a, b);
}
/// a - b, with shapes and types as of add. Throws shape_error.
template <class As = by_category, recording_context Context, class A, class B, int Rank, int Other>
auto sub(Context&& context, const variable<A, Rank>& a, const variable<B, Other>& b) {
    return detail::pointwise<op::sub, As>(context, detail::subtract_function{}, a, b);
}
/// a times b, element by element, with shapes and types as of add. Throws shape_error.
template <class As = by_category, recording_context Context, class A, class B, int Rank, int Other>
auto mul(Context&& context, const variable<A, Rank>& a, const variable<B, Other>& b) {
    return detail::pointwise<op::mul, As>(context, detail::multiply_function{}, a, b);
}
/// a (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) / 2, element by element: the gelu of GPT-2 (Hendrycks and Gimpel
/// 2016); in a's type.
template <class As = by_category, recording_context Context, class A, int Rank>
auto gelu(Context&& context, const variable<A, Rank>& a) {
    return detail::pointwise<op::gelu, As>(context, detail::gelu_function{}, a);
}
/// max(a, 0) for each element; in a's type. Its derivative at 0 is 0.
template <class As = by_category, recording_context Context, class A, int Rank>
auto relu(Context&& context, const variable<A, Rank>& a) {
    return detail::pointwise<op::relu, As>(context, detail::relu_function{}, a);
}
/// The hyperbolic tangent of a, element by element; in a's type.
template <class As = by_category, recording_context Context, class A, int Rank>
auto tanh(Context&& context, const variable<A, Rank>& a) {
    return detail::pointwise<op::tanh, As>(context, detail::tanh_function{}, a);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
