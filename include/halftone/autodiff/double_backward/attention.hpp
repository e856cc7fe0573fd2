// SPDX-License-Identifier: MIT
/// \file
/// Attention on a tape for second derivatives: the operations of kernel/attention/math/math.hpp, recorded one after the
/// other.
///
/// Besides softmax these are three operations on matrices of all pairs of a query and a key: products of queries with
/// keys, sums over the keys that a query sees, and sums over the queries that see a key. The gradients of each are the
/// other two, at any order.
///
/// Numeric contract: that of kernel/attention/math/math.hpp; scores, weights and their gradients are float; gradients
/// of queries, keys and values are rounded once to their type. Masked operands have no effect in any bit, in values,
/// first and second derivatives (only the sign of a zero may differ).
#pragma once

#include <halftone/autodiff/op/attention.hpp>
#include <halftone/autodiff/op/products.hpp>
#include <halftone/autodiff/op/softmax.hpp>
#include <halftone/kernel/attention/math/math.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

using kernel::attention_sum;

/// Consecutive matrices of all pairs of a query and a key, (together, keys) each: the query heads that share a key head
/// are rows of one matrix. Masked pairs are 0, or are not read.
struct attention_pairs {
    extent count, together, head_size;
    kernel::attention_visibility visible;
    device_sequences packed;  ///< owns the offsets that `visible` refers to

    shape<3> shape_of_pairs() const { return {count, together, visible.keys}; }
    template <class T>
    matrices<T> of_queries(T* data) const {
        return {data, {count, together, head_size}};
    }
    template <class T>
    matrices<T> of_keys(T* data) const {
        return {data, {count, visible.keys, head_size}};
    }
    template <class Device>
    void mask_scores(Device& device, float* pairs, float value) const {
        if (visible.has_masked())
            kernel::attention_rows<Device>::mask_scores(device, visible, value,
                                                 view<float, 2>(pairs, {count * together, visible.keys}));
    }
};

/// to = (or +=) queries keysᵀ, and `hidden` where the mask hides.
template <class Compute, class Device, class T>
void multiply_pairs(Device& device, const attention_pairs& p, const T* queries, const T* keys, float* to,
                    write_mode mode, float hidden = 0) {
    multiply_each<Compute>(device, p.of_queries(queries), !p.of_keys(keys), to, mode);
    p.mask_scores(device, to, hidden);
}

/// to = (or +=) pairs x, where x belongs to keys; or pairsᵀ x, where x belongs to queries.
template <class Compute, class Context, class T>
void sum_pairs(Context& context, const attention_pairs& p, attention_sum over, float* pairs, const T* x, T* to,
               write_mode mode) {
    using rows = kernel::attention_rows<typename Context::device_type>;
    auto& device = context.device();
    const bool by_keys = over == attention_sum::over_keys;
    const matrices<const float> stored{pairs, p.shape_of_pairs()};
    const auto left = by_keys ? stored : !stored;
    const auto right = by_keys ? p.of_keys(x) : p.of_queries(x);
    if (!p.visible.has_masked()) return multiply_each<Compute>(device, left, right, to, mode);
    const auto as_rows = [&](auto* data, extent each) {
        return view<std::remove_pointer_t<decltype(data)>, 2>(data, {p.count * each, p.head_size});
    };
    const auto copy = context.template make<T>(shape<1>{right.stored.size()}, false);
    const auto found = context.template make<std::int32_t>(shape<1>{right.count() * right.rows()}, false);
    const const_view<T, 2> all = as_rows(x, right.rows());
    const auto finite =
        rows::template finite<Compute>(device, all, as_rows(copy.view().data(), right.rows()), found.view().data());
    multiply_each<Compute>(device, left, matrices<const T>{finite.data(), right.stored}, to, mode);
    if (finite.data() != x)
        rows::template add_not_finite<Compute>(device, p.visible, over,
                                               view<float, 2>(pairs, {p.count * p.together, p.visible.keys}), all,
                                               found.view().data(), as_rows(to, left.rows()));
}

