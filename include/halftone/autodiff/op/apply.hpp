// SPDX-License-Identifier: MIT
/// \file
/// Custom operations, which state their autocast category: the counterpart of torch.autograd.Function with
/// custom_fwd and custom_bwd.
///
///     struct cubed {
///         static constexpr const char* name = "cubed";
///         using cast_inputs = float;                                  // or: static constexpr ht::category cast_rule = …;
///         static auto forward(auto& ctx, const auto& x) {
///             auto y = ht::map(ctx, [](auto a) { return a * a * a; }, x);
///             return ht::keep(y, x);                                  // the result, and what backward needs
///         }
///         static auto backward(auto& ctx, const auto& dy, const auto& x) {
///             return ht::map(ctx, [](auto g, auto a) { return 3 * a * a * g; }, dy, x);
///         }
///     };
///     auto y = ht::apply<cubed>(ctx, x);                              // ctx: a tape, an inference context, a region
///
/// In a region the inputs are cast to the type that the operation states, and both functions run outside of autocast,
/// in the types of their arguments; on a bare tape nothing is cast. An operation that states nothing gets its inputs
/// unchanged, and both functions run in the region, like a custom_fwd without cast_inputs: ht::matmul(ctx, x, w) then
/// computes by the region's policy, in backward, too. Only number types are cast, and fp64 is not: if an input is a
/// double, the other inputs are cast to the type of cast_inputs, or, by a category, to double. A parameter among the
/// inputs is read from the store's copy if that has the type. Arguments that are neither variables nor parameters are
/// passed on; containers of these do not compile.
/// `ctx` is a context that does not record: free operations work in it, ctx.device() launches kernels,
/// ctx.make<T>(shape) allocates memory for them, and ctx.wants(i) tells backward whether input i (of the variables and
/// parameters of number types) takes a gradient. backward gets dy, in the type of the result, and the values that
/// forward kept, in any region. It returns a variable for each of those inputs, in a std::tuple if there are several,
/// or ht::absent{} for one without a gradient. A gradient has its input's shape and any type; it is rounded to the
/// input's. On a tape for second derivatives backward's operations are recorded, too: double_backward/apply.hpp
/// specifies what forward may keep there. Dropout, which is active only on a tape that records, cannot be used in
/// either function.
///
/// Shadow runs (observe/shadow/shadow.hpp) expect the result that floats would give, rounded once; an operation that
/// rounds to 16 bits more often states `static constexpr int roundings = 2;`. As the length of its longest sum they
/// assume its longest axis or, if the operation could not be a map, its number of rows or the extent that it reduces,
/// whichever is largest. The operation may state the length instead: as a number (pointwise: `static constexpr
/// ht::extent sum_length = 1;`) or as a function of its result and of those inputs: `static ht::extent sum_length(const
/// auto& y, const auto& x) { return x.size(); }`.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>

#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/matmul.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The context in which the functions of a custom operation run: outside of autocast, or with the policy of the region.
template <class Device, class Policy = as_given>
class operation_context : public basic_context<Device, recording::off> {
  public:
    using policy = Policy;
    static constexpr bool runs_own_operation = true;

    operation_context(Device& device, detail::graph& graph, std::uint64_t wanted)
        : basic_context<Device, recording::off>(device, graph), wanted_(wanted) {}
    operation_context& root() { return *this; }

    /// Memory for a result or an intermediate value, with undefined contents.
    template <class T, int Rank>
    variable<T, Rank> make(const shape<Rank>& s, bool = false) {
        return basic_context<Device, recording::off>::template make<T>(s, false);
    }
    /// For backward functions: whether the input of this index, counted from 0, takes a gradient.
    bool wants(int input) const { return (wanted_ >> input & 1) != 0; }

  private:
    std::uint64_t wanted_;
};

namespace detail {

template <class Y, class... Kept>
struct kept_result {
    Y result;
    std::tuple<Kept...> kept;
};
template <class T>
inline constexpr bool is_kept_result = false;
template <class Y, class... Kept>
inline constexpr bool is_kept_result<kept_result<Y, Kept...>> = true;

}  // namespace detail

