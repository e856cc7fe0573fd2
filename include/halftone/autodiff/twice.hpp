// SPDX-License-Identifier: MIT
/// \file
/// Double backward: gradients that are part of a loss, such as a gradient penalty.
///
///     ht::tape tape{device, ht::twice};
///     auto loss = model.loss(tape, batch);
///     auto grads = scaler.unscale(tape.gradients(scaler.scale(loss), model));      // variables of the tape
///     auto total = ht::add(tape, loss, ht::norm(tape, grads));
///     tape.backward(scaler.scale(total), acc);                                     // and on as ever
///
/// Such a tape takes operations whose gradients are operations themselves, and says at compile time which are not: a
/// map of an opaque functor, products of eight bits, an operation of your own (ht::apply) whose backward launches
/// kernels, a record of your own without a rule. Attention takes its math strategy; linear_cross_entropy stores its
/// logits, and mlp the input of its gelu. The gradient of a sparse embedding's table is dense where it is a variable,
/// and rows again in the accumulator.
///
/// Numeric contract: forward results are those of a plain tape, but for what these three round in between; gradients
/// have the types of the policy, and what their formulas have in between is float.
#pragma once

#include <halftone/autodiff/attention.hpp>
#include <halftone/autodiff/twice_apply.hpp>
#include <halftone/autodiff/twice_free_rules.hpp>
#include <halftone/autodiff/twice_rules.hpp>
#include <halftone/kernel/attention/math.hpp>

namespace halftone::inline HALFTONE_ABI {

namespace detail {

template <class Roles>
struct composition<op::mlp, Roles> {
    template <class Root, class X, class Y, int Rank, class Weight, class Bias>
    static variable<Y, Rank> run(Root& root, const variable<X, Rank>& x, const Weight& up, const Bias& up_bias,
                                 const Weight& down, const Bias& down_bias, const variable<Y, Rank>& residual) {
        const auto pre = linear<Roles>(root, x, up, up_bias);
        const auto hidden = evaluate<op::gelu, storage_of<typename Roles::compute>>(
            root, pre.shape(), halftone::trace<1>(gelu_function{}), pre);
        return linear<Roles>(root, hidden, down, down_bias, residual);
    }
};

template <class Roles>
struct composition<op::linear_cross_entropy, Roles> {
    template <class Root, class X, int Rank, class Weight, int TargetRank>
    static variable<float, 0> run(Root& root, const variable<X, Rank>& x, const Weight& weight,
                                  const const_view<std::int32_t, TargetRank>& targets) {
        return cross_entropy(root, linear<Roles>(root, x, weight, absent{}), targets);
    }
};

template <class Roles>
struct composition<op::attention, Roles> {
    using compute = typename Roles::compute;
    using by_input = typename Roles::input_grad;

    template <class Root, class T>
    static variable<T, 4> run(Root& root, const variable<T, 4>& q, const variable<T, 4>& k, const variable<T, 4>& v,
                              const attention_options& options, const packed_sequences& sequences) {
        const attention_extents e =
            check_attention_shapes(as_const(q.view()), as_const(k.view()), as_const(v.view()), options, sequences);
        const head_layout of_queries{e.batch, e.queries, e.heads, e.head_size},
            of_keys{e.batch, e.keys, e.groups, e.head_size};
        const auto o =
            attend<T>(root, split_heads<1>(root, flat(q), of_queries)[0], split_heads<1>(root, flat(k), of_keys)[0],
                      split_heads<1>(root, flat(v), of_keys)[0], e, options, sequences);
        return reshaped(join_heads<1>(root, std::array{o}, of_queries), q.shape());
    }
    template <class Root, class T>
    static variable<T, 3> run(Root& root, const variable<T, 3>& qkv, extent heads, const attention_options& options,
                              const packed_sequences& sequences) {
        const shape<3> s = qkv.shape();
        if (heads < 1 || s[2] % (3 * heads) != 0)
            fail<shape_error>("self_attention: qkv is ", s, "; its last extent is no multiple of 3 times ", heads,
                              " heads");
        const T* const in = qkv.view().data();
        const attention_extents e = check_attention_shapes(slice_of_qkv(in, s, heads, 0), slice_of_qkv(in, s, heads, 1),
                                                           slice_of_qkv(in, s, heads, 2), options, sequences);
        const head_layout layout{e.batch, e.queries, e.heads, e.head_size};
        const auto parts = split_heads<3>(root, flat(qkv), layout);
        const auto o = attend<T>(root, parts[0], parts[1], parts[2], e, options, sequences);
        return reshaped(join_heads<1>(root, std::array{o}, layout), shape<3>{s[0], s[1], s[2] / 3});
    }

