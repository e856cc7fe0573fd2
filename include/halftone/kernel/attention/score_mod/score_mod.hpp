// SPDX-License-Identifier: MIT
/// \file
/// Functions of attention's scores, applied before softmax, as in FlexAttention (Dong et al. 2024, "Flex Attention"):
/// biases, caps and masks, as expressions of (score, batch, head, query, key) that become part of the kernels.
///
///     [](auto score, auto head, auto query, auto key) { return 30 * ht::tanh(score / 30); }      // a score_mod
///     [](auto head, auto query, auto key) { return key <= query; }                              // a mask_mod: a condition
///     ht::sliding_window{256}, ht::key_lengths(lengths), ht::document_mask(ids)                 // by name
///
/// A score_mod takes (score, head, query, key) or (score, batch, head, query, key) and returns a number; a mask_mod
/// takes (head, query, key) or (batch, head, query, key) and returns a condition. `score` is scale q k^T; the other
/// arguments are whole numbers from 0. Both are lambdas over ht:: functions and operators, called once with symbolic
/// arguments; they read tensors by ht::lookup(tensor). Several score_mods are applied one after the other, and all
/// masks after them.
///
/// In a call with fewer queries than keys, of the newest tokens over a cache say, sliding_window, prefix_lm and document_mask count
/// queries as the causal mask does: the last query stands where the last key does. `query` of other functions counts from 0.
///
/// A key is hidden from a query if a mask_mod is false, if options.mask hides it, or if its score becomes minus
/// infinity (or less than -3e38). For a query that sees no key, o is 0, the logsumexp is (-3e38, 0), and all gradients
/// are 0, as in PyTorch's flex_attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/attention/score_mod/dropout.hpp>
#include <halftone/kernel/attention/score_mod/lookup.hpp>
#include <halftone/kernel/map/expression/derivative.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The place of a named mask's first query by default: so that the last query stands where the last key does.
inline constexpr extent from_the_end = INT64_MIN;

/// A query sees the keys that are less than `size` away from it: |query - key| < size.
struct sliding_window {
    extent size;                         ///< at least 1
    extent first_query = from_the_end;   ///< the number of the key where the first query stands

    /// Throws argument_error for a size below 1.
    void check() const {
        if (size < 1) fail<argument_error>("sliding_window: size is ", size, "; expected at least 1");
    }
    /// The condition as an expression: a mask_mod.
    template <class Batch, class Head, class Query, class Key>
    constexpr auto operator()(const Batch&, const Head&, const Query& query, const Key& key) const {
        return symbolic::abs(query - key) < static_cast<float>(size);
    }
};

/// score becomes cap tanh(score / cap), as in Gemma 2, so that its magnitude is at most cap, which must be positive.
struct soft_cap {
    float cap;

    /// Throws argument_error for a cap that is not positive or not finite.
    void check() const {
        if (!(cap > 0 && cap <= 3.0e38f)) fail<argument_error>("soft_cap: cap is ", cap, "; expected a positive number");
    }
    /// The changed score as an expression: a score_mod.
    template <class Score, class Batch, class Head, class Query, class Key>
    constexpr auto operator()(const Score& score, const Batch&, const Head&, const Query&, const Key&) const {
        return cap * symbolic::tanh(score * (1 / cap));
    }
};

namespace detail {

template <class T>
struct key_lengths_mask {
    lookup_table<T, 1> lengths;

    template <class Batch, class Head, class Query, class Key>
    constexpr auto operator()(const Batch& batch, const Head&, const Query&, const Key& key) const {
        return key < lengths(batch);
    }
};

template <class T>
struct key_padding {
    lookup_table<T, 2> padding;

    template <class Batch, class Head, class Query, class Key>
    constexpr auto operator()(const Batch& batch, const Head&, const Query&, const Key& key) const {
        return padding(batch, key) == 0.0f;
    }
};

template <class T>
struct same_document {
    lookup_table<T, 2> of_queries, of_keys;
    extent first_query = from_the_end;

