// SPDX-License-Identifier: MIT
/// \file
/// The precision ledger of a model, computed at compile time: every operation of its forward and backward pass, with
/// the type in which each operand is stored and the type in which it is read.
///
///     static_assert(ht::casts<ht::nn::gpt<recipe>> <= 12 && ht::casts_at<ht::nn::gpt<recipe>, "head"> == 2);
///     static_assert(ht::casts<classifier<ht::amp_bf16>, const float> == 2);   // input: floats without gradient
///     ht::print_ledger<ht::nn::gpt<recipe>>(std::cout);           // policy/ledger_table.hpp, which also writes JSON
///
///     path        op          pass             in        accumulate  out       casts
///     h.*.norm    layer_norm  forward          float     float       bfloat16  x: bfloat16 as float
///     h.*.fc      linear      forward          bfloat16  float       bfloat16  -
///     h.*.fc      linear      weight gradient  bfloat16  float       float     -
///
/// A cast is an operand that an operation reads in another type than it is stored in. (The kernel converts it as it
/// reads; no converted tensor is written.) These are no casts: sums rounded once to the type of a result; a bias and a
/// residual, which are added to the sums in registers; and weights read from the copy that the store keeps in the
/// products' type, since the optimizer's step writes the copy.
///
/// The type of a layer's input does not follow from the layer's own type. Here it is taken to be the result type of the
/// layer before, in the order of `visit`. A layer with `static constexpr bool adds_to_stream = true` adds its result to
/// the residual stream: its result has the type that arrived at the layer before it (or at itself, if it is the first).
/// One with `gives_stream = true` begins the stream, or is it: its result has the policy's `stream`.
/// If your model's data flow differs, use observe/ledger/ledger.hpp, which runs the model once and records what its
/// operations were called with. Free operations (add, gelu, a loss) appear only there, except those that layers call between
/// their products: the gelu of a perceptron that is not one operation, the gate of nn::gated_mlp, the rotation of
/// nn::rotary_attention. The lines of layers are the same in both.
///
/// Input is the type of the first layer's input: `float` if it takes a gradient, `const float` for data, whose gradient
/// pass then does not appear. A model that takes token ids needs no Input; a model whose first layer takes numbers does
/// not compile without one.
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

/// The types of a layer's operation, as roles<...> has them (autodiff/engine/operation.hpp). A layer that inherits its
/// policy is taken to be called on a bare tape.
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

/// The lines of a layer, and the type of its result. Stream is the type of the residual stream that the layer adds to,
/// or void.
template <class L, class In, class Stream>
struct of_layer;

template <class L>
concept adding_layer = requires { requires L::adds_to_stream; };

/// How the parameter that this layer reads is stored: another layer's parameter, if it is tied, otherwise its own.
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

