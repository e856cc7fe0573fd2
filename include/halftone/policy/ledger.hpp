// SPDX-License-Identifier: MIT
/// \file
/// The precision ledger of a model: every operation of its forward and backward pass with the types of its operands as
/// they lie in memory and as they are read, at compile time.
///
///     static_assert(ht::casts<ht::nn::gpt<recipe>> <= 12 && ht::casts_at<ht::nn::gpt<recipe>, "head"> == 2);
///     static_assert(ht::casts<classifier<ht::amp_bf16>, const float> == 2);   // whose first layer is given floats
///     ht::print_ledger<ht::nn::gpt<recipe>>(std::cout);           // policy/ledger_table.hpp, which also writes JSON
///
///     path        op          pass             in        accumulate  out       casts
///     h.*.norm    layer_norm  forward          float     float       bfloat16  x: bfloat16 as float
///     h.*.fc      linear      forward          bfloat16  float       bfloat16  -
///     h.*.fc      linear      weight gradient  bfloat16  float       float     -
///
/// A cast is an operand that an operation reads in another type than it has in memory. (The reading kernel converts it:
/// none is written.) What is no cast: sums that are rounded once to the type of a result; bias and residual, which are
/// added to sums where these lie; weights that are read from the copy that the store keeps in their products' type,
/// since the optimizer's pass over the parameters writes it, not the step's.
///
/// Types alone do not tell what arrives at a layer. Here it is what the layer before gives, in the order of `visit`; a
/// layer with `static constexpr bool adds_to_stream = true` gives the type that arrived at the layer before it, or, being
/// the first, at itself. Where data flow otherwise, observe/ledger/ledger.hpp runs the model once and tells the same from what
/// its operations were called with. Free operations (add, gelu, a loss) stand in that one alone, but for what layers call
/// between their products: the gelu of a perceptron whose products have different types, the gate of nn::gated_mlp, the turn of
/// nn::rotary_attention; the lines of layers are the same in both.
///
/// What the first layer is given is said by Input: `float` of what takes a gradient, `const float` of data, so that the
/// pass that would make one is not there. A model that takes ids needs none; one whose first layer is given numbers does
/// not compile without.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/policy/category.hpp>
#include <halftone/policy/ledger_lines.hpp>
#include <halftone/policy/model.hpp>
#include <halftone/policy/operations.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail::ledger {

/// The types of a layer's operation, as roles<...> has them (autodiff/engine/operation.hpp); one that inherits is on a bare
/// tape.
template <class P, class Op>
struct layer_types {
    using policy = policy_within<P, as_given>;
    using compute = compute_type<policy, Op>;
    using output = typename policy::output;
    using input_grad = input_grad_type<policy, Op>;
    using weight_grad = weight_grad_type<policy, Op>;
};

template <class P>
inline constexpr auto place_text = path_of<P>.text();

template <class P, std::size_t N>
constexpr std::array<ledger_entry, N> at_path(std::array<ledger_entry, N> entries) {
    for (ledger_entry& e : entries) e.path = path_of<P>.size() == 0 ? "-" : place_text<P>.data;
    return entries;
}

/// The lines of a layer, and the type that it gives. Stream: the type of the stream that the layer adds to; void: none.
template <class L, class In, class Stream>
struct of_layer;

template <class L>
concept adding_layer = requires { requires L::adds_to_stream; };

/// The parameter of another layer that this one reads, as its storage; else its own.
template <class L>
struct storage_read {
    using type = storage_signature<typename L::policy, operation_of<L>>;
};
template <class L>
    requires requires { typename L::reads; }
struct storage_read<L> {
    using type = typename L::reads;
};

template <class Stream, class Own>
using stream_or = typename first_of<Stream, Own>::type;

/// What arrives at a layer that computes Op. Where nobody says so, an operation of the user's own is taken to read the
/// type that it gives, or ids.
template <class In, class Op, class Own>
struct arrival {
    static_assert(!std::is_void_v<In> ||
                      !(scales_operands<Op> || std::is_same_v<Op, op::attention> ||
                        std::is_same_v<Op, op::linear_cross_entropy> ||
                        (operation_category<Op>::value == category::fp32 && !std::is_same_v<Op, op::embedding>)),
                  "halftone: ledger, casts: the first layer of this model is given numbers, and not ids: say of which "
                  "type, ht::casts<model, const float> of data, ht::casts<model, float> of what takes a gradient");
    using type = std::remove_const_t<stream_or<In, Own>>;
};

template <std::size_t N, std::size_t M>
constexpr std::array<ledger_entry, N + M> join(const std::array<ledger_entry, N>& a,
                                               const std::array<ledger_entry, M>& b) {
    std::array<ledger_entry, N + M> all{};
    std::size_t i = 0;
    for (const ledger_entry& e : a) all[i++] = e;
    for (const ledger_entry& e : b) all[i++] = e;
    return all;
}