    template <class Batch, class Head, class Query, class Key>
    constexpr auto operator()(const Batch& batch, const Head&, const Query& query, const Key& key) const {
        return of_queries(batch, query) == of_keys(batch, key);
    }
};

template <class T>
struct prefix_mask {
    lookup_table<T, 1> lengths;
    extent first_query = from_the_end;

    template <class Batch, class Head, class Query, class Key>
    constexpr auto operator()(const Batch& batch, const Head&, const Query& query, const Key& key) const {
        return key < lengths(batch) || key <= query;
    }
};

}  // namespace detail

/// Every query of batch entry b sees the first lengths[b] keys; lengths may be 0. lengths: (batch).
template <class V>
    requires detail::viewable<V>
auto key_lengths(const V& lengths) {
    using T = typename detail::view_of<V>::value_type;
    return detail::key_lengths_mask<std::remove_const_t<T>>{lookup(lengths)};
}
/// nn.MultiheadAttention's key_padding_mask: no query sees the keys for which `padding` is true, or not 0. padding:
/// (batch, keys).
template <class V>
    requires detail::viewable<V>
auto key_padding_mask(const V& padding) {
    using T = typename detail::view_of<V>::value_type;
    return detail::key_padding<std::remove_const_t<T>>{lookup(padding)};
}
/// A query sees the keys of its own document. ids: (batch, time), of all keys, whole numbers below 2^24. `first_query`: the number
/// of the key where the first query stands.
template <class V>
    requires detail::viewable<V>
auto document_mask(const V& ids, extent first_query = from_the_end) {
    using T = typename detail::view_of<V>::value_type;
    return detail::same_document<std::remove_const_t<T>>{lookup(ids), lookup(ids), first_query};
}
/// A query of batch entry b sees the first lengths[b] keys and all keys up to its own position. lengths: (batch). `first_query`: as
/// of document_mask.
template <class V>
    requires detail::viewable<V>
auto prefix_lm(const V& lengths, extent first_query = from_the_end) {
    using T = typename detail::view_of<V>::value_type;
    return detail::prefix_mask<std::remove_const_t<T>>{lookup(lengths), first_query};
}