/// What an operation's forward function returns: its result, and the values that its backward function gets after dy.
template <class T, int Rank, class... Kept>
detail::kept_result<variable<T, Rank>, Kept...> keep(const variable<T, Rank>& result, const Kept&... kept) {
    return {result, {kept...}};
}

namespace detail {

template <class T>
inline constexpr bool is_operand = false;
template <number T, int Rank>
inline constexpr bool is_operand<variable<T, Rank>> = true;
template <class Storage, int Rank>
inline constexpr bool is_operand<parameter<Storage, Rank>> = true;

template <class T>
struct input_type {
    using type = void;  // not a number type: does not promote and is not cast
};
template <class T>
    requires is_operand<T>
struct input_type<T> {
    using type = element_of<T>;
};

/// Whether an argument is a container or tuple of variables or parameters, which apply does not look into.
template <class T>
inline constexpr bool holds_operands = false;
template <class T>
    requires requires { typename T::value_type; }
inline constexpr bool holds_operands<T> = is_operand<typename T::value_type> || holds_operands<typename T::value_type>;
template <class... Ts>
inline constexpr bool holds_operands<std::tuple<Ts...>> = ((is_operand<Ts> || holds_operands<Ts>) || ...);
template <class A, class B>
inline constexpr bool holds_operands<std::pair<A, B>> = holds_operands<std::tuple<A, B>>;

/// The type to which Op's inputs are cast under P; void if they are not cast.
template <class P, class Op, class... Inputs>
struct cast_inputs_type {
    using type = storage_of<compute_type<P, Op, Inputs...>>;
};
template <class P, class Op, class... Inputs>
    requires(policy_marker<resolve<P>> || operation_category<Op>::value == category::as_input)
struct cast_inputs_type<P, Op, Inputs...> {
    using type = void;
};
// A double among the inputs is unchanged, and does not affect the others.
template <class P, class Op, class... Inputs>
    requires(!policy_marker<resolve<P>> && operation_category<Op>::value == category::stated)
struct cast_inputs_type<P, Op, Inputs...> {
    using type = storage_of<compute_type<P, Op>>;
};

/// The policy under which Op's functions run if it is called under P: as_given (outside of autocast) if it states a
/// category, otherwise that of the region.
template <class P, class Op>
using policy_within_operation =
    std::conditional_t<operation_category<Op>::value == category::as_input && !states_rule<Op>, P, as_given>;

/// An argument as the forward function gets it.
template <class To, class Body, class T, int Rank>
auto cast_argument(Body& body, const variable<T, Rank>& x) {
    if constexpr (std::is_void_v<To> || !number<T> || is_fp64<T>) {
        return x;
    } else {
        return halftone::cast<To>(body, x);
    }
}
template <class To, class Body, class Storage, int Rank>
auto cast_argument(Body& body, const parameter<Storage, Rank>& p) {
    if constexpr (std::is_same_v<To, typename Storage::compute>) {
        return body.constant(p.values());
    } else {
        return cast_argument<To>(body, body.constant(whole_master(p)));
    }
}
template <class To, class Body, class T>
const T& cast_argument(Body&, const T& other) {
    return other;
}

/// An argument, cast to type To, whose reading the tape's hook is told.
template <class To, class Root, class Body, class T>
decltype(auto) read_argument(Root& root, Body& body, const T& argument) {
    if constexpr (is_operand<T>) {
        constexpr reading how = !is_variable<T>       ? reading::parameter
                                : std::is_void_v<To> ? reading::as_it_is
                                                     : reading::converted;
        return read<how>(root, [&]() -> decltype(auto) { return cast_argument<To>(body, argument); });
    } else {
        return cast_argument<To>(body, argument);
    }
}

/// Where an input's gradient is written.
template <class T, int Rank>
std::tuple<gradient_of<T, Rank>> destination(const variable<T, Rank>& v) {
    return {gradient_of(v)};
}
template <class Storage, int Rank>
std::tuple<parameter<Storage, Rank>> destination(const parameter<Storage, Rank>& p) {
    return {p};
}
template <class T>
auto destination_of(const T& argument) {
    if constexpr (is_operand<T>) {
        return destination(argument);
    } else {
        return std::tuple<>{};
    }
}
template <class... Arguments>
std::uint64_t wanted_inputs(const Arguments&... arguments) {
    std::uint64_t wanted = 0;
    int i = 0;
    const auto see = [&](const auto& a) {
        if constexpr (is_operand<std::remove_cvref_t<decltype(a)>>)
            wanted |= static_cast<std::uint64_t>(wants_gradient(a)) << i++;
    };
    (see(arguments), ...);
    return wanted;
}

template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;

/// Whether a user's function returned a gradient for the input with this index and shape.
template <class Op, int Rank, class Gradient>
bool gives_gradient(int index, const shape<Rank>& input, const Gradient& gradient) {
    static_assert(is_absent<Gradient> || is_variable<Gradient>,
                  "halftone: apply: backward returns variables, one for each input, and ht::absent{} for an input "
                  "without a gradient");
    if constexpr (is_variable<Gradient>) {
        static_assert(Gradient::rank == Rank,
                      "halftone: apply: a gradient that backward returns has another rank than its input");
        if (gradient.is_empty()) return false;  // treated as absent
        if (!(gradient.shape() == input))
            fail<shape_error>(Op::name, ": the gradient of input ", index, " is ", gradient.shape(), ", the input ",
                              input);
        return true;
    }
    return false;
}

/// Adds a gradient to its destination.
template <class Op, class Tape, class To, class Gradient>
void give_input(Tape& tape, int index, const To& to, const Gradient& gradient) {
    if (!gives_gradient<Op>(index, to.shape(), gradient)) return;
    if constexpr (is_variable<Gradient>) {
        if (const auto target = tape.gradient_target(to)) {
            const auto in = as_const(flatten(gradient));
            const view out(target.data, in.shape());
            copy_rows(tape.device(), view(in.data(), shape<2>{1, in.size()}), view(out.data(), shape<2>{1, in.size()}),
                      target.mode);
        }
    }
}

template <class T>
auto as_gradients(T&& given) {
    if constexpr (is_tuple<std::remove_cvref_t<T>>) {
        return std::forward<T>(given);
    } else {
        return std::tuple<std::remove_cvref_t<T>>(std::forward<T>(given));
    }
}

// Concepts over types, because nvcc does not accept packs of function parameters in requires-expressions.
template <class Op, class Body, class... Inputs>
concept has_forward = requires(Body& body, const Inputs&... inputs) {
    Op::forward(body, inputs...);
};
template <class Op, class Body, class G, class... Kept>
concept has_backward = requires(Body& body, const G& g, const Kept&... kept) {
    Op::backward(body, g, kept...);
};

/// To: the type to which its inputs were cast (read by the ledger). Policy: the policy of its functions.
template <class Op, class Y, int Rank, class Kept, class Destinations, class To, class Policy>
struct apply_record {
    using operation = Op;
    Kept kept;
    Destinations destinations;
    gradient_of<Y, Rank> dy;
    std::uint64_t wanted;

