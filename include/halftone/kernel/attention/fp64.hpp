// SPDX-License-Identifier: MIT
/// \file
/// Attention in double, one thread a query (in the backward pass also one a key): attention.hpp has the rules,
/// common/fp64/each.hpp the contract. Scores are recomputed wherever they are needed and never stored; there is one
/// strategy, and no packed sequences.
#pragma once

#include <cmath>

#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/common/fp64/each.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

/// The vectors of a (batch, time, heads, head_size) tensor.
template <class T>
struct head_vectors {
    global_span<T> values;
    extent batch_stride, time_stride, head_stride;

    explicit head_vectors(const view<T, 4>& v)
        : values(simt::bounding_span_of(v)),
          batch_stride(v.stride_of(0)),
          time_stride(v.stride_of(1)),
          head_stride(v.stride_of(2)) {}
    HALFTONE_HD global_span<T> at(extent batch, extent time, extent head) const {
        return values.from(batch * batch_stride + time * time_stride + head * head_stride);
    }
};

HALFTONE_KERNEL template <class Thread>
HALFTONE_HD double dot(Thread thread, const global_span<const double>& a, const global_span<const double>& b,
                       extent count) {
    double sum = 0;
    for (extent d = 0; d < count; ++d) sum += thread.load(a, d) * thread.load(b, d);
    return sum;
}
/// to += factor from.
HALFTONE_KERNEL template <class Thread>
HALFTONE_HD void add_scaled(Thread thread, const global_span<double>& to, double factor,
                            const global_span<const double>& from, extent count) {
    for (extent d = 0; d < count; ++d) thread.store(to, d, thread.load(to, d) + factor * thread.load(from, d));
}
HALFTONE_KERNEL template <class Thread>
HALFTONE_HD void clear(Thread thread, const global_span<double>& to, extent count) {
    for (extent d = 0; d < count; ++d) thread.store(to, d, 0.0);
}

struct attention_problem {
    halftone::detail::attention_extents e;
    extent members;  // query heads that share a key head
    double scale;
    bool causal;

    /// The number of keys that a query sees, and the first query that sees a key.
    HALFTONE_HD extent keys_of(extent query) const { return causal ? query + 1 + e.keys - e.queries : e.keys; }
    HALFTONE_HD extent first_query_of(extent key) const {
        const extent first = key - (e.keys - e.queries);
        return causal && first > 0 ? first : 0;
    }
};

/// The largest of a query's scores, and the sum of exp(score - largest).
struct query_scores {
    head_vectors<const double> q, k;
    attention_problem problem;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double score(Thread thread, extent batch, extent head, extent query, extent key) const {
        return problem.scale *
               dot(thread, q.at(batch, query, head), k.at(batch, key, head / problem.members), problem.e.head_size);
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void sum_up(Thread thread, extent batch, extent head, extent query, double& largest,
                            double& sum) const {
        largest = -HUGE_VAL, sum = 0;
        for (extent key = 0; key < problem.keys_of(query); ++key) {
            const double s = score(thread, batch, head, query, key);
            if (largest < s) largest = s;
        }
        for (extent key = 0; key < problem.keys_of(query); ++key)
            sum += std::exp(score(thread, batch, head, query, key) - largest);
    }
};

struct attention_query {
    query_scores scores;
    head_vectors<const double> v;
    head_vectors<double> o;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const auto& e = scores.problem.e;
        const extent query = i % e.queries, head = i / e.queries % e.heads, batch = i / e.queries / e.heads;
        const global_span<double> out = o.at(batch, query, head);
        double largest = 0, sum = 0;
        scores.sum_up(thread, batch, head, query, largest, sum);
        clear(thread, out, e.head_size);
        for (extent key = 0; key < scores.problem.keys_of(query); ++key) {
            const double weight = std::exp(scores.score(thread, batch, head, query, key) - largest) / sum;
            add_scaled(thread, out, weight, v.at(batch, key, head / scores.problem.members), e.head_size);
        }
    }
};

