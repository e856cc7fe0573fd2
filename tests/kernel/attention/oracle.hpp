// SPDX-License-Identifier: MIT
/// \file
/// The reference of attention's tests: the definition in double, bounds of the errors that float and 16-bit roundings may cause
/// in a kernel, and the errors of the straightforward 16-bit implementation.
///
/// The bounds follow the kernel's contract step by step, worst case in every step. A score is a sum of head_size
/// products, so its error is e <= gamma(2 head_size) times its magnitudes (two roundings per term without fused multiply-add;
/// matrix units that truncate sums lose less than two roundings per term, see kernel/matmul/matmul.hpp). A weight is exp of the
/// score, so its error is a factor exp(theta), where theta is e plus the roundings of the argument and those of exp2. From there on
/// errors are multiplied and added like products and sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <halftone/kernel/attention/reference.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace support {

namespace ht = halftone;
using ht::extent;

struct attention_sizes {
    extent batch, queries, keys, heads, groups, head_size;
    ht::attention_mask mask = ht::attention_mask::full;

    friend std::ostream& operator<<(std::ostream& out, const attention_sizes& s) {
        return out << "batch " << s.batch << ", queries " << s.queries << ", keys " << s.keys << ", heads " << s.heads
                   << "/" << s.groups << " of " << s.head_size
                   << (s.mask == ht::attention_mask::causal ? ", causal" : ", full");
    }
};

/// A (batch, time, heads, head_size) tensor of doubles.
struct doubles4 {
    ht::shape<4> shape;
    std::vector<double> values;

    explicit doubles4(const ht::shape<4>& s) : shape(s), values(static_cast<std::size_t>(s.size())) {}
    ht::view<double, 4> view() { return {values.data(), shape}; }
    ht::view<const double, 4> view() const { return {values.data(), shape}; }
    /// (head_size)
    const double* row(extent b, extent t, extent h) const {
        return values.data() + ((b * shape[1] + t) * shape[2] + h) * shape[3];
    }
    double* row(extent b, extent t, extent h) { return values.data() + ((b * shape[1] + t) * shape[2] + h) * shape[3]; }
    double largest() const {
        double most = 0;
        for (const double x : values) most = std::max(most, std::fabs(x));
        return most;
    }
};

template <class T>
doubles4 exact(const ht::view<T, 4>& v) {
    doubles4 copy(v.shape());
    auto to = copy.values.begin();
    for (extent b = 0; b < v.extent_of(0); ++b) {
        for (extent t = 0; t < v.extent_of(1); ++t) {
            for (extent h = 0; h < v.extent_of(2); ++h) {
                for (extent d = 0; d < v.extent_of(3); ++d)
                    *to++ = static_cast<double>(static_cast<float>(v(b, t, h, d)));
            }
        }
    }
    return copy;
}

/// Results or gradients, in double.
struct attention_results {
    doubles4 o, dq, dk, dv;
    std::vector<double> logsumexp;  // (batch, heads, queries)

    explicit attention_results(const attention_sizes& s)
        : o({s.batch, s.queries, s.heads, s.head_size}),
          dq(o),
          dk({s.batch, s.keys, s.groups, s.head_size}),
          dv(dk),
          logsumexp(static_cast<std::size_t>(s.batch * s.heads * s.queries)) {}
};

struct attention_inputs {
    attention_sizes sizes;
    ht::attention_options options;
    doubles4 q, k, v, d_o;
};

inline attention_results attention_by_definition(const attention_inputs& x) {
    attention_results want(x.sizes);
    const attention_sizes& s = x.sizes;
    ht::reference::attention(x.q.view(), x.k.view(), x.v.view(), want.o.view(),
                             ht::view<double, 3>(want.logsumexp.data(), {s.batch, s.heads, s.queries}), x.options);
    ht::reference::attention_gradients(x.q.view(), x.k.view(), x.v.view(), x.d_o.view(), want.dq.view(), want.dk.view(),
                                       want.dv.view(), x.options);
    return want;
}

/// Packed sequences: the numbers of queries and keys of each.
struct sequence_lengths {
    std::vector<std::int32_t> queries, keys;

