// SPDX-License-Identifier: MIT
/// \file
/// Attention in double with functions of the scores: the threads and sums of attention/fp64.hpp, with the expression
/// evaluated in double for each score.
#pragma once

#include <halftone/kernel/attention/fp64.hpp>
#include <halftone/kernel/attention/score_mod/score_mod.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

/// The scores of one query, and the maximum and sum that softmax needs.
template <class E>
struct modified_query_scores {
    using slope = typename std::remove_const_t<decltype(derivative<halftone::detail::mod_score>(std::declval<const E&>()))>;
    query_scores plain;
    E score;
    slope by_score;
    halftone::detail::pair_dropout dropout;
    global_span<const random_record> record;

    /// The factor that dropout gives a weight.
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double kept(Thread thread, extent batch, extent head, extent query, extent key) const {
        const auto& e = plain.problem.e;
        if (!dropout.is_there()) return 1;
        return static_cast<double>(
            dropout.factor(thread.load(record, 0), halftone::detail::pair_number(batch * e.heads + head, e.queries, query,
                                                                                 e.keys, key)));
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void arguments(Thread thread, extent batch, extent head, extent query, extent key, double* x) const {
        x[0] = plain.score(thread, batch, head, query, key);
        x[1] = static_cast<double>(batch), x[2] = static_cast<double>(head);
        x[3] = static_cast<double>(query), x[4] = static_cast<double>(key);
    }
    HALFTONE_HD static bool is_hidden(double s) { return s < static_cast<double>(halftone::detail::attention_masked_score); }

    /// The largest score and the sum of exp(score - largest); 0 if the query sees no key.
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void sum_up(Thread thread, extent batch, extent head, extent query, double& largest, double& sum) const {
        double x[5];
        largest = -HUGE_VAL, sum = 0;
        for (extent key = 0; key < plain.problem.e.keys; ++key) {
            arguments(thread, batch, head, query, key, x);
            const double s = scalar::evaluate(score, x);
            if (!is_hidden(s) && largest < s) largest = s;
        }
        for (extent key = 0; key < plain.problem.e.keys; ++key) {
            arguments(thread, batch, head, query, key, x);
            const double s = scalar::evaluate(score, x);
            if (!is_hidden(s)) sum += std::exp(s - largest);
        }
    }
};

template <class E>
struct modified_attention_query {
    modified_query_scores<E> scores;
    head_vectors<const double> v;
    head_vectors<double> o;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const auto& e = scores.plain.problem.e;
        const extent query = i % e.queries, head = i / e.queries % e.heads, batch = i / e.queries / e.heads;
        const global_span<double> out = o.at(batch, query, head);
        double largest = 0, sum = 0, x[5];
        scores.sum_up(thread, batch, head, query, largest, sum);
        clear(thread, out, e.head_size);
        for (extent key = 0; key < e.keys; ++key) {
            scores.arguments(thread, batch, head, query, key, x);
            const double s = scalar::evaluate(scores.score, x);
            if (scores.is_hidden(s)) continue;
            add_scaled(thread, out, std::exp(s - largest) / sum * scores.kept(thread, batch, head, query, key),
                       v.at(batch, key, head / scores.plain.problem.members), e.head_size);
        }
    }
};

/// dq of a query, and the terms of the query that the threads of keys read.
template <class E>
struct modified_backward_query {
    modified_query_scores<E> scores;
    head_vectors<const double> v, o, d_o;
    head_vectors<double> dq;
    global_span<double> terms;  // (batch, heads, queries, 3)

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const auto& e = scores.plain.problem.e;
        const extent query = i % e.queries, head = i / e.queries % e.heads, batch = i / e.queries / e.heads;
        const extent group = head / scores.plain.problem.members;
        const global_span<double> out = dq.at(batch, query, head);
        const global_span<const double> g = d_o.at(batch, query, head);
        double largest = 0, sum = 0, x[5];
        scores.sum_up(thread, batch, head, query, largest, sum);
        const double mean = dot(thread, g, o.at(batch, query, head), e.head_size);
        clear(thread, out, e.head_size);
        for (extent key = 0; key < e.keys; ++key) {
            scores.arguments(thread, batch, head, query, key, x);
            const double s = scalar::evaluate(scores.score, x);
            if (scores.is_hidden(s)) continue;
            const double dp = dot(thread, g, v.at(batch, key, group), e.head_size) *
                              scores.kept(thread, batch, head, query, key);
            const double ds = std::exp(s - largest) / sum * (dp - mean) * scalar::evaluate(scores.by_score, x);
            add_scaled(thread, out, scores.plain.problem.scale * ds, scores.plain.k.at(batch, key, group), e.head_size);
        }
        thread.store(terms, 3 * i, largest);
        thread.store(terms, 3 * i + 1, sum > 0 ? 1 / sum : 0.0);
        thread.store(terms, 3 * i + 2, mean);
    }
};