/// Computes dq of a query, and terms for the keys' threads: the largest score, the inverse sum of exponentials, and d_o
/// o.
struct attention_backward_query {
    query_scores scores;
    head_vectors<const double> v, o, d_o;
    head_vectors<double> dq;
    global_span<double> terms;  // (batch, heads, queries, 3)

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const auto& e = scores.problem.e;
        const extent query = i % e.queries, head = i / e.queries % e.heads, batch = i / e.queries / e.heads;
        const extent group = head / scores.problem.members;
        const global_span<double> out = dq.at(batch, query, head);
        const global_span<const double> score_gradient_value = d_o.at(batch, query, head);
        double largest = 0, sum = 0;
        scores.sum_up(thread, batch, head, query, largest, sum);
        const double mean = dot(thread, score_gradient_value, o.at(batch, query, head), e.head_size);
        clear(thread, out, e.head_size);
        for (extent key = 0; key < scores.problem.keys_of(query); ++key) {
            const double weight = std::exp(scores.score(thread, batch, head, query, key) - largest) / sum;
            const double dscore = weight * (dot(thread, score_gradient_value, v.at(batch, key, group), e.head_size) - mean);
            add_scaled(thread, out, scores.problem.scale * dscore, scores.k.at(batch, key, group), e.head_size);
        }
        thread.store(terms, 3 * i, largest);
        thread.store(terms, 3 * i + 1, 1 / sum);
        thread.store(terms, 3 * i + 2, mean);
    }
};

struct attention_backward_key {
    query_scores scores;
    head_vectors<const double> v, d_o;
    head_vectors<double> dk, dv;
    global_span<const double> terms;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const auto& e = scores.problem.e;
        const extent key = i % e.keys, group = i / e.keys % e.groups, batch = i / e.keys / e.groups;
        const global_span<double> to_k = dk.at(batch, key, group), to_v = dv.at(batch, key, group);
        clear(thread, to_k, e.head_size);
        clear(thread, to_v, e.head_size);
        for (extent head = group * scores.problem.members; head < (group + 1) * scores.problem.members; ++head) {
            for (extent query = scores.problem.first_query_of(key); query < e.queries; ++query) {
                const extent at = 3 * ((batch * e.heads + head) * e.queries + query);
                const double above = scores.score(thread, batch, head, query, key) - thread.load(terms, at);
                const double weight = std::exp(above) * thread.load(terms, at + 1);
                const global_span<const double> score_gradient_value = d_o.at(batch, query, head);
                const double dscore =
                    weight * (dot(thread, score_gradient_value, v.at(batch, key, group), e.head_size) -
                              thread.load(terms, at + 2));
                add_scaled(thread, to_k, scores.problem.scale * dscore, scores.q.at(batch, query, head), e.head_size);
                add_scaled(thread, to_v, weight, score_gradient_value, e.head_size);
            }
        }
    }
};

template <class Arguments>
query_scores scores_of(const Arguments& a) {
    if (a.sequences.are_there())
        fail<argument_error>("attention: packed sequences of doubles; in double, a batch has sequences of one length");
    if (a.options.strategy == attention_strategy::flash)
        fail<argument_error>("attention: flash was requested; in double there is one strategy, `automatic`");
    const auto e = halftone::detail::check_attention_shapes(a);
    const double scale =
        a.options.scale == 0 ? 1 / std::sqrt(static_cast<double>(e.head_size)) : static_cast<double>(a.options.scale);
    return {head_vectors<const double>(a.q),
            head_vectors<const double>(a.k),
            {e, e.members(), scale, a.options.mask == attention_mask::causal}};
}

template <class Device>
void attend(Device& device, const attention_forward<double>& a) {
    const query_scores scores = scores_of(a);
    const auto& e = scores.problem.e;
    for_each(device, e.batch * e.heads * e.queries, e.keys * e.head_size,
             attention_query{scores, head_vectors<const double>(a.v), head_vectors<double>(a.o)});
}

template <class Device>
void attend(Device& device, const attention_backward<double>& a) {
    const query_scores scores = scores_of(a);
    const auto& e = scores.problem.e;
    const head_vectors<const double> v(a.v), d_o(a.d_o);
    const extent queries = e.batch * e.heads * e.queries;
    const workspace::lease lease(device.scratch(), static_cast<std::size_t>(3 * queries) * sizeof(double));
    const global_span<double> terms{lease.as<double>(), 3 * queries};
    for_each(
        device, queries, e.keys * e.head_size,
        attention_backward_query{scores, v, head_vectors<const double>(a.o), d_o, head_vectors<double>(a.dq), terms});
    for_each(device, e.batch * e.groups * e.keys, e.members() * e.queries * e.head_size,
             attention_backward_key{
                 scores, v, d_o, head_vectors<double>(a.dk), head_vectors<double>(a.dv), {terms.data, terms.count}});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
