// SPDX-License-Identifier: MIT
/// \file
/// The definition of attention with functions of the scores, in double. With m the expression of score_mod.hpp and m' its
/// derivative with respect to the score, for each batch b and head h:
///
///     s[i][j] = m(scale sum over d of q[i][d] k[j][d], b, h, i, j)         hidden: below -3e38
///     ds[i][j] = p[i][j] (dp[i][j] - sum over l of p[i][l] dp[i][l]) m'
///
/// and the rest as in attention/reference.hpp, with sums over visible keys. For a query that sees no key, o and
/// gradients are 0. With dropout, o and dv sum f[i][j] p[i][j] instead of p[i][j], and dp[i][j] is multiplied by
/// f[i][j], where f is 0 for dropped weights and 1 / (1 - p) for others.
///
///     reference::attention(q, k, v, o, logsumexp, options, mod);
#pragma once

#include <halftone/kernel/attention/reference.hpp>
#include <halftone/kernel/attention/score_mod/score_mod.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The scores of one query and the keys that it sees.
struct seen_scores {
    std::vector<extent> keys;
    std::vector<double> plain, weights, slopes, factors;
    double logsumexp;

    template <class T, class E>
    seen_scores(const view<T, 4>& q, const view<T, 4>& k, extent batch, extent i, extent head, const attention_options& o,
                const kernel::attention_mod<E>& mod)
        : logsumexp(static_cast<double>(detail::attention_masked_score)) {
        const extent group = head / (q.extent_of(2) / k.extent_of(2));
        const double scale = attention_scale(o, q.extent_of(3));
        const auto slope = derivative<detail::mod_score>(mod.score);
        double largest = -HUGE_VAL, sum = 0;
        for (extent j = 0; j < k.extent_of(1); ++j) {
            const double x[] = {scale * dot(q, k, batch, i, head, j, group), static_cast<double>(batch),
                                static_cast<double>(head), static_cast<double>(i), static_cast<double>(j)};
            const double score = scalar::evaluate(mod.score, x);
            if (score < static_cast<double>(detail::attention_masked_score)) continue;
            keys.push_back(j), plain.push_back(x[0]), weights.push_back(score);
            slopes.push_back(scalar::evaluate(slope, x));
            const extent pair_head = batch * q.extent_of(2) + head;
            factors.push_back(!mod.dropout.is_there()
                                  ? 1.0
                                  : static_cast<double>(mod.dropout.factor(
                                        *mod.dropout.draw.record,
                                        detail::pair_number(pair_head, q.extent_of(1), i, k.extent_of(1), j))));
            largest = std::fmax(largest, score);
        }
        if (keys.empty()) return;
        for (const double s : weights) sum += std::exp(s - largest);
        logsumexp = largest + std::log(sum);
        for (double& s : weights) s = std::exp(s - logsumexp);
    }
};

/// o, and the logsumexp of every query's scores, -3e38 for a query that sees no key.
template <class T, class O, class L, class E>
void attention(const view<T, 4>& q,          // (batch, queries, heads, head_size)
               const view<T, 4>& k,          // (batch, keys, groups, head_size)
               const view<T, 4>& v,          // (batch, keys, groups, head_size)
               const view<O, 4>& o,          // (batch, queries, heads, head_size)
               const view<L, 3>& logsumexp,  // (batch, heads, queries)
               const attention_options& options, const kernel::attention_mod<E>& mod) {
    for (extent batch = 0; batch < q.extent_of(0); ++batch) {
        for (extent head = 0; head < q.extent_of(2); ++head) {
            const extent group = head / (q.extent_of(2) / k.extent_of(2));
            for (extent i = 0; i < q.extent_of(1); ++i) {
                const seen_scores s(q, k, batch, i, head, options, mod);
                logsumexp(batch, head, i) = static_cast<L>(s.logsumexp);
                for (extent d = 0; d < q.extent_of(3); ++d) {
                    double sum = 0;
                    for (std::size_t j = 0; j < s.keys.size(); ++j)
                        sum += s.factors[j] * s.weights[j] * static_cast<double>(v(batch, s.keys[j], group, d));
                    o(batch, i, head, d) = static_cast<O>(sum);
                }
            }
        }
    }
}

/// The gradients of q, k and v, given that of o.
template <class T, class E>
void attention_gradients(const view<T, 4>& q,  // shapes as above
                         const view<T, 4>& k, const view<T, 4>& v,
                         const view<T, 4>& d_o,      // (batch, queries, heads, head_size)
                         const view<double, 4>& dq,  // as q; overwritten, as dk and dv are
                         const view<double, 4>& dk,  // as k
                         const view<double, 4>& dv,  // as v
                         const attention_options& options, const kernel::attention_mod<E>& mod) {
    const extent width = q.extent_of(3);
    const double scale = attention_scale(options, width);
    for (const view<double, 4>& x : {dq, dk, dv}) {
        for (extent b = 0; b < x.extent_of(0); ++b) {
            for (extent t = 0; t < x.extent_of(1); ++t) {
                for (extent h = 0; h < x.extent_of(2); ++h) std::fill_n(&x(b, t, h, 0), width, 0.0);
            }
        }
    }
    for (extent batch = 0; batch < q.extent_of(0); ++batch) {
        for (extent head = 0; head < q.extent_of(2); ++head) {
            const extent group = head / (q.extent_of(2) / k.extent_of(2));
            for (extent i = 0; i < q.extent_of(1); ++i) {
                const seen_scores s(q, k, batch, i, head, options, mod);
                std::vector<double> dp;
                double mean = 0;
                for (std::size_t at = 0; at < s.keys.size(); ++at) {
                    dp.push_back(s.factors[at] * dot(d_o, v, batch, i, head, s.keys[at], group));
                    mean += s.weights[at] * dp[at];
                }
                for (std::size_t at = 0; at < s.keys.size(); ++at) {
                    const extent j = s.keys[at];
                    const double ds = scale * s.weights[at] * (dp[at] - mean) * s.slopes[at];
                    for (extent d = 0; d < width; ++d) {
                        dv(batch, j, group, d) += s.factors[at] * s.weights[at] * static_cast<double>(d_o(batch, i, head, d));
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