/// An operation's lines; without the I-th, which makes the gradient of its input, where that is a constant.
template <class In, std::size_t I, std::size_t N>
constexpr auto wanted(const std::array<ledger_entry, N>& all) {
    if constexpr (std::is_const_v<In>) {
        return without<I>(all);
    } else {
        return all;
    }
}

template <class Op>
inline constexpr bool computes_by_rows = operation_category<Op>::value == category::fp32;
/// Norms do so by any category: their kernels read what is stored, parameters too, as floats.
template <>
inline constexpr bool computes_by_rows<op::layer_norm> = true;
template <>
inline constexpr bool computes_by_rows<op::rms_norm> = true;

/// The lines of a single operation.
template <class L, class In, class Stream, class Op = typename computed_by<L>::type>
struct of_operation {
    using types = layer_types<typename L::policy, Op>;
    using out = std::remove_const_t<stream_or<Stream, typename types::output>>;
    static constexpr auto lines() {
        using arrives = typename arrival<In, Op, typename types::output>::type;
        using P = typename L::policy;
        using storage = typename storage_read<L>::type;
        using by_rows = promote<float, typename types::compute>;
        if constexpr (std::is_same_v<Op, op::linear>) {
            return at_path<P>(wanted<In, 1>(linear<types, arrives, out, storage>(Op::name)));
        } else if constexpr (std::is_same_v<Op, op::embedding>) {
            return at_path<P>(embedding<out, storage>(Op::name));
        } else if constexpr (computes_by_rows<Op> && std::is_const_v<In> && parameter_owner<L>) {
            return at_path<P>(rows_of_constant<by_rows, arrives, out, storage>(Op::name));
        } else if constexpr (computes_by_rows<Op>) {
            return at_path<P>(rows<by_rows, arrives, out>(Op::name));
        } else {
            return at_path<P>(rows<arrives, arrives, out>(Op::name));
        }
    }
};
template <class L, class In, class Stream>
struct of_operation<L, In, Stream, op::linear_cross_entropy> {
    using P = typename L::policy;
    using types = layer_types<P, op::linear_cross_entropy>;
    using out = linear_loss<typename types::compute>;
    static constexpr auto lines() {
        using arrives = typename arrival<In, op::linear_cross_entropy, typename types::output>::type;
        constexpr auto own = at_path<P>(wanted<In, 2>(
            linear_cross_entropy<types, arrives, typename storage_read<L>::type>(op::linear_cross_entropy::name)));
        if constexpr (std::is_same_v<out, float>) {
            return own;
        } else {
            return join(own, cast<float, out>(op::cast::name, place_text<P>.data));
        }
    }
};

struct no_lines {
    static constexpr std::array<ledger_entry, 0> lines() { return {}; }
};

/// Layers one after the other. Before is the type that arrived at the layer in front of them: the stream, for one that
/// adds. Where there is none, it adds to what it is given.
template <class In, class Before, class... Ls>
struct sequence : no_lines {
    using out = In;
};
template <class In, class Before, class L, class... Rest>
struct sequence<In, Before, L, Rest...> {
    using first = of_layer<L, In, std::conditional_t<adding_layer<L>, stream_or<Before, In>, void>>;
    using rest = sequence<typename first::out, In, Rest...>;
    using out = typename rest::out;
    static constexpr auto lines() { return join(first::lines(), rest::lines()); }
};
template <class In, class List>
struct in_order;
template <class In, class... Ls>
struct in_order<In, types<Ls...>> : sequence<In, void, Ls...> {};

/// Lists of what is no layer are left out.
template <class L, class In, class Stream>
struct of_layer : in_order<In, children_of<L>> {};

template <class L, class In, class Stream>
    requires(layer<L> && !std::is_void_v<operation_of<L>> && std::is_same_v<children_of<L>, types<>>)
struct of_layer<L, In, Stream> : of_operation<L, In, Stream> {};

template <class List>
struct two;
template <class A, class B>
struct two<types<A, B>> {
    using first = A;
    using second = B;
};
template <class L>
concept two_linear_layers = requires {
    typename two<children_of<L>>::second;
    requires std::is_same_v<operation_of<typename two<children_of<L>>::first>, op::linear>;
    requires std::is_same_v<operation_of<typename two<children_of<L>>::second>, op::linear>;
};

/// The turn of heads between product and attention, where the layer has one: read in its type T, and its gradient reads
/// nothing else. P: of the product.
template <class L, class T, class P>
constexpr auto lines_of_turn() {
    if constexpr (requires { requires L::turns_heads; }) {
        return cast<T, T>(op::rotary::name, place_text<P>.data);
    } else {
        return std::array<ledger_entry, 0>{};
    }
}