/// The type of the input of a layer that computes Op. If nothing says so, a custom operation is taken to
/// read the type of its result, or ids.
template <class In, class Op, class Own>
struct arrival {
    static_assert(!std::is_void_v<In> ||
                      !(scales_operands<Op> || is_of_kind<Op, operation_kind::attention> ||
                        is_of_kind<Op, operation_kind::conv2d> || is_of_kind<Op, operation_kind::linear_cross_entropy> ||
                        (operation_category<Op>::value == category::fp32 && !is_of_kind<Op, operation_kind::embedding>)),
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

/// An operation's lines; where the input is a constant, without line I, the input's gradient.
template <class In, std::size_t I, std::size_t N>
constexpr auto wanted(const std::array<ledger_entry, N>& all) {
    if constexpr (std::is_const_v<In>) {
        return without<I>(all);
    } else {
        return all;
    }
}

/// Norms compute in float, whatever their category.
template <class Op>
inline constexpr bool computes_by_rows =
    operation_category<Op>::value == category::fp32 || std::is_base_of_v<operation_kind::norm, kind_of<Op>>;

/// The type of a layer's result where nothing else says it.
template <class L>
using own_result = std::conditional_t<stream_giving<L>, stream_of<policy_within<typename L::policy, as_given>>,
                                      typename policy_within<typename L::policy, as_given>::output>;

/// The lines of a layer's own operation.
template <class L, class In, class Stream, class Op = typename computed_by<L>::type>
struct of_own_operation {
    using types = layer_types<typename L::policy, Op>;
    using out = std::remove_const_t<stream_or<Stream, own_result<L>>>;
    static constexpr auto lines() {
        using arrives = typename arrival<In, Op, typename types::output>::type;
        using P = typename L::policy;
        using storage = typename storage_read<L>::type;
        using by_rows = promote<float, typename types::compute>;
        if constexpr (is_of_kind<Op, operation_kind::linear> || is_of_kind<Op, operation_kind::conv2d>) {
            return at_path<P>(wanted<In, 1>(linear<types, arrives, out, storage>(Op::name)));
        } else if constexpr (is_of_kind<Op, operation_kind::embedding>) {
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
struct of_own_operation<L, In, Stream, op::linear_cross_entropy> {
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

/// The adapter of a linear layer (nn/low_rank.hpp).
template <class List>
inline constexpr bool is_one_adapter = false;
template <class List>
struct first_of_list;
template <class A, class... Rest>
struct first_of_list<types<A, Rest...>> {
    using type = A;
};
template <class A>
    requires requires { requires A::is_adapter; }
inline constexpr bool is_one_adapter<types<A>> = true;
template <class L>
concept adapted_layer = layer<L> && is_one_adapter<children_of<L>>;

/// The lines of a single operation and, before it, those of the layer's adapter.
template <class L, class In, class Stream>
struct of_operation : of_own_operation<L, In, Stream> {};
template <adapted_layer L, class In, class Stream>
struct of_operation<L, In, Stream> : of_own_operation<L, In, Stream> {
    static constexpr auto lines() {
        using adapter = typename first_of_list<children_of<L>>::type;
        using a = of_own_operation<adapter, In, void>;
        using b = of_own_operation<adapter, typename a::out, Stream>;
        return join(join(a::lines(), b::lines()), of_own_operation<L, In, Stream>::lines());
    }
};

struct no_lines {
    static constexpr std::array<ledger_entry, 0> lines() { return {}; }
};

/// Layers one after the other. Before is the type that arrived at the layer before the first of them: the stream that
/// the first adds to. If that is void, a layer that adds to the stream adds to its own input.
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

/// Children that are no layers are left out.
template <class L, class In, class Stream>
struct of_layer : in_order<In, children_of<L>> {};

/// Children whose results the layer itself combines into the residual stream.
template <class L, class In, class Stream>
    requires(stream_giving<L> && !std::is_same_v<children_of<L>, types<>>)
struct of_layer<L, In, Stream> : in_order<In, children_of<L>> {
    using out = own_result<L>;
};

template <class L, class In, class Stream>
    requires(layer<L> && !std::is_void_v<operation_of<L>> &&
             (std::is_same_v<children_of<L>, types<>> || is_one_adapter<children_of<L>>))
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

template <class List>
struct four_children;
template <class A, class B, class C, class D>
struct four_children<types<A, B, C, D>> {
    using first = A;
    using second = B;
    using third = C;
    using fourth = D;
};
template <class L>
concept normed_heads = requires { requires L::norms_heads; };

/// One product, norms of queries and of keys, attention, another product.
template <class L, class In, class Stream>
    requires(std::is_same_v<operation_of<L>, op::attention> && normed_heads<L>)
struct of_layer<L, In, Stream> {
    using parts = four_children<children_of<L>>;
    using before = of_operation<typename parts::first, In, void>;
    using of_q = of_operation<typename parts::second, typename before::out, void>;
    using of_k = of_operation<typename parts::third, typename before::out, void>;
    using heads = promote<typename of_q::out, typename of_k::out, typename before::out>;  // of a concatenation
    using behind = of_operation<typename parts::fourth, heads, Stream>;
    using out = typename behind::out;
    static constexpr auto lines() {
        using P = typename L::policy;
        using policy = policy_within<P, as_given>;
        using compute = compute_type<policy, op::attention>;
        using backward = input_grad_type<policy, op::attention>;
        return join(join(before::lines(), join(of_q::lines(), of_k::lines())),
                    join(lines_of_turn<L, heads, typename parts::first::policy>(),
                         join(at_path<P>(attention<compute, backward, heads>(op::attention::name)), behind::lines())));
    }
};

template <class A, class B>
inline constexpr bool same_types =
    std::is_same_v<typename A::compute, typename B::compute>&& std::is_same_v<typename A::output, typename B::output>&&
        std::is_same_v<typename A::input_grad, typename B::input_grad>&&
            std::is_same_v<typename A::weight_grad, typename B::weight_grad>;

/// The activation of a perceptron that names none.
template <class L>
struct activation_of {
    using type = op::gelu;
};
template <class L>
    requires requires { typename L::activation; }
struct activation_of<L> {
    using type = typename L::activation;
};

/// A perceptron: one operation if both products have the same types and the activation is what their kernel has, otherwise two
/// products and the activation between them.
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
    using between = typename activation_of<L>::type;
    static constexpr bool whole = !adapted_layer<up> && !adapted_layer<down> && std::is_same_v<between, op::gelu> &&
                                  same_types<up_types, down_types> &&
                                  std::is_same_v<up_storage, typename storage_read<down>::type>;
    static constexpr auto lines() {
        if constexpr (whole) {
            using arrives = typename arrival<In, op::mlp, up_out>::type;
            return at_path<typename L::policy>(wanted<In, 3>(mlp<up_types, arrives, out, up_storage>(op::mlp::name)));
        } else {
            return join(of_operation<up, In, void>::lines(),
                        join(activation<up_out>(between::name, place_text<typename up::policy>.data),
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

/// All lines of a Model, in the order of its layers; all layers of a list that no rule names by index count as one.
/// Input is the type of the first layer's input, const if it takes no gradient; a model that takes ids needs none.
template <class Model, class Input = void>
inline constexpr auto ledger = detail::ledger::of_layer<Model, Input, void>::lines();

/// The number of casts of a step, forward and backward pass; all layers of a list that no rule names by index count as
/// one.
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

/// The number of casts of the layers that the pattern names (path_matches), and of those below them:
/// ht::casts_at<model, "*.norm">. A pattern that names no layer does not compile.
template <class Model, path_name Pattern, class Input = void>
inline constexpr int casts_at = detail::ledger::count_at<Model, Pattern, Input>();

}  // namespace HALFTONE_ABI
}  // namespace halftone