    /// (sequences + 1)
    static std::vector<std::int32_t> offsets(const std::vector<std::int32_t>& lengths) {
        std::vector<std::int32_t> sums{0};
        for (const std::int32_t n : lengths) sums.push_back(sums.back() + n);
        return sums;
    }
    static extent longest(const std::vector<std::int32_t>& lengths) {
        return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    }
};

/// A copy of the elements at the times [first, first + count).
inline doubles4 alone(const doubles4& x, extent first, extent count) {
    return [](const ht::view<const double, 4>& part) {
        doubles4 copy(part.shape());
        auto to = copy.values.begin();
        for (extent i = 0; i < part.extent_of(1); ++i) {
            for (extent h = 0; h < part.extent_of(2); ++h) {
                for (extent d = 0; d < part.extent_of(3); ++d) *to++ = part(0, i, h, d);
            }
        }
        return copy;
    }(ht::detail::times_of(x.view(), first, count));
}
inline void put_back(const doubles4& part, doubles4& x, extent first) {
    std::copy(part.values.begin(), part.values.end(),
              x.values.begin() + static_cast<std::ptrdiff_t>(first * x.shape[2] * x.shape[3]));
}

/// The roundings that operands (Compute) and results (T) undergo.
struct attention_roundings {
    double operand, operand_least;  ///< unit roundoff, and the absolute error near zero
    double result, result_least;
    /// Scores are scaled before the largest is subtracted, and weights rounded after their division by the sum.
    bool in_parts = false;
};
template <class Compute, class T>
attention_roundings roundings_of(ht::attention_strategy strategy = ht::attention_strategy::flash) {
    using c = ht::number_traits<Compute>;
    using t = ht::number_traits<T>;
    // A product unit may treat subnormal numbers as zero.
    const double flushed = ht::number_traits<float>::min_normal;
    return {std::is_same_v<Compute, float> ? 0 : c::unit_roundoff, c::min_subnormal / 2 + flushed, t::unit_roundoff,
            t::min_subnormal / 2, strategy == ht::attention_strategy::math};
}

/// The scores of one query and the keys that it sees, with bounds of a kernel's errors.
struct score_bounds {
    std::vector<extent> keys;
    std::vector<double> p, scores, errors;
    std::vector<double> slopes, slope_errors;  ///< of the score by scale q k^T; none: 1, exactly
    std::vector<double> factors;               ///< of weights, which dropout gives; none: 1
    double logsumexp = 0;
};

/// The scores scale q k^T. A score is scaled when it is stored (in_parts).
inline double product_error(const attention_inputs& x, extent b, extent h, extent i, extent j, double& score) {
    const attention_sizes& s = x.sizes;
    const double scale = ht::reference::attention_scale(x.options, s.head_size);
    const double *const q = x.q.row(b, i, h), *const k = x.k.row(b, j, h / (s.heads / s.groups));
    double magnitudes = 0;
    score = 0;
    for (extent d = 0; d < s.head_size; ++d) {
        const double product = q[d] * k[d];
        score += scale * product;
        magnitudes += std::fabs(product);
    }
    return scale * gamma(2 * static_cast<double>(s.head_size)) * magnitudes + 1e-37;
}
inline score_bounds plain_score_bounds(const attention_inputs& x, const attention_roundings& r, extent b, extent h,
                                       extent i) {
    score_bounds to;
    to.logsumexp = ht::reference::attention_weights(x.q.view(), x.k.view(), b, i, h, x.options, to.p);
    for (std::size_t j = 0; j < to.p.size(); ++j) {
        double score = 0, error = product_error(x, b, h, i, static_cast<extent>(j), score);
        if (r.in_parts) error += 2 * u * std::fabs(score);
        to.keys.push_back(static_cast<extent>(j)), to.scores.push_back(score), to.errors.push_back(error);
    }
    return to;
}

