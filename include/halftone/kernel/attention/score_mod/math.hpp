// SPDX-License-Identifier: MIT
/// \file
/// The math strategy of attention with functions of the scores: the products and softmax of math/math.hpp, with the
/// functions between them. It supports any head_size and any device.
///
/// Numeric contract: that of math/math.hpp. Scratch memory holds two matrices of one head's scores, in the backward
/// pass three.
#pragma once

#include <halftone/kernel/attention/math/math.hpp>
#include <halftone/kernel/attention/score_mod/score_mod.hpp>
#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/number/in_float.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The scores of one head, computed from its products of queries and keys.
template <class E>
struct modified_scores {
    using slope = typename std::remove_const_t<decltype(derivative<halftone::detail::mod_score>(std::declval<const E&>()))>;
    E score;
    slope by_score;
    simt::global_span<const float> products;  ///< (queries, keys)
    extent keys;
    float scale, batch, head;

    modified_scores(const attention_mod<E>& mod, const view<float, 2>& p, float s, extent b, extent h)
        : score(mod.score),
          by_score(derivative<halftone::detail::mod_score>(mod.score)),
          products{p.data(), p.size()},
          keys(p.extent_of(1)),
          scale(s),
          batch(static_cast<float>(b)),
          head(static_cast<float>(h)) {}

    /// The score of pair i, below -3e38 if it is hidden; or its derivative with respect to the product.
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD float at(Thread thread, extent i) const {
        return value(thread, i, score);
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD float slope_at(Thread thread, extent i) const {
        return value(thread, i, by_score);
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD bool hides(Thread thread, extent i) const {
        return at(thread, i) < halftone::detail::attention_masked_score;
    }

  private:
    HALFTONE_KERNEL template <class Thread, class Expression>
    HALFTONE_HD float value(Thread thread, extent i, const Expression& e) const {
        const float x[] = {thread.load(products, i) * scale, batch, head, static_cast<float>(i / keys),
                           static_cast<float>(i % keys)};
        return scalar::evaluate(e, x);
    }
};

/// to = the scores; minus infinity for hidden pairs.
template <class E>
struct write_modified_scores {
    modified_scores<E> scores;
    simt::global_span<float> to;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const float s = scores.at(thread, i);
        thread.store(to, i,
                     s < halftone::detail::attention_masked_score ? halftone::bit_cast<float>(0xff800000u) : s);
    }
};

/// x = 0 for hidden pairs; other gradients of scores are multiplied by the score's derivative.
template <class E>
struct clear_hidden_scores {
    modified_scores<E> scores;
    simt::global_span<float> x;
    bool of_gradients;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        if (scores.hides(thread, i)) {
            thread.store(x, i, 0.0f);
        } else if (of_gradients) {
            thread.store(x, i, thread.load(x, i) * scores.slope_at(thread, i));
        }
    }
};

/// to = x times the factor of dropout, 0 or 1 / (1 - p), for one head.
struct drop_pairs {
    halftone::detail::pair_dropout dropout;
    simt::global_span<const random_record> record;
    std::uint64_t first;
    simt::global_span<const float> x;
    simt::global_span<float> to;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const float factor = dropout.factor(thread.load(record, 0), first + static_cast<std::uint64_t>(i));
        thread.store(to, i, factor == 0 ? 0.0f : thread.load(x, i) * factor);
    }
};

/// For each query the largest score and minus the logarithm of the largest weight; (-3e38, 0) if it sees no key.
template <class E>
struct write_modified_logsumexp {
    modified_scores<E> scores;
    simt::global_span<const float> weights;
    simt::global_span<float> to;  ///< (queries, 2)

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent query) const {
        float largest = halftone::detail::attention_masked_score, weight = 0;
        bool sees = false;
        for (extent i = query * scores.keys; i < (query + 1) * scores.keys; ++i) {
            if (scores.hides(thread, i)) continue;
            const float s = scores.at(thread, i), w = thread.load(weights, i);
            sees = true;
            if (!(s <= largest)) largest = s;  // also for NaN
            if (!(w <= weight)) weight = w;
        }
        thread.store(to, 2 * query, largest);
        thread.store(to, 2 * query + 1, sees ? -std::log(weight) : 0.0f);
    }
};