namespace detail {

// The indices of an expression's arguments.
inline constexpr int mod_score = 0, mod_batch = 1, mod_head = 2, mod_query = 3, mod_key = 4;

// The arguments other than the score.
inline constexpr symbolic::argument<mod_batch> batch_symbol{};
inline constexpr symbolic::argument<mod_head> head_symbol{};
inline constexpr symbolic::argument<mod_query> query_symbol{};
inline constexpr symbolic::argument<mod_key> key_symbol{};

template <class F, class... A>
concept takes = std::is_invocable_v<const F&, const A&...>;

/// The kind of a function of scores, by its number of arguments and the type of its result.
enum class mod_kind { score_of_five, score_of_four, mask_of_four, mask_of_three };

template <class F>
constexpr mod_kind kind_of_mod() {
    using score = symbolic::argument<mod_score>;
    using batch = symbolic::argument<mod_batch>;
    using head = symbolic::argument<mod_head>;
    using query = symbolic::argument<mod_query>;
    using key = symbolic::argument<mod_key>;
    static_assert(takes<F, score, batch, head, query, key> || takes<F, batch, head, query, key> || takes<F, head, query, key>,
                  "halftone: attention: a score_mod takes (score, head, query, key) or (score, batch, head, query, key), "
                  "a mask_mod (head, query, key) or (batch, head, query, key), all of them auto");
    if constexpr (takes<F, score, batch, head, query, key>) {
        return mod_kind::score_of_five;
    } else if constexpr (takes<F, batch, head, query, key>) {
        if constexpr (symbolic_condition<std::invoke_result_t<const F&, const batch&, const head&, const query&, const key&>>) {
            return mod_kind::mask_of_four;
        } else {
            return mod_kind::score_of_four;
        }
    } else {
        static_assert(symbolic_condition<std::invoke_result_t<const F&, const head&, const query&, const key&>>,
                      "halftone: attention: a function of (head, query, key) is a mask_mod and gives a condition, as "
                      "key <= query; a score_mod takes (score, head, query, key)");
        return mod_kind::mask_of_three;
    }
}
template <class F>
inline constexpr bool is_mask_mod = kind_of_mod<F>() == mod_kind::mask_of_four || kind_of_mod<F>() == mod_kind::mask_of_three;

/// The score after another function, if that is a score_mod.
template <class E, class F>
auto change_score(const E& score, const F& f) {
    if constexpr (std::is_same_v<F, attention_dropout>) {
        return score;
    } else if constexpr (is_mask_mod<F>) {
        return score;
    } else if constexpr (kind_of_mod<F>() == mod_kind::score_of_five) {
        return symbolic::detail::lift(f(score, batch_symbol, head_symbol, query_symbol, key_symbol));
    } else {
        return symbolic::detail::lift(f(score, head_symbol, query_symbol, key_symbol));
    }
}
/// Whether a mask says where its queries stand among the keys.
template <class F>
inline constexpr bool places_queries = std::is_same_v<F, sliding_window>;
template <class T>
inline constexpr bool places_queries<same_document<T>> = true;
template <class T>
inline constexpr bool places_queries<prefix_mask<T>> = true;

/// What a mask_mod takes as the query: its number, or its place among the keys.
template <class F>
auto query_of_mask(const F& f, extent keys_before) {
    if constexpr (places_queries<F>) {
        if constexpr (requires { f.of_queries; }) keys_before = std::max<extent>(keys_before, 0);  // a table has no place before its first
        return query_symbol + static_cast<float>(f.first_query == from_the_end ? keys_before : f.first_query);
    } else {
        return query_symbol;
    }
}
/// The score after another function, if that is a mask_mod: minus infinity if the condition is false, as float("-inf") in
/// FlexAttention. keys_before: keys minus queries.
template <class E, class F>
auto mask_score(const E& score, const F& f, extent keys_before) {
    if constexpr (std::is_same_v<F, attention_dropout>) {
        return score;
    } else if constexpr (!is_mask_mod<F>) {
        return score;
    } else if constexpr (kind_of_mod<F>() == mod_kind::mask_of_four) {
        return symbolic::where(f(batch_symbol, head_symbol, query_of_mask(f, keys_before), key_symbol), score, -HUGE_VAL);
    } else {
        return symbolic::where(f(head_symbol, query_symbol, key_symbol), score, -HUGE_VAL);
    }
}

template <class E>
E change_by_all(const E& score) {
    return score;
}
template <class E, class F, class... More>
auto change_by_all(const E& score, const F& f, const More&... more) {
    return change_by_all(change_score(score, f), more...);
}
template <class E>
E mask_by_all(const E& score, extent) {
    return score;
}
template <class E, class F, class... More>
auto mask_by_all(const E& score, extent keys_before, const F& f, const More&... more) {
    return mask_by_all(mask_score(score, f, keys_before), keys_before, more...);
}

/// The causal mask of attention_options, with the offset that makes the last query see all keys; or a mask that hides
/// nothing.
struct mask_of_options {
    float offset;

    template <class Batch, class Head, class Query, class Key>
    constexpr auto operator()(const Batch&, const Head&, const Query& query, const Key& key) const {
        return key <= query + offset;
    }
};

}  // namespace detail

namespace kernel {

/// The combined function of the scores: an expression of (score, batch, head, query, key), which is minus infinity for
/// hidden keys.
template <class E>
struct attention_mod {
    using expression = E;
    E score;
    detail::pair_dropout dropout{};  ///< of the weights
};

/// The math strategy (math.hpp), for all devices.
template <class Device>
struct modified_attention_math;

namespace fp64 {

/// Attention in double (fp64.hpp), under every strategy.
template <class Device, class E>
void attend(Device& device, const attention_forward<double>& a, const attention_mod<E>& mod);
template <class Device, class E>
void attend(Device& device, const attention_backward<double>& a, const attention_mod<E>& mod);

}  // namespace fp64
}  // namespace kernel

