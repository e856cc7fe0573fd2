// SPDX-License-Identifier: MIT
/// \file
/// The definition of attention and of its gradients, in double. For each batch and head, with query i, key j:
///
///     s[i][j] = scale sum over d of q[i][d] k[j][d]        for the keys that i sees
///     p[i][j] = exp(s[i][j] - logsumexp[i]),               logsumexp[i] = log(sum over j of exp(s[i][j]))
///     o[i][d] = sum over j of p[i][j] v[j][d]
///
///     reference::attention(q, k, v, o, logsumexp, options);
///
/// With packed sequences, the same for each sequence's queries and keys alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <halftone/kernel/attention/attention.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The factor of the scores.
inline double attention_scale(const attention_options& options, extent head_size) {
    return options.scale == 0 ? 1 / std::sqrt(static_cast<double>(head_size)) : static_cast<double>(options.scale);
}

/// How many keys query i sees, from the first on.
inline extent visible_keys(const attention_options& options, extent i, extent queries, extent keys) {
    return options.mask == attention_mask::causal ? std::max<extent>(0, i + 1 + keys - queries) : keys;
}

/// The product of two heads' vectors at one time each.
template <class X, class Y>
double dot(const view<X, 4>& x, const view<Y, 4>& y, extent batch, extent i, extent x_head, extent j, extent y_head) {
    double sum = 0;
    for (extent d = 0; d < x.extent_of(3); ++d) {
        sum += static_cast<double>(x(batch, i, x_head, d)) * static_cast<double>(y(batch, j, y_head, d));
    }
    return sum;
}

/// The weights p[i] of one query; returns their logsumexp.
template <class T>
double attention_weights(const view<T, 4>& q, const view<T, 4>& k, extent batch, extent i, extent head,
                         const attention_options& options, std::vector<double>& p) {
    const extent keys = k.extent_of(1), group = head / (q.extent_of(2) / k.extent_of(2));
    const double scale = attention_scale(options, q.extent_of(3));
    p.resize(static_cast<std::size_t>(visible_keys(options, i, q.extent_of(1), keys)));
    if (p.empty()) return static_cast<double>(detail::attention_masked_score);
    double largest = -HUGE_VAL, sum = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
        p[j] = scale * dot(q, k, batch, i, head, static_cast<extent>(j), group);
        largest = std::fmax(largest, p[j]);
    }
    for (const double s : p) sum += std::exp(s - largest);
    const double logsumexp = largest + std::log(sum);
    for (double& s : p) s = std::exp(s - logsumexp);
    return logsumexp;
}

/// The place of one packed sequence.
struct sequence_times {
    extent first_query, queries, first_key, keys;

    sequence_times(const packed_sequences& sequences, extent s)
        : first_query(sequences.query_offsets(s)),
          queries(sequences.query_offsets(s + 1) - first_query),
          first_key(sequences.key_offsets(s)),
          keys(sequences.key_offsets(s + 1) - first_key) {}

    /// This sequence's part of q, o or their gradients.
    template <class T>
    view<T, 4> of_queries(const view<T, 4>& x) const {
        return detail::times_of(x, first_query, queries);
    }
    /// This sequence's part of k, v or their gradients.
    template <class T>
    view<T, 4> of_keys(const view<T, 4>& x) const {
        return detail::times_of(x, first_key, keys);
    }
    /// This sequence's part of the logsumexp.
    template <class L>
    view<L, 3> of_queries(const view<L, 3>& logsumexp) const {
        return {logsumexp.data() + first_query * logsumexp.stride_of(2),
                {1, logsumexp.extent_of(1), queries},
                logsumexp.strides()};
    }
};