    template <class Tape>
    void propagate(Tape& tape) {
        operation_context<typename Tape::device_type, Policy> body(tape.device(), tape.graph(), wanted);
        {
            auto& graph = tape.graph();
            const auto block = graph.gradient_block(dy.slot());
            graph.retain_block(block);
            const variable<Y, Rank> g(graph, graph.make_leaf(block, false), dy.shape());
            std::apply([&](const auto&... k) { differentiate(tape, body, g, k...); }, kept);
        }
    }

  private:
    template <class Tape, class Body, class G, class... K>
    void differentiate(Tape& tape, Body& body, const G& g, const K&... k) {
        constexpr bool is_there = has_backward<Op, Body, G, K...>;
        static_assert(is_there,
                      "halftone: apply: this operation has no `static auto backward(auto& ctx, const auto& dy, ...)` "
                      "that takes what its forward function keeps: ht::keep(y, x, z) needs backward(ctx, dy, x, z); "
                      "outside tapes, in an ht::inference, none is needed");
        if constexpr (is_there) {
            const auto gradients = as_gradients(Op::backward(body, g, k...));
            static_assert(
                std::tuple_size_v<std::remove_const_t<decltype(gradients)>> == std::tuple_size_v<Destinations>,
                "halftone: apply: backward returns another number of gradients than the operation has inputs "
                "(variables and parameters that hold numbers): one for each, in a std::tuple where there are several, "
                "ht::absent{} for one that has none");
            if constexpr (std::tuple_size_v<std::remove_const_t<decltype(gradients)>> ==
                          std::tuple_size_v<Destinations>) {
                give_each(tape, gradients, std::make_index_sequence<std::tuple_size_v<Destinations>>{});
            }
        }
    }
    template <class Tape, class Gradients, std::size_t... I>
    void give_each(Tape& tape, const Gradients& gradients, std::index_sequence<I...>) {
        (give_input<Op>(tape, static_cast<int>(I), std::get<I>(destinations), std::get<I>(gradients)), ...);
    }
};

template <class Op>
concept named_operation = requires {
    { Op::name } -> std::convertible_to<const char*>;
};

template <class T>
auto with_kept(const T& returned) {
    if constexpr (is_kept_result<T>) {
        return returned;
    } else {
        return kept_result<T>{returned, {}};
    }
}

/// Makes the variable that forward has returned a result on the tape.
template <class Op, class Root, class Y, class... Arguments>
Y result_of_apply(Root& root, const Y& returned, bool wanted, const Arguments&... arguments) {
    static_assert(is_variable<Y>,
                  "halftone: apply: forward returns a variable, or ht::keep(variable, what backward needs...)");
    if (&returned.graph() != &root.graph())
        fail<argument_error>(Op::name, ": forward returned a variable of another context");
    return root.template make_result<Op>(returned, wanted, arguments...);
}

/// apply() on a tape for second derivatives: autodiff/double_backward/apply.hpp.
template <class Op, class To, class Policy>
struct double_backward_application;

}  // namespace detail