namespace detail {

/// Throws argument_error for a named function with invalid options.
template <class F>
void check_mod(const F& f) {
    if constexpr (requires { f.check(); }) f.check();
}
/// Combines functions of scores: the score_mods one after the other, then all masks, including that of the options.
template <class... F>
auto attention_mod_of(const attention_options& options, extent queries, extent keys, const F&... functions) {
    (check_mod(functions), ...);
    constexpr extent most = extent{1} << 24;
    if (queries > most || keys > most) {
        fail<shape_error>("attention: ", queries, " queries and ", keys, " keys; functions of scores count in floats, to ",
                          most);
    }
    const extent offset = options.mask == attention_mask::causal ? keys - queries : keys;
    const auto score = change_by_all(symbolic::argument<mod_score>{}, functions...);
    const auto seen = mask_by_all(score, keys - queries, functions..., mask_of_options{static_cast<float>(offset)});
    return kernel::attention_mod<std::remove_const_t<decltype(seen)>>{seen, {}};
}

/// Whether T may be passed as a function of scores; kind_of_mod reports an error if it is not one.
template <class T>
concept attention_function = std::is_class_v<T> && !std::is_same_v<T, attention_options> && !viewable<T> &&
                             !std::is_convertible_v<packed_sequences, T> && !requires { typename T::value_type; };

/// Runs the strategy that the options name, or that is chosen for the arguments.
template <class Compute, class Device, class T, class E>
void run_attention(Device& device, const kernel::attention_forward<T>& a, const kernel::attention_mod<E>& mod) {
    if constexpr (std::is_same_v<T, double>) {
        static_assert(std::is_same_v<Compute, double>,
                      "halftone: attention: doubles are read in another type (roles `compute` and `input_grad`); cast "
                      "them, ht::cast<float>(ctx, q), or compute in double: ht::full_fp64");
        kernel::fp64::attend(device, a, mod);
    } else {
        if (strategy_for<Device>(a.options, check_attention_shapes(a)) == attention_strategy::math) {
            kernel::modified_attention_math<Device>::template forward<Compute>(device, a, mod);
        } else {
            kernel::attention<Device>::template forward<unsplit<Compute>>(device, a, mod);
        }
    }
}
template <class Compute, class Device, class T, class E>
void run_attention(Device& device, const kernel::attention_backward<T>& a, const kernel::attention_mod<E>& mod) {
    if constexpr (std::is_same_v<T, double>) {
        static_assert(std::is_same_v<Compute, double>,
                      "halftone: attention: doubles are read in another type (roles `compute` and `input_grad`); cast "
                      "them, ht::cast<float>(ctx, q), or compute in double: ht::full_fp64");
        kernel::fp64::attend(device, a, mod);
    } else {
        if (strategy_for<Device>(a.options, check_attention_shapes(a)) == attention_strategy::math) {
            kernel::modified_attention_math<Device>::template backward<Compute>(device, a, mod);
        } else {
            kernel::attention<Device>::template backward<unsplit<Compute>>(device, a, mod);
        }
    }
}

}  // namespace detail

/// o = softmax(functions of scale q k^T) v: attention with score_mods and mask_mods, applied in the given order. q, k,
/// v, o and logsumexp as without functions; the logsumexp of a query is the largest of its scores after the functions,
/// and the logarithm of the sum of exp(score - largest). Throws shape_error and argument_error.
template <class P, class Device, class Q, class K, class V, class O, class F, class... More>
    requires(detail::attention_function<F> && (detail::attention_function<More> && ...))