  private:
    /// kernel::attention_math's forward pass. q, k, v: (batch, heads, time, size); the heads that share a key head are
    /// rows of one matrix.
    template <class T, class Root>
    static variable<T, 1> attend(Root& root, const variable<T, 1>& q, const variable<T, 1>& k, const variable<T, 1>& v,
                                 const attention_extents& e, const attention_options& options,
                                 const packed_sequences& sequences) {
        using rows = kernel::attention_rows<typename Root::device_type>;
        if (options.strategy == attention_strategy::flash) {
            fail<argument_error>(
                "attention: flash was asked for; a tape for second derivatives takes the math strategy");
        }
        const auto packed = brought_sequences::to(root, sequences, e);
        if (sequences.are_there()) rows::check(root.device(), packed.sequences, e);
        const kernel::attention_visibility visible{e.queries, e.keys, options.mask, packed.sequences};
        const float scale = attention_scale(options, e.head_size);
        const extent matrices = e.batch * e.groups, together = e.members() * e.queries;
        const auto hide = [&](const variable<float, 1>& x, float value) {
            for (extent i = 0; i < e.batch * e.heads; ++i)
                rows::hide(root.device(), visible, value,
                           view<float, 2>(x.view().data() + i * e.queries * e.keys, {e.queries, e.keys}));
        };

        const auto scores = product<compute, by_input, by_input, float>(
            root, factor_of(q, {matrices, together, e.head_size}),
            factor_of(k, {matrices, e.keys, e.head_size}, orientation::transposed));
        // Hidden scores take no gradient, since their weights are 0: nothing of this need be recorded.
        if (visible.hides()) hide(scores, attention_hidden / (scale > 1 ? scale : 1.0f));
        auto weights = flat(softmax(root, reshaped(scores, shape<2>{matrices * together, e.keys}), scale));
        if (sequences.are_there()) {
            // Where a query sees no key, softmax has made them all equal.
            const auto seen = filled(root, weights.size(), 1);
            hide(seen, 0);
            weights = mul(root, weights, seen);
        }
        return product<compute, by_input, by_input, T>(root, factor_of(weights, {matrices, together, e.keys}),
                                                       factor_of(v, {matrices, e.keys, e.head_size}));
    }
};

/// A tape's gradients that are still scaled where they must not be.
template <class T>
struct not_unscaled {
    static_assert(sizeof(T) == 0,
                  "halftone: these gradients are still multiplied by the loss scale, and so would be what is computed "
                  "of them: unscale them first, scaler.unscale(tape.gradients(scaler.scale(loss), model))");
};

}  // namespace detail

/// The sum of the squares of all elements, in float.
template <recording_context Context, class X, int Rank>
variable<float, 0> sum_of_squares(Context&& context, const variable<X, Rank>& x) {
    return detail::reduce<op::sum, float>(context, 1.0, [](auto a) { return halftone::square(a); }, x);
}
/// The same over all gradients, which are added up in their order.
template <recording_context Context, class Device>
variable<float, 0> sum_of_squares(Context&& context, const gradient_variables<Device>& gradients) {
    variable<float, 0> total;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        const auto squares = sum_of_squares(context, gradients[i]);
        total = i == 0 ? squares : add(context.root(), total, squares);
    }
    return total;
}

/// The Euclidean norm of all gradients together. Its gradient at 0 is 0.
template <recording_context Context, class Device>
variable<float, 0> norm(Context&& context, const gradient_variables<Device>& gradients) {
    return map(
        context.root(), [](auto s) { return halftone::where(s == 0.0f, 0.0f, halftone::sqrt(s)); },
        sum_of_squares(context, gradients));
}

// Gradients that are still scaled: not_unscaled says what to do.
template <recording_context Context, class Scaled>
    requires requires(const Scaled& s) { s.stamp(); }
variable<float, 0> sum_of_squares(Context&&, const Scaled&) {
    static_assert(sizeof(detail::not_unscaled<Scaled>) > 0);
    return {};
}
template <recording_context Context, class Scaled>
    requires requires(const Scaled& s) { s.stamp(); }
variable<float, 0> norm(Context&&, const Scaled&) {
    static_assert(sizeof(detail::not_unscaled<Scaled>) > 0);
    return {};
}

}  // namespace halftone::inline HALFTONE_ABI