template <class E>
struct modified_backward_key {
    modified_query_scores<E> scores;
    head_vectors<const double> v, d_o;
    head_vectors<double> dk, dv;
    global_span<const double> terms;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const auto& e = scores.plain.problem.e;
        const extent members = scores.plain.problem.members;
        const extent key = i % e.keys, group = i / e.keys % e.groups, batch = i / e.keys / e.groups;
        const global_span<double> to_k = dk.at(batch, key, group), to_v = dv.at(batch, key, group);
        clear(thread, to_k, e.head_size);
        clear(thread, to_v, e.head_size);
        for (extent head = group * members; head < (group + 1) * members; ++head) {
            for (extent query = 0; query < e.queries; ++query) {
                double x[5];
                scores.arguments(thread, batch, head, query, key, x);
                const double s = scalar::evaluate(scores.score, x);
                if (scores.is_hidden(s)) continue;
                const extent at = 3 * ((batch * e.heads + head) * e.queries + query);
                const double weight = std::exp(s - thread.load(terms, at)) * thread.load(terms, at + 1);
                const global_span<const double> g = d_o.at(batch, query, head);
                const double kept = scores.kept(thread, batch, head, query, key);
                const double ds = weight *
                                  (dot(thread, g, v.at(batch, key, group), e.head_size) * kept - thread.load(terms, at + 2)) *
                                  scalar::evaluate(scores.by_score, x);
                add_scaled(thread, to_k, scores.plain.problem.scale * ds, scores.plain.q.at(batch, query, head), e.head_size);
                add_scaled(thread, to_v, weight * kept, g, e.head_size);
            }
        }
    }
};

/// The scores of the arguments, after the functions.
template <class Arguments, class E>
modified_query_scores<E> modified_scores_of(const Arguments& a, const attention_mod<E>& mod) {
    return {scores_of(a), mod.score, derivative<halftone::detail::mod_score>(mod.score), mod.dropout,
            {mod.dropout.draw.record, 1}};
}

template <class Device, class E>
void attend(Device& device, const attention_forward<double>& a, const attention_mod<E>& mod) {
    const auto scores = modified_scores_of(a, mod);
    const auto& e = scores.plain.problem.e;
    for_each(device, e.batch * e.heads * e.queries, e.keys * e.head_size,
             modified_attention_query<E>{scores, head_vectors<const double>(a.v), head_vectors<double>(a.o)});
}

template <class Device, class E>
void attend(Device& device, const attention_backward<double>& a, const attention_mod<E>& mod) {
    const auto scores = modified_scores_of(a, mod);
    const auto& e = scores.plain.problem.e;
    const head_vectors<const double> v(a.v), d_o(a.d_o);
    const extent queries = e.batch * e.heads * e.queries;
    const workspace::lease lease(device.scratch(), static_cast<std::size_t>(3 * queries) * sizeof(double));
    const global_span<double> terms{lease.as<double>(), 3 * queries};
    for_each(device, queries, e.keys * e.head_size,
             modified_backward_query<E>{scores, v, head_vectors<const double>(a.o), d_o, head_vectors<double>(a.dq), terms});
    for_each(device, e.batch * e.groups * e.keys, e.members() * e.queries * e.head_size,
             modified_backward_key<E>{
                 scores, v, d_o, head_vectors<double>(a.dk), head_vectors<double>(a.dv), {terms.data, terms.count}});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