/// One product, attention, another product.
template <class L, class In, class Stream>
    requires(std::is_same_v<operation_of<L>, op::attention> && two_linear_layers<L>)
struct of_layer<L, In, Stream> {
    using before = of_operation<typename two<children_of<L>>::first, In, void>;
    using heads = typename before::out;
    using behind = of_operation<typename two<children_of<L>>::second, heads, Stream>;
    using out = typename behind::out;
    static constexpr auto lines() {
        using P = typename L::policy;
        using policy = policy_within<P, as_given>;
        using compute = compute_type<policy, op::attention>;
        using backward = input_grad_type<policy, op::attention>;
        return join(join(before::lines(), lines_of_turn<L, heads, typename two<children_of<L>>::first::policy>()),
                    join(at_path<P>(attention<compute, backward, heads>(op::attention::name)), behind::lines()));
    }
};

template <class A, class B>
inline constexpr bool same_types =
    std::is_same_v<typename A::compute, typename B::compute>&& std::is_same_v<typename A::output, typename B::output>&&
        std::is_same_v<typename A::input_grad, typename B::input_grad>&&
            std::is_same_v<typename A::weight_grad, typename B::weight_grad>;

/// A perceptron: one operation where both products have the same types, else two and what is between them.
template <class L, class In, class Stream>
    requires(std::is_same_v<operation_of<L>, op::linear> && two_linear_layers<L>)
struct of_layer<L, In, Stream> {
    using up = typename two<children_of<L>>::first;
    using down = typename two<children_of<L>>::second;
    using up_types = layer_types<typename up::policy, op::linear>;
    using down_types = layer_types<typename down::policy, op::linear>;
    using up_out = typename up_types::output;
    using out = std::remove_const_t<stream_or<Stream, typename down_types::output>>;
    using up_storage = typename storage_read<up>::type;
    static constexpr bool whole =
        same_types<up_types, down_types> && std::is_same_v<up_storage, typename storage_read<down>::type>;
    static constexpr auto lines() {
        if constexpr (whole) {
            using arrives = typename arrival<In, op::mlp, up_out>::type;
            return at_path<typename L::policy>(wanted<In, 3>(mlp<up_types, arrives, out, up_storage>(op::mlp::name)));
        } else {
            return join(of_operation<up, In, void>::lines(),
                        join(activation<up_out>(op::gelu::name, place_text<typename up::policy>.data),
                             of_operation<down, up_out, Stream>::lines()));
        }
    }
};

/// A perceptron with a gate: a product, the gate, another product.
template <class L, class In, class Stream>
    requires(two_linear_layers<L> && requires { typename L::gates_by; })
struct of_layer<L, In, Stream> {
    using up = typename two<children_of<L>>::first;
    using before = of_operation<up, In, void>;
    using halves = typename before::out;
    using behind = of_operation<typename two<children_of<L>>::second, halves, Stream>;
    using out = typename behind::out;
    static constexpr auto lines() {
        return join(before::lines(),
                    join(activation<halves>(L::gates_by::name, place_text<typename up::policy>.data), behind::lines()));
    }
};

}  // namespace detail::ledger

/// All lines of a Model, in the order of its layers; each block of a list that no rule names stands there once. Input
/// is the type that the first layer is given, const where it takes no gradient; a model that takes ids needs none.
template <class Model, class Input = void>
inline constexpr auto ledger = detail::ledger::of_layer<Model, Input, void>::lines();

/// The casts of a step: forward and backward pass, each block that no rule names counted once.
template <class Model, class Input = void>
inline constexpr int casts = [] {
    int n = 0;
    for (const ledger_entry& e : ledger<Model, Input>) n += e.casts();
    return n;
}();

namespace detail::ledger {

template <class Model, path_name Pattern, class Input>
constexpr int count_at() {
    static_assert(names_a_layer<Pattern, Model>,
                  "halftone: casts_at: this path names no layer of the model, and would count nothing; "
                  "ht::print_ledger lists the paths that exist");
    int n = 0;
    for (const ledger_entry& e : halftone::ledger<Model, Input>)
        n += path_matches(Pattern.text().data, e.path) ? e.casts() : 0;
    return n;
}

}  // namespace detail::ledger

/// The casts of the layers that the pattern names (path_matches), and of those below them: ht::casts_at<model,
/// "*.norm">. Does not compile for a path that the model has not.
template <class Model, path_name Pattern, class Input = void>
inline constexpr int casts_at = detail::ledger::count_at<Model, Pattern, Input>();

}  // namespace HALFTONE_ABI
}  // namespace halftone