/// The result of the operation Op; see the top of this file. Throws what its functions throw, and in the backward pass
/// shape_error for a gradient whose shape differs from its input's.
template <class Op, recording_context Context, class... Arguments>
auto apply(Context&& context, const Arguments&... arguments) {
    static_assert(detail::named_operation<Op>,
                  "halftone: apply: this operation has no name, which profiles and error messages show: static constexpr "
                  "const char* name = \"my_op\"");
    static_assert(!(detail::holds_operands<Arguments> || ...),
                  "halftone: apply: an argument is a container of variables or parameters, which would neither be cast "
                  "nor get gradients: pass them one by one, as separate arguments");
    using To = typename detail::cast_inputs_type<policy_of<Context>, Op,
                                                 typename detail::input_type<Arguments>::type...>::type;
    auto& root = context.root();
    using device = typename std::remove_cvref_t<Context>::device_type;
    constexpr bool records = std::remove_cvref_t<Context>::records;
    const auto range = root.template range<policy_of<Context>>(detail::named_operation<Op> ? Op::name : "");
    const std::uint64_t wanted = records ? detail::wanted_inputs(arguments...) : 0;
    using Policy = detail::policy_within_operation<policy_of<Context>, Op>;
    operation_context<device, Policy> body(root.device(), root.graph(), wanted);

    static_assert(detail::has_forward<Op, operation_context<device, Policy>,
                                      std::remove_cvref_t<decltype(detail::cast_argument<To>(body, arguments))>...>,
                  "halftone: apply: this operation has no `static auto forward(auto& ctx, ...)` for these inputs: it "
                  "takes as many as apply is given, as variables of the types that its cast rule makes of them");
    if constexpr (detail::records_double_backward<Context>) {
        return detail::double_backward_application<Op, To, Policy>::run(root, body, wanted, arguments...);
    } else {
        const auto returned =
            detail::with_kept(Op::forward(body, detail::read_argument<To>(root, body, arguments)...));
        auto y = detail::result_of_apply<Op>(root, returned.result, wanted != 0, arguments...);
        using Y = decltype(y);
        if constexpr (records) {
            if (wanted != 0) {
                auto destinations = std::tuple_cat(detail::destination_of(arguments)...);
                root.record(
                    detail::apply_record<Op, typename Y::value_type, Y::rank,
                                         std::remove_cvref_t<decltype(returned.kept)>, decltype(destinations), To,
                                         Policy>{returned.kept, std::move(destinations), gradient_of(y), wanted});
            }
        }
        return y;
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