/// to += factors times the elements of x that are not finite, for visible pairs; or the same with the transpose of the
/// factors.
template <class Compute, class E, class T>
struct add_seen_not_finite {
    modified_scores<E> scores;
    bool over_keys;
    simt::global_span<const float> factors;  ///< (queries, keys)
    simt::global_span<const T> x;            ///< (rows, width), of the summed side
    extent rows, width, stride, flag_rows;
    simt::global_span<const std::int32_t> found;
    simt::global_span<float> to;  ///< (rows of the other side, width)

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const extent row = i / width, d = i % width;
        for (extent other = 0; other < rows; ++other) {
            if (thread.load(found, other / flag_rows) == 0) continue;
            const auto value = static_cast<float>(Compute(detail::in_float(thread.load(x, other * stride + d))));
            const extent pair = over_keys ? row * scores.keys + other : other * scores.keys + row;
            if (is_finite(value) || scores.hides(thread, pair)) continue;
            const auto factor = static_cast<float>(Compute(thread.load(factors, pair)));
            thread.store(to, i, thread.load(to, i) + factor * value);
        }
    }
};

template <class Device>
struct modified_attention_math : attention_math<Device> {
    using base = attention_math<Device>;

    template <class Compute, class T, class E>
    static void forward(Device& device, const attention_forward<T>& a, const attention_mod<E>& mod) {
        const detail::attention_extents e = detail::check_attention_shapes(a);
        const room of_weights(device, e.queries, e.keys), of_products(device, e.queries, e.keys),
            of_sums(device, e.queries, e.head_size);
        const view<float, 2> weights = of_weights.matrix, products = of_products.matrix, sums = of_sums.matrix;
        for (extent batch = 0; batch < e.batch; ++batch) {
            for (extent head = 0; head < e.heads; ++head) {
                const extent group = head / e.members();
                const auto scores = to_weights<Compute>(device, a, mod, e, batch, head, products, weights);
                if (a.logsumexp.data() != nullptr) {
                    float* const to = a.logsumexp.data() + (batch * e.heads + head) * e.queries * 2;
                    fp64::for_each(device, e.queries, 2 * e.keys,
                                   write_modified_logsumexp<E>{scores, span_of(as_const(weights)), {to, 2 * e.queries}});
                }
                drop(device, mod, e, batch, head, weights, weights);
                device.fill(sums.data(), sums.size(), 0.0f);
                add_seen<Compute>(device, scores, attention_sum::over_keys, weights, base::head_of(a.v, batch, group), sums);
                convert<Device>::run(device, const_view<float, 2>(sums), base::head_of(a.o, batch, head));
            }
        }
    }

    /// The backward pass; it does not read o and logsumexp.
    template <class Compute, class T, class E>
    static void backward(Device& device, const attention_backward<T>& a, const attention_mod<E>& mod) {
        const detail::attention_extents e = detail::check_attention_shapes(a);
        const float scale = detail::attention_scale(a.options, e.head_size);
        const room of_weights(device, e.queries, e.keys), of_products(device, e.queries, e.keys),
            of_gradients(device, e.queries, e.keys), of_dq(device, e.queries, e.head_size),
            of_dk(device, e.keys, e.head_size), of_dv(device, e.keys, e.head_size);
        const view<float, 2> weights = of_weights.matrix, products = of_products.matrix, gradients = of_gradients.matrix,
                             dq = of_dq.matrix, dk = of_dk.matrix, dv = of_dv.matrix;
        for (extent batch = 0; batch < e.batch; ++batch) {
            for (extent group = 0; group < e.groups; ++group) {
                const auto k = base::head_of(a.k, batch, group), v = base::head_of(a.v, batch, group);
                device.fill(dk.data(), dk.size(), 0.0f);
                device.fill(dv.data(), dv.size(), 0.0f);
                for (extent head = group * e.members(); head < (group + 1) * e.members(); ++head) {
                    const auto q = base::head_of(a.q, batch, head), d_o = base::head_of(a.d_o, batch, head);
                    const auto scores = to_weights<Compute>(device, a, mod, e, batch, head, products, weights);
                    drop(device, mod, e, batch, head, weights, gradients);
                    add_seen<Compute>(device, scores, attention_sum::over_queries,
                                      mod.dropout.is_there() ? gradients : weights, d_o, dv);
                    base::template multiply<Compute>(device, d_o, transpose(v), gradients);
                    drop(device, mod, e, batch, head, gradients, gradients);
                    // Hidden pairs are cleared before softmax's backward pass sums over keys, and again after it, since a
                    // sum may be NaN.
                    clear(device, scores, gradients, false);
                    softmax<Device>::backward(device, softmax_backward<float, float>{
                                                          .y = weights, .dy = gradients, .dx = gradients});
                    clear(device, scores, gradients, true);
                    device.fill(dq.data(), dq.size(), 0.0f);
                    add_seen<Compute>(device, scores, attention_sum::over_keys, gradients, k, dq);
                    add_seen<Compute>(device, scores, attention_sum::over_queries, gradients, q, dk);
                    convert<Device>::run(device, const_view<float, 2>(dq), base::head_of(a.dq, batch, head), scale);
                }
                convert<Device>::run(device, const_view<float, 2>(dk), base::head_of(a.dk, batch, group), scale);
                convert<Device>::run(device, const_view<float, 2>(dv), base::head_of(a.dv, batch, group));
            }
        }
    }