/// o = softmax(scale q k^T + mask) v, head by head, and the logarithm of the sum of the exponentials of every query's
/// scores.
template <class T, class O, class L>
void attention(const view<T, 4>& q,          // (batch, queries, heads, head_size)
               const view<T, 4>& k,          // (batch, keys, groups, head_size)
               const view<T, 4>& v,          // (batch, keys, groups, head_size)
               const view<O, 4>& o,          // (batch, queries, heads, head_size)
               const view<L, 3>& logsumexp,  // (batch, heads, queries)
               const attention_options& options, const packed_sequences& sequences = {}) {
    if (sequences.are_there()) {
        for (extent s = 0; s < sequences.count(); ++s) {
            const sequence_times at(sequences, s);
            attention(at.of_queries(q), at.of_keys(k), at.of_keys(v), at.of_queries(o), at.of_queries(logsumexp),
                      options);
        }
        return;
    }
    std::vector<double> p;
    for (extent batch = 0; batch < q.extent_of(0); ++batch) {
        for (extent head = 0; head < q.extent_of(2); ++head) {
            const extent group = head / (q.extent_of(2) / k.extent_of(2));
            for (extent i = 0; i < q.extent_of(1); ++i) {
                logsumexp(batch, head, i) = static_cast<L>(attention_weights(q, k, batch, i, head, options, p));
                for (extent d = 0; d < q.extent_of(3); ++d) {
                    double sum = 0;
                    for (std::size_t j = 0; j < p.size(); ++j) {
                        sum += p[j] * static_cast<double>(v(batch, static_cast<extent>(j), group, d));
                    }
                    o(batch, i, head, d) = static_cast<O>(sum);
                }
            }
        }
    }
}

/// The gradients, given that of o. With dp[i][j] = sum over d of d_o[i][d] v[j][d] and the softmax's slope
/// ds[i][j] = p[i][j] (dp[i][j] - sum over l of p[i][l] dp[i][l]):
///
///     dv[j] = sum over i of p[i][j] d_o[i]
///     dq[i] = scale sum over j of ds[i][j] k[j]
///     dk[j] = scale sum over i of ds[i][j] q[i]
template <class T>
void attention_gradients(const view<T, 4>& q,  // shapes as above
                         const view<T, 4>& k, const view<T, 4>& v,
                         const view<T, 4>& d_o,      // (batch, queries, heads, head_size)
                         const view<double, 4>& dq,  // as q; overwritten, as dk and dv are
                         const view<double, 4>& dk,  // as k
                         const view<double, 4>& dv,  // as v
                         const attention_options& options, const packed_sequences& sequences = {}) {
    if (sequences.are_there()) {
        for (extent s = 0; s < sequences.count(); ++s) {
            const sequence_times at(sequences, s);
            attention_gradients(at.of_queries(q), at.of_keys(k), at.of_keys(v), at.of_queries(d_o), at.of_queries(dq),
                                at.of_keys(dk), at.of_keys(dv), options);
        }
        return;
    }
    const extent queries = q.extent_of(1), keys = k.extent_of(1), width = q.extent_of(3);
    const double scale = attention_scale(options, width);
    std::vector<double> p, dp;
    for (extent batch = 0; batch < q.extent_of(0); ++batch) {
        for (extent group = 0; group < k.extent_of(2); ++group) {
            for (extent j = 0; j < keys; ++j) {
                for (extent d = 0; d < width; ++d) dk(batch, j, group, d) = dv(batch, j, group, d) = 0;
            }
        }
        for (extent head = 0; head < q.extent_of(2); ++head) {
            const extent group = head / (q.extent_of(2) / k.extent_of(2));
            for (extent i = 0; i < queries; ++i) {
                attention_weights(q, k, batch, i, head, options, p);
                dp.resize(p.size());
                double mean = 0;
                for (std::size_t j = 0; j < p.size(); ++j) {
                    dp[j] = dot(d_o, v, batch, i, head, static_cast<extent>(j), group);
                    mean += p[j] * dp[j];
                }
                for (extent d = 0; d < width; ++d) dq(batch, i, head, d) = 0;
                for (std::size_t at = 0; at < p.size(); ++at) {
                    const auto j = static_cast<extent>(at);
                    const double ds = scale * p[at] * (dp[at] - mean);
                    for (extent d = 0; d < width; ++d) {
                        dv(batch, j, group, d) += p[at] * static_cast<double>(d_o(batch, i, head, d));
                        dq(batch, i, head, d) += ds * static_cast<double>(k(batch, j, group, d));
                        dk(batch, j, group, d) += ds * static_cast<double>(q(batch, i, head, d));
                    }
                }
            }
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
