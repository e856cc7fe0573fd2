// SPDX-License-Identifier: MIT
/// \file
/// Attention on tapes with functions of the scores (kernel/attention/score_mod/score_mod.hpp), and attention as a free
/// operation in regions, with functions or without.
///
///     auto o = ht::attention(ctx, q, k, v, {.mask = ht::attention_mask::causal},                  // ALiBi
///                            [slope = ht::lookup(slopes)](auto score, auto head, auto query, auto key) {
///                                return score + slope(head) * (key - query);
///                            });
///     auto o = ht::attention(ctx, q, k, v, {}, ht::soft_cap{50}, ht::sliding_window{4096});
///     auto o = ht::attention(ctx, q, memory_k, memory_v, {}, ht::key_lengths(lengths));           // cross-attention
///
/// Tensors that functions read get no gradient; they must stay unchanged until the backward pass has run.
#pragma once

#include <halftone/autodiff/op/attention.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/kernel/attention/score_mod/score_mod.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class Roles, class T, class E>
struct modified_attention_record {
    using operation = op::attention;
    static constexpr int roundings = 4;  // of operands; of a weight or its gradient; of the result; of the functions
    variable<T, 4> q, k, v, o;
    variable<float, 4> logsumexp;
    gradient_of<T, 4> dq, dk, dv, dy;
    attention_options options;
    kernel::attention_mod<E> mod;

    extent sum_length() const { return q.shape()[3] + k.shape()[1] + q.shape()[1] * q.shape()[2] / k.shape()[2]; }

    template <class Tape>
    void propagate(Tape& tape) {
        const auto gq = tape.template make<T>(q.shape(), false), gk = tape.template make<T>(k.shape(), false),
                   gv = tape.template make<T>(v.shape(), false);
        run_attention<typename Roles::input_grad>(
            tape.device(),
            kernel::attention_backward<T>{q.view(), k.view(), v.view(), o.view(), logsumexp.view(), as_const(dy.view()),
                                          gq.view(), gk.view(), gv.view(), options},
            mod);
        using plain = attention_record<Roles, T>;
        plain::give(tape, gq, dq);
        plain::give(tape, gk, dk);
        plain::give(tape, gv, dv);
    }
};

/// True, or a compile-time error, for a context in which functions of scores are called.
template <class Context, class... F>
consteval bool check_mod_context() {
    static_assert(!records_double_backward<Context>,
                  "halftone: attention: with functions of scores it has no second derivative: on a tape for these, compose "
                  "attention of products, ht::map and softmax");
    static_assert(!(runs_own_operation<Context> && (std::is_same_v<F, attention_dropout> || ...)),
                  "halftone: attention_dropout: the functions of a custom operation (ht::apply) run in a context that "
                  "does not record, where dropout would do nothing even in training: call attention on the tape");
    return true;
}

/// The functions in the form that kernels take, with the tape's random draws for dropout.
template <class Root, class... F>
auto drawn_mod(Root& root, const attention_options& options, extent queries, extent keys, const F&... functions) {
    auto mod = attention_mod_of(options, queries, keys, functions...);
    if constexpr (Root::records && (std::is_same_v<F, attention_dropout> || ...)) {
        if (const float p = dropout_of(functions...); p > 0) {
            const auto draw = root.graph().random.next(root.device(), root.graph().pass());
            mod.dropout.draw = kernel::dropout_draw::of(draw.record, draw.number, p);
        }
    }
    return mod;
}

/// The record for queries, keys and values in one tensor.
template <class Roles, class T, class E>
struct modified_self_attention_record {
    using operation = op::attention;
    static constexpr int roundings = 4;  // as above
    variable<T, 3> qkv, o;
    variable<float, 4> logsumexp;
    gradient_of<T, 3> dqkv, dy;
    attention_heads heads;
    attention_options options;
    kernel::attention_mod<E> mod;

    extent sum_length() const { return o.shape()[2] / heads.queries + 2 * qkv.shape()[1]; }

    template <class Tape>
    void propagate(Tape& tape) {
        contribute(tape, dqkv, [&](const view<T, 3>& out) {
            run_attention<typename Roles::input_grad>(
                tape.device(), self_attention_backward(qkv, o, logsumexp, dy, heads, options, out), mod);
        });
    }
};