/// The record of the products of pairs of queries and keys. By: the operand type of the gradients' products.
template <class By, class T>
struct pair_products_record {
    using operation = op::matmul;
    attention_pairs pairs;
    variable<T, 1> queries, keys;  // each is kept if the other takes a gradient
    gradient_of<T, 1> dqueries, dkeys;
    gradient_of<float, 1> dy;

    template <class Tape>
    void propagate(Tape& tape) {
        float* const score_gradients = dy.view().data();
        // If the score gradients of a query are NaN, so are those of its masked keys: they become 0.
        pairs.mask_scores(tape.device(), score_gradients, 0);
        if (const auto to = tape.gradient_target(dqueries))
            sum_pairs<By>(tape, pairs, attention_sum::over_keys, score_gradients, as_const(keys.view()).data(), to.data,
                          to.mode);
        if (const auto to = tape.gradient_target(dkeys))
            sum_pairs<By>(tape, pairs, attention_sum::over_queries, score_gradients, as_const(queries.view()).data(), to.data,
                          to.mode);
    }
};

template <class By, class T>
struct pair_sum_record {
    using operation = op::matmul;
    attention_pairs pairs;
    attention_sum over;
    variable<float, 1> factors;  // each is kept if the other takes a gradient
    variable<T, 1> x;
    gradient_of<float, 1> dfactors;
    gradient_of<T, 1> dx, dy;

    attention_sum other() const {
        return over == attention_sum::over_keys ? attention_sum::over_queries : attention_sum::over_keys;
    }
    template <class Tape>
    void propagate(Tape& tape) {
        const T* const g = dy.view().data();
        if (const auto to = tape.gradient_target(dfactors)) {
            const T* const values = x.view().data();
            const bool of_queries = over == attention_sum::over_keys;  // the sums belong to queries
            multiply_pairs<By>(tape.device(), pairs, of_queries ? g : values, of_queries ? values : g, to.data,
                               to.mode);
        }
        if (const auto to = tape.gradient_target(dx))
            sum_pairs<By>(tape, pairs, other(), factors.view().data(), g, to.data, to.mode);
    }
};

/// The dot products of all queries and keys, (batch, heads, queries, keys), and `hidden` where the mask hides.
template <class Compute, class By, class Root, class T>
variable<float, 1> pair_products(Root& root, const attention_pairs& p, const variable<T, 1>& queries,
                                 const variable<T, 1>& keys, float hidden = 0) {
    const auto range = root.range(op::matmul::name);
    const bool of_queries = queries.wants_gradient(), of_keys = keys.wants_gradient();
    auto y = root.template make<float>(shape<1>{p.shape_of_pairs().size()}, of_queries || of_keys);
    multiply_pairs<Compute>(root.device(), p, as_const(queries.view()).data(), as_const(keys.view()).data(),
                            y.view().data(), write_mode::overwrite, hidden);
    if (of_queries || of_keys) {
        root.record(pair_products_record<By, T>{p, of_keys ? queries : variable<T, 1>{},
                                                of_queries ? keys : variable<T, 1>{}, gradient_of(queries),
                                                gradient_of(keys), gradient_of(y)});
    }
    return y;
}

/// For each query the sum over keys of factors x, where x belongs to keys; or for each key the sum over queries, where
/// x belongs to queries. Masked factors are 0.
template <class Compute, class By, class Root, class T>
variable<T, 1> pair_sum(Root& root, const attention_pairs& p, attention_sum over, const variable<float, 1>& factors,
                        const variable<T, 1>& x) {
    const auto range = root.range(op::matmul::name);
    const bool of_factors = factors.wants_gradient(), of_x = x.wants_gradient();
    const extent each = over == attention_sum::over_keys ? p.together : p.visible.keys;
    auto y = root.template make<T>(shape<1>{p.count * each * p.head_size}, of_factors || of_x);
    sum_pairs<Compute>(root, p, over, factors.view().data(), as_const(x.view()).data(), y.view().data(),
                       write_mode::overwrite);
    if (of_factors || of_x) {
        root.record(pair_sum_record<By, T>{p, over, of_x ? factors : variable<float, 1>{},
                                           of_factors ? x : variable<T, 1>{}, gradient_of(factors), gradient_of(x),
                                           gradient_of(y)});
    }
    return y;
}