  private:
    /// A matrix of floats in scratch memory.
    struct room {
        workspace::lease memory;
        view<float, 2> matrix;

        room(Device& device, extent rows, extent columns)
            : memory(device.scratch(), base::floats(rows * columns)),
              matrix(memory.template as<float>(), {rows, columns}) {}
    };
    template <class X>
    static simt::global_span<X> span_of(const view<X, 2>& v) {
        return {v.data(), v.size()};
    }
    static const_view<float, 2> as_const(const view<float, 2>& v) { return v; }

    template <class E>
    static void drop(Device& device, const attention_mod<E>& mod, const detail::attention_extents& e, extent batch,
                     extent head, const view<float, 2>& x, const view<float, 2>& to) {
        if (!mod.dropout.is_there()) return;
        fp64::for_each(device, x.size(), 8,
                       drop_pairs{mod.dropout, {mod.dropout.draw.record, 1},
                                  detail::pair_number(batch * e.heads + head, e.queries, 0, e.keys, 0),
                                  span_of(as_const(x)), span_of(to)});
    }

    template <class E>
    static void clear(Device& device, const modified_scores<E>& scores, const view<float, 2>& x, bool of_gradients) {
        fp64::for_each(device, x.size(), 4, clear_hidden_scores<E>{scores, span_of(x), of_gradients});
    }

    /// weights = softmax of the scores. Weights of hidden pairs are 0, even if a score is NaN or the query sees no key.
    template <class Compute, class Arguments, class E>
    static modified_scores<E> to_weights(Device& device, const Arguments& a, const attention_mod<E>& mod,
                                         const detail::attention_extents& e, extent batch, extent head,
                                         const view<float, 2>& products, const view<float, 2>& weights) {
        base::template multiply<Compute>(device, base::head_of(a.q, batch, head),
                                         transpose(base::head_of(a.k, batch, head / e.members())), products);
        const modified_scores<E> scores(mod, products, detail::attention_scale(a.options, e.head_size), batch, head);
        fp64::for_each(device, weights.size(), 4, write_modified_scores<E>{scores, span_of(weights)});
        softmax<Device>::forward(device, softmax_forward<float, float>{.x = weights, .y = weights});
        clear(device, scores, weights, false);
        return scores;
    }

    /// to += factors times x, or the transpose of the factors times x.
    template <class Compute, class T, class E>
    static void add_seen(Device& device, const modified_scores<E>& scores, attention_sum over,
                         const view<float, 2>& factors, const const_view<T, 2>& x, const view<float, 2>& to) {
        using rows = attention_rows<Device>;
        const bool over_keys = over == attention_sum::over_keys;
        const workspace::lease of_copy(device.scratch(), static_cast<std::size_t>(x.size()) * sizeof(T)),
            of_found(device.scratch(), static_cast<std::size_t>(x.extent_of(0)) * sizeof(std::int32_t));
        auto* const found = of_found.as<std::int32_t>();
        const const_view<T, 2> finite =
            rows::template finite<Compute>(device, x, view<T, 2>(of_copy.as<T>(), x.shape()), found);
        base::template add_product<Compute>(device, over_keys ? factors : transpose(factors), finite, to);
        if (finite.data() == x.data()) return;
        fp64::for_each(device, to.size(), x.extent_of(0),
                       add_seen_not_finite<Compute, E, T>{scores, over_keys, span_of(as_const(factors)),
                                                          simt::bounding_span_of(x), x.extent_of(0), x.extent_of(1),
                                                          x.stride_of(0), rows::flag_rows, {found, x.extent_of(0)},
                                                          span_of(to)});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