/// Bounds of the differences between a kernel's results and the definition's.
/// scores_of(batch, head, query): its scores and their bounds.
template <class ScoresOf>
attention_results attention_bounds_by(const attention_inputs& x, const attention_results& want,
                                      const attention_roundings& r, const ScoresOf& scores_of) {
    const attention_sizes& s = x.sizes;
    const double scale = ht::reference::attention_scale(x.options, s.head_size), n = static_cast<double>(s.keys),
                 m = static_cast<double>(s.queries);
    const double dot_error = gamma(2 * static_cast<double>(s.head_size)), tiles = n / 64 + 1;
    attention_results bound(s);
    std::vector<double> growths;
    std::vector<double> errors(static_cast<std::size_t>(s.head_size));
    const auto final_error = [&](double value, double error) {
        return error + std::max(r.result * (std::fabs(value) + error), r.result_least);
    };

    for (extent b = 0; b < s.batch; ++b) {
        for (extent h = 0; h < s.heads; ++h) {
            const extent g = h / (s.heads / s.groups);
            for (extent i = 0; i < s.queries; ++i) {
                const score_bounds of = scores_of(b, h, i);
                const auto &p = of.p, &scores = of.scores, &score_errors = of.errors;
                const double logsumexp = of.logsumexp;
                if (p.empty()) continue;
                const auto visible = static_cast<extent>(p.size());
                const auto at = [](extent j) { return static_cast<std::size_t>(j); };
                const auto factor_of = [&](extent j) { return of.factors.empty() ? 1 : of.factors[at(j)] * (1 + 2 * u); };
                const double *const q = x.q.row(b, i, h), *const d_o = x.d_o.row(b, i, h),
                                    *const o = want.o.row(b, i, h);
                growths.assign(p.size(), 0);
                double highest = -HUGE_VAL, worst = 0;
                for (extent j = 0; j < visible; ++j) {
                    highest = std::max(highest, scores[at(j)]);
                    worst = std::max(worst, score_errors[at(j)]);
                }

                // Forward. The argument's roundings are relative to the distance from the maximum; the error of exp2 is 6 u, once
                // for the weight and once for every tile that raises the maximum.
                double growth = 0;
                for (extent j = 0; j < visible; ++j) {
                    const double distance = highest - scores[at(j)] + worst + score_errors[at(j)];
                    growths[at(j)] = std::exp(score_errors[at(j)] + 8 * u * distance + (tiles + 1) * 8 * u);
                    growth += p[at(j)] * growths[at(j)];
                }
                const double sums = 1 + gamma(4 * n + 8 * tiles + 16),
                             largest = r.in_parts ? 1 : std::exp(highest + worst - logsumexp),
                             least = r.operand_least * largest * growth * sums;
                std::fill(errors.begin(), errors.end(), 0);
                for (extent j = 0; j < visible; ++j) {
                    const double* const v = x.v.row(b, of.keys[at(j)], g);
                    const double factor = growths[at(j)] * growth * (1 + r.operand) * sums * sums - 1,
                                 weight_error = factor_of(j) * (p[at(j)] * factor + least);
                    for (extent d = 0; d < s.head_size; ++d) errors[at(d)] += weight_error * std::fabs(v[d]);
                }
                double* const o_errors = bound.o.row(b, i, h);
                for (extent d = 0; d < s.head_size; ++d) o_errors[d] = final_error(o[d], errors[at(d)]);
                const double logsumexp_error =
                    std::log(growth) + (sums - 1) +
                    u * (6 * std::fabs(highest) + 8 * std::log(n + 1) + 2 * std::fabs(logsumexp) + 2);
                bound.logsumexp[at((b * s.heads + h) * s.queries + i)] = logsumexp_error;

                // Backward.
                double dot_of = 0, dot_of_error = 0, dot_magnitudes = 0;
                for (extent d = 0; d < s.head_size; ++d) {
                    dot_of += d_o[d] * o[d];
                    dot_of_error += std::fabs(d_o[d]) * o_errors[d];
                    dot_magnitudes += std::fabs(d_o[d]) * (std::fabs(o[d]) + o_errors[d]);
                }
                dot_of_error += dot_error * dot_magnitudes;
                const double add_queries = gamma(2 * m * static_cast<double>(s.heads / s.groups) + 8),
                             add_keys = gamma(2 * n + 16);
                std::fill(errors.begin(), errors.end(), 0);
                for (extent j = 0; j < visible; ++j) {
                    const extent key = of.keys[at(j)];
                    const double *const k = x.k.row(b, key, g), *const v = x.v.row(b, key, g);
                    double dp = 0, dp_magnitudes = 0;
                    for (extent d = 0; d < s.head_size; ++d) {
                        const double product = factor_of(j) * d_o[d] * v[d];
                        dp += product;
                        dp_magnitudes += std::fabs(product);
                    }
                    const double turn = score_errors[at(j)] * (1 + 8 * u) + 8 * u * std::fabs(scores[at(j)]) +
                                        4 * u * std::fabs(logsumexp) + logsumexp_error + 8 * u;
                    const double grown = std::exp(turn), weight = p[at(j)];
                    const double weight_error = weight * (grown * (1 + r.operand) - 1) + r.operand_least;
                    double ds = weight * (dp - dot_of);
                    double ds_error = weight * (grown * (1 + 4 * u) - 1) * std::fabs(dp - dot_of) +
                                      weight * grown * (1 + 4 * u) * (dot_error * dp_magnitudes + dot_of_error);
                    if (!of.slopes.empty()) {
                        const double slope = std::fabs(of.slopes[at(j)]), error = of.slope_errors[at(j)] + 3 * u * slope;
                        // A bias may make weights smaller than the smallest positive number.
                        ds_error += r.operand_least * (std::fabs(dp - dot_of) + dot_error * dp_magnitudes + dot_of_error);
                        ds_error = ds_error * (slope + error) + std::fabs(ds) * error;
                        ds *= slope;
                    }
                    ds_error += r.operand * (std::fabs(ds) + ds_error) + r.operand_least;
                    const double dv_error = factor_of(j) * (weight_error + add_queries * (weight + weight_error)),
                                 dk_error = scale * (1 + 4 * u) * (ds_error + add_queries * (std::fabs(ds) + ds_error)),
                                 dq_error = scale * (1 + 4 * u) * (ds_error + add_keys * (std::fabs(ds) + ds_error));
                    double *const dk_errors = bound.dk.row(b, key, g), *const dv_errors = bound.dv.row(b, key, g);
                    for (extent d = 0; d < s.head_size; ++d) {
                        dv_errors[d] += dv_error * std::fabs(d_o[d]);
                        dk_errors[d] += dk_error * std::fabs(q[d]);
                        errors[at(d)] += dq_error * std::fabs(k[d]);
                    }
                }
                const double* const dq = want.dq.row(b, i, h);
                for (extent d = 0; d < s.head_size; ++d)
                    bound.dq.row(b, i, h)[d] = final_error(dq[d], errors[at(d)] + 4 * u * std::fabs(dq[d]));
            }
        }
        for (extent g = 0; g < s.groups; ++g) {
            for (extent j = 0; j < s.keys; ++j) {
                const double *const dk = want.dk.row(b, j, g), *const dv = want.dv.row(b, j, g);
                double *const dk_errors = bound.dk.row(b, j, g), *const dv_errors = bound.dv.row(b, j, g);
                for (extent d = 0; d < s.head_size; ++d) {
                    dk_errors[d] = final_error(dk[d], dk_errors[d] + 4 * u * std::fabs(dk[d]));
                    dv_errors[d] = final_error(dv[d], dv_errors[d]);
                }
            }
        }
    }
    return bound;
}
inline attention_results attention_bounds(const attention_inputs& x, const attention_results& want,
                                          const attention_roundings& r) {
    return attention_bounds_by(x, want, r, [&](extent b, extent h, extent i) {
        return plain_score_bounds(x, r, b, h, i);
    });
}