template <class By, class T>
struct rule<pair_products_record<By, T>> {
    template <class Tape>
    static void run(Tape& tape, const pair_products_record<By, T>& r, const variable<float, 1>& score_gradients) {
        r.pairs.mask_scores(tape.device(), score_gradients.view().data(), 0);
        if (tape.takes(r.dqueries))
            tape.give(r.dqueries, pair_sum<By, By>(tape.inner(), r.pairs, attention_sum::over_keys, score_gradients, r.keys));
        if (tape.takes(r.dkeys))
            tape.give(r.dkeys,
                      pair_sum<By, By>(tape.inner(), r.pairs, attention_sum::over_queries, score_gradients, r.queries));
    }
};
template <class By, class T>
struct rule<pair_sum_record<By, T>> {
    template <class Tape>
    static void run(Tape& tape, const pair_sum_record<By, T>& r, const variable<T, 1>& g) {
        if (tape.takes(r.dfactors)) {
            tape.give(r.dfactors, r.over == attention_sum::over_keys
                                      ? pair_products<By, By>(tape.inner(), r.pairs, g, r.x)
                                      : pair_products<By, By>(tape.inner(), r.pairs, r.x, g));
        }
        if (tape.takes(r.dx)) tape.give(r.dx, pair_sum<By, By>(tape.inner(), r.pairs, r.other(), r.factors, g));
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
    static variable<T, 3> run(Root& root, const variable<T, 3>& qkv, const attention_heads& heads,
                              const attention_options& options, const packed_sequences& sequences) {
        const shape<3> s = qkv.shape(), result = attention_result(s, heads);
        const T* const in = qkv.view().data();
        const attention_extents e = check_attention_shapes(slice_of_qkv(in, s, heads, 0), slice_of_qkv(in, s, heads, 1),
                                                           slice_of_qkv(in, s, heads, 2), options, sequences);
        const head_layout layout{e.batch, e.queries, e.heads, e.head_size, e.groups};
        const auto parts = split_heads<3>(root, flat(qkv), layout);
        const auto o = attend<T>(root, parts[0], parts[1], parts[2], e, options, sequences);
        return reshaped(join_heads<1>(root, std::array{o}, layout), result);
    }

  private:
    /// The forward pass of kernel::attention_math. q, k, v: (batch, heads, time, size); the query heads that share a
    /// key head are rows of one matrix.
    template <class T, class Root>
    static variable<T, 1> attend(Root& root, const variable<T, 1>& q, const variable<T, 1>& k, const variable<T, 1>& v,
                                 const attention_extents& e, const attention_options& options,
                                 const packed_sequences& sequences) {
        using rows = kernel::attention_rows<typename Root::device_type>;
        if (options.strategy == attention_strategy::flash) {
            fail<argument_error>(
                "attention: flash was requested; a tape for second derivatives takes the math strategy");
        }
        const auto packed = device_sequences::to(root, sequences, e);
        if (sequences.are_there()) rows::check(root.device(), packed.sequences, e);
        const attention_pairs pairs{e.batch * e.groups,
                                    e.members() * e.queries,
                                    e.head_size,
                                    {e.queries, e.keys, options.mask, packed.sequences},
                                    packed};
        // Masked scores are minus infinity, whose softmax is exactly 0. They get no gradient, since their weights are
        // 0.
        const auto scores = pair_products<compute, by_input>(root, pairs, q, k, bit_cast<float>(0xff800000u));
        const auto weights = flat(softmax(root, reshaped(scores, shape<2>{pairs.count * pairs.together, e.keys}),
                                          attention_scale(options, e.head_size)));
        // For a query without visible keys, or with a NaN among its scores, softmax gives NaN for all keys. Softmax's
        // gradient reads the masked weights stored here.
        pairs.mask_scores(root.device(), weights.view().data(), 0);
        return pair_sum<compute, by_input>(root, pairs, attention_sum::over_keys, weights, v);
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