void attention(Device& device, const Q& q, const K& k, const V& v, const O& o, const view<float, 4>& logsumexp,
               const attention_options& options, const F& function, const More&... more) {
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    using T = typename decltype(as_view(q))::value_type;
    detail::expect_results_apart(device, q, k, v, o, logsumexp);
    const auto mod =
        detail::attention_mod_of(options, as_view(q).extent_of(1), as_view(k).extent_of(1), function, more...);
    detail::expect_lookups_apart(device, "attention", mod.score, "o", o);
    detail::expect_lookups_apart(device, "attention", mod.score, "logsumexp", logsumexp);
    detail::run_attention<unscaled_compute<roles>>(
        device, kernel::attention_forward<T>{as_view(q), as_view(k), as_view(v), as_view(o), logsumexp, options}, mod);
}
/// The gradients of the same. Throws shape_error and argument_error.
template <class P, class Device, class T, class F, class... More>
    requires(detail::attention_function<F> && (detail::attention_function<More> && ...))
void attention_gradients(Device& device, const kernel::attention_backward<T>& views, const F& function,
                         const More&... more) {
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    detail::expect_results_apart(device, views);
    const auto mod =
        detail::attention_mod_of(views.options, views.q.extent_of(1), views.k.extent_of(1), function, more...);
    detail::expect_lookups_apart(device, "attention gradients", mod.score, "dq", views.dq);
    detail::expect_lookups_apart(device, "attention gradients", mod.score, "dk", views.dk);
    detail::expect_lookups_apart(device, "attention gradients", mod.score, "dv", views.dv);
    detail::run_attention<unscaled_compute<roles>>(device, views, mod);
}

namespace detail {

/// The expression for elements whose arguments in Known have the given values: lookups that depend only on these
/// arguments are replaced by numbers, once instead of for each element.
template <unsigned Known>
struct bound_lookups {
    template <class E>
    static constexpr bool knows =
        (!reads<0, E> || (Known & 1u)) && (!reads<1, E> || (Known & 2u)) && (!reads<2, E> || (Known & 4u)) &&
        (!reads<3, E> || (Known & 8u)) && (!reads<4, E> || (Known & 16u));

    template <class E>
    static E of(const E& e, const float*) {
        return e;
    }
    template <class Op, class A>
    static auto of(const symbolic::unary<Op, A>& e, const float* x) {
        const auto a = of(e.operand, x);
        return symbolic::unary<Op, std::remove_const_t<decltype(a)>>{a};
    }
    template <class Op, class A, class B>
    static auto of(const symbolic::binary<Op, A, B>& e, const float* x) {
        const auto a = of(e.left, x);
        const auto b = of(e.right, x);
        return symbolic::binary<Op, std::remove_const_t<decltype(a)>, std::remove_const_t<decltype(b)>>{a, b};
    }
    template <class Op, class A, class B>
    static auto of(const symbolic::comparison<Op, A, B>& e, const float* x) {
        const auto a = of(e.left, x);
        const auto b = of(e.right, x);
        return symbolic::comparison<Op, std::remove_const_t<decltype(a)>, std::remove_const_t<decltype(b)>>{a, b};
    }
    template <class Op, class A, class B>
    static auto of(const symbolic::logical<Op, A, B>& e, const float* x) {
        const auto a = of(e.left, x);
        const auto b = of(e.right, x);
        return symbolic::logical<Op, std::remove_const_t<decltype(a)>, std::remove_const_t<decltype(b)>>{a, b};
    }
    template <class A>
    static auto of(const symbolic::complement<A>& e, const float* x) {
        const auto a = of(e.operand, x);
        return symbolic::complement<std::remove_const_t<decltype(a)>>{a};
    }
    template <class C, class A, class B>
    static auto of(const symbolic::choice<C, A, B>& e, const float* x) {
        const auto c = of(e.condition, x);
        const auto a = of(e.yes, x);
        const auto b = of(e.no, x);
        return symbolic::choice<std::remove_const_t<decltype(c)>, std::remove_const_t<decltype(a)>,
                                std::remove_const_t<decltype(b)>>{c, a, b};
    }
    template <class F, class... A>
    static auto of(const symbolic::external<F, A...>& e, const float* x) {
        if constexpr (knows<symbolic::external<F, A...>>) {
            return symbolic::constant(static_cast<double>(scalar::evaluate(e, x)));
        } else {
            return e;
        }
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