/// Joins the results of evaluate(inputs, place) for every sequence by itself. The results of queries that see no key are left
/// unchanged.
template <class Evaluate>
void for_each_sequence(const attention_inputs& x, const sequence_lengths& lengths, attention_results& all,
                       const Evaluate& evaluate) {
    extent first_query = 0, first_key = 0;
    for (std::size_t s = 0; s < lengths.queries.size(); ++s) {
        attention_sizes sizes = x.sizes;
        sizes.queries = lengths.queries[s], sizes.keys = lengths.keys[s];
        const bool few = sizes.keys == 0 || sizes.mask == ht::attention_mask::causal;
        const extent blind = few ? std::max<extent>(0, sizes.queries - sizes.keys) : 0;
        sizes.queries -= blind, first_query += blind;
        const attention_inputs part{sizes,
                                    x.options,
                                    alone(x.q, first_query, sizes.queries),
                                    alone(x.k, first_key, sizes.keys),
                                    alone(x.v, first_key, sizes.keys),
                                    alone(x.d_o, first_query, sizes.queries)};
        attention_results want = attention_by_definition(part);
        const attention_results results = evaluate(part, want);
        put_back(results.o, all.o, first_query);
        put_back(results.dq, all.dq, first_query);
        put_back(results.dk, all.dk, first_key);
        put_back(results.dv, all.dv, first_key);
        for (extent h = 0; h < sizes.heads; ++h) {
            std::copy_n(results.logsumexp.begin() + static_cast<std::ptrdiff_t>(h * sizes.queries), sizes.queries,
                        all.logsumexp.begin() + static_cast<std::ptrdiff_t>(h * x.sizes.queries + first_query));
        }
        first_query += sizes.queries, first_key += sizes.keys;
    }
}