template <class Roles, class Context, class T, class... F>
variable<T, 4> modified_attention(Context&& context, const variable<T, 4>& q, const variable<T, 4>& k,
                                  const variable<T, 4>& v, const attention_options& options, const F&... functions) {
    static_assert(check_mod_context<Context, F...>());
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::attention::name);
    const bool wanted = wants_gradient(q, k, v);
    const bool keeps = std::remove_cvref_t<Context>::records && wanted;
    auto o = root.template make<T>(q.shape(), wanted);
    const shape<4> rows{q.shape()[0], q.shape()[2], keeps ? q.shape()[1] : 0, 2};
    auto logsumexp = root.template make<float>(rows, false);
    const auto mod = drawn_mod(root, options, q.shape()[1], k.shape()[1], functions...);
    run_attention<typename Roles::compute>(
        root.device(),
        kernel::attention_forward<T>{q.view(), k.view(), v.view(), o.view(),
                                     keeps ? logsumexp.view() : view<float, 4>{}, options},
        mod);
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            root.record(modified_attention_record<Roles, T, typename decltype(mod)::expression>{
                q, k, v, o, logsumexp, gradient_of(q), gradient_of(k), gradient_of(v), gradient_of(o), options, mod});
        }
    }
    return o;
}

}  // namespace detail

/// o = softmax(functions of scale q kᵀ) v: score_mods change the scores, mask_mods hide keys. q and o: (batch, queries,
/// heads, head_size), k and v: (batch, keys, groups, head_size), where groups divides heads. The result of a query that
/// sees no key is zero, and so are its gradient and its contributions to other gradients. Throws shape_error and
/// argument_error as the kernels do.
template <class Roles, class Context, class T, class F, class... More>
    requires(!detail::type_choice<Roles> && detail::attention_function<F> && (detail::attention_function<More> && ...))
variable<T, 4> attention(Context&& context, const variable<T, 4>& q, const variable<T, 4>& k, const variable<T, 4>& v,
                         const attention_options& options, const F& function, const More&... more) {
    return detail::modified_attention<Roles>(context, q, k, v, options, function, more...);
}

/// Attention with functions of the scores of q, k and v in one tensor, as a single product computes them: (batch, time,
/// (heads + 2 kv_heads) head_size); o: (batch, time, heads head_size). Throws shape_error if the last extent is not a
/// multiple of heads + 2 kv_heads.
template <class Roles, class Context, class T, class F, class... More>
    requires(detail::attention_function<F> && (detail::attention_function<More> && ...))
variable<T, 3> self_attention(Context&& context, const variable<T, 3>& qkv, const attention_heads& heads,
                              const attention_options& options, const F& function, const More&... more) {
    static_assert(detail::check_mod_context<Context, F, More...>());
    const shape<3> s = qkv.shape(), result = detail::attention_result(s, heads);
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::attention::name);
    const bool wanted = qkv.wants_gradient();
    const bool keeps = std::remove_cvref_t<Context>::records && wanted;
    auto o = root.template make<T>(result, wanted);
    auto logsumexp = root.template make<float>(shape<4>{s[0], heads.queries, keeps ? s[1] : 0, 2}, false);
    const T* in = qkv.view().data();
    const auto mod = detail::drawn_mod(root, options, s[1], s[1], function, more...);
    detail::run_attention<typename Roles::compute>(
        root.device(),
        kernel::attention_forward<T>{detail::slice_of_qkv(in, s, heads, 0), detail::slice_of_qkv(in, s, heads, 1),
                                     detail::slice_of_qkv(in, s, heads, 2),
                                     detail::in_heads(o.view().data(), o.shape(), heads.queries),
                                     keeps ? logsumexp.view() : view<float, 4>{}, options},
        mod);
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            root.record(detail::modified_self_attention_record<Roles, T, typename decltype(mod)::expression>{
                qkv, o, logsumexp, gradient_of(qkv), gradient_of(o), heads, options, mod});
        }
    }
    return o;
}

/// F.scaled_dot_product_attention and flex_attention: attention with or without functions of the scores, shapes as
/// above. In a region q, k and v are cast to the type of its policy; ht::attention<T> computes and returns T in every
/// region.
template <class As = by_category, recording_context Context, class Q, class K, class V, class... F>
    requires(detail::type_choice<As> && (detail::attention_function<F> && ...))
auto attention(Context&& context, const variable<Q, 4>& q, const variable<K, 4>& k, const variable<V, 4>& v,
               const attention_options& options = {}, const F&... functions) {
    using roles = detail::product_roles<As, Context, op::attention, Q, K, V>;
    using T = typename roles::output;
    const auto of_q = cast<T>(context, q);
    const auto of_k = cast<T>(context, k);
    const auto of_v = cast<T>(context, v);
    if constexpr (sizeof...(F) == 0) {
        return attention<roles>(context, of_q, of_k, of_v, options);
    } else {
        return attention<roles>(context, of_q, of_k, of_v, options, functions...);
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