/// The definition, applied to every sequence by itself.
inline attention_results packed_attention_by_definition(const attention_inputs& x, const sequence_lengths& lengths) {
    attention_results want(x.sizes);
    for (double& sum : want.logsumexp) sum = static_cast<double>(-3.0e38f);  // of queries that see no key
    for_each_sequence(x, lengths, want, [](const attention_inputs&, const attention_results& part) { return part; });
    return want;
}
/// The results of keys that no query sees, and of queries that see no key, are exact.
inline attention_results packed_attention_bounds(const attention_inputs& x, const sequence_lengths& lengths,
                                                 const attention_roundings& r) {
    attention_results bound(x.sizes);
    for_each_sequence(x, lengths, bound, [&](const attention_inputs& part, const attention_results& want) {
        return attention_bounds(part, want, r);
    });
    return bound;
}

/// Attention as four operations, each of which sums in double and rounds its results to T, like a program without a fused kernel.
template <class T>
attention_results attention_by_operations(const attention_inputs& x) {
    const attention_sizes& s = x.sizes;
    const double scale = ht::reference::attention_scale(x.options, s.head_size);
    const auto round = [](double value) {
        return static_cast<double>(static_cast<float>(T(static_cast<float>(value))));
    };
    attention_results got(s);
    std::vector<double> p, dp;
    for (extent b = 0; b < s.batch; ++b) {
        for (extent h = 0; h < s.heads; ++h) {
            const extent g = h / (s.heads / s.groups);
            for (extent i = 0; i < s.queries; ++i) {
                const extent visible = ht::reference::visible_keys(x.options, i, s.queries, s.keys);
                const auto at = [](extent j) { return static_cast<std::size_t>(j); };
                p.resize(at(visible)), dp.resize(at(visible));
                double highest = -HUGE_VAL, sum = 0, dot = 0;
                for (extent j = 0; j < visible; ++j) {
                    p[at(j)] = round(scale * round(ht::reference::dot(x.q.view(), x.k.view(), b, i, h, j, g)));
                    highest = std::max(highest, p[at(j)]);
                }
                for (const double score : p) sum += std::exp(score - highest);
                for (double& score : p) score = round(std::exp(score - highest) / sum);
                for (extent j = 0; j < visible; ++j) {
                    dp[at(j)] = round(ht::reference::dot(x.d_o.view(), x.v.view(), b, i, h, j, g));
                    dot += p[at(j)] * dp[at(j)];
                }
                const double *const q = x.q.row(b, i, h), *const d_o = x.d_o.row(b, i, h);
                double *const o = got.o.row(b, i, h), *const dq = got.dq.row(b, i, h);
                for (extent j = 0; j < visible; ++j) {
                    const double *const k = x.k.row(b, j, g), *const v = x.v.row(b, j, g);
                    double *const dk = got.dk.row(b, j, g), *const dv = got.dv.row(b, j, g);
                    const double ds = round(scale * round(p[at(j)] * (dp[at(j)] - dot)));
                    for (extent d = 0; d < s.head_size; ++d) {
                        o[d] += p[at(j)] * v[d];
                        dv[d] += p[at(j)] * d_o[d];
                        dq[d] += ds * k[d];
                        dk[d] += ds * q[d];
                    }
                }
            }
        }
    }
    for (doubles4* result : {&got.o, &got.dq, &got.dk, &got.dv}) {
        for (double& value : result->values) value = round(value);
    }
    return got;
}

}  // namespace support
