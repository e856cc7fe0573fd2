// SPDX-License-Identifier: MIT
/// \file
/// A key that is hidden from a query changes no bit of the query's results, and vice versa, whatever the hidden values are: NaNs,
/// infinities, the largest number. Visible ones appear in the results.
///
///     support::check_hidden<bfloat16>(problem, support::seen_of(sizes), run);   // run(problem) gives an outcome
#pragma once

#include <cstring>
#include <limits>
#include <vector>

#include "kernel/attention/checks.hpp"

namespace support {

/// Which queries see which keys.
struct seen_pairs {
    extent queries, keys;
    std::vector<bool> sees;

    seen_pairs(extent q, extent k) : queries(q), keys(k), sees(static_cast<std::size_t>(q * k)) {}
    bool operator()(extent i, extent j) const { return sees[static_cast<std::size_t>(i * keys + j)]; }
    /// The sizes of one sequence.
    void add(extent first_query, extent q, extent first_key, extent k, ht::attention_mask mask) {
        for (extent i = 0; i < q; ++i) {
            const extent end = mask == ht::attention_mask::causal ? i + 1 + k - q : k;
            for (extent j = 0; j < end; ++j)
                sees[static_cast<std::size_t>((first_query + i) * keys + first_key + j)] = true;
        }
    }
    bool sees_any(extent i) const {
        const auto row = sees.begin() + static_cast<std::ptrdiff_t>(i * keys);
        return std::find(row, row + static_cast<std::ptrdiff_t>(keys), true) != row + static_cast<std::ptrdiff_t>(keys);
    }
    /// Whether some query sees both keys.
    bool meet(extent j, extent other) const {
        for (extent i = 0; i < queries; ++i) {
            if ((*this)(i, j) && (*this)(i, other)) return true;
        }
        return false;
    }
};
inline seen_pairs seen_of(const attention_sizes& s) {
    seen_pairs seen(s.queries, s.keys);
    seen.add(0, s.queries, 0, s.keys, s.mask);
    return seen;
}
inline seen_pairs seen_of(const sequence_lengths& lengths, ht::attention_mask mask) {
    const auto queries = sequence_lengths::offsets(lengths.queries), keys = sequence_lengths::offsets(lengths.keys);
    seen_pairs seen(queries.back(), keys.back());
    for (std::size_t s = 0; s < lengths.queries.size(); ++s)
        seen.add(queries[s], lengths.queries[s], keys[s], lengths.keys[s], mask);
    return seen;
}

enum class poisoned { q, k, v, d_o };

/// Compares an outcome with the one without the poison: a NaN or infinity at one time of one head of one operand.
template <class T>
struct poison_check {
    const problem<T>& p;
    const seen_pairs& seen;
    const outcome<T>&clean, &got;
    poisoned operand;
    extent batch, time, head;

    attention_sizes sizes() const { return p.sizes; }
    bool of_keys() const { return operand == poisoned::k || operand == poisoned::v; }
    extent group_of(extent h) const { return h / (sizes().heads / sizes().groups); }
    /// Whether query i of head h reads the poison.
    bool reaches_query(extent b, extent i, extent h) const {
        if (b != batch) return false;
        return of_keys() ? group_of(h) == head && seen(i, time) : h == head && i == time;
    }
    /// Whether the gradients of key j of group g read the poison, through a query or directly.
    bool reaches_key(extent b, extent j, extent g) const {
        if (b != batch || g != (of_keys() ? head : group_of(head))) return false;
        return of_keys() ? seen.meet(time, j) : seen(time, j);
    }

    static bool same(const ht::view<T, 4>& a, const ht::view<T, 4>& b, extent e, extent t, extent h) {
        return std::memcmp(&a(e, t, h, 0), &b(e, t, h, 0), static_cast<std::size_t>(a.extent_of(3)) * sizeof(T)) == 0;
    }
    static bool shows(const ht::view<T, 4>& x, extent e, extent t, extent h) {
        for (extent d = 0; d < x.extent_of(3); ++d) {
            if (!ht::is_finite(x(e, t, h, d))) return true;
        }
        return false;
    }

    /// The number of wrong results.
    extent leaks() const {
        extent count = 0;
        const attention_sizes s = sizes();
        for (extent b = 0; b < s.batch; ++b) {
            for (extent h = 0; h < s.heads; ++h) {
                for (extent i = 0; i < s.queries; ++i) {
                    if (reaches_query(b, i, h)) continue;
                    count += same(got.o.view, clean.o.view, b, i, h) ? 0 : 1;
                    count += same(got.d.q.view, clean.d.q.view, b, i, h) ? 0 : 1;
                    count += got.same_sum(clean, (b * s.heads + h) * s.queries + i) ? 0 : 1;
                }
            }
            for (extent g = 0; g < s.groups; ++g) {
                for (extent j = 0; j < s.keys; ++j) {
                    if (reaches_key(b, j, g)) continue;
                    count += same(got.d.k.view, clean.d.k.view, b, j, g) ? 0 : 1;
                    count += same(got.d.v.view, clean.d.v.view, b, j, g) ? 0 : 1;
                }
            }
        }
        return count;
    }
    /// For NaN: the number of results that read it and are finite nevertheless.
    extent lost() const {
        extent count = 0;
        const attention_sizes s = sizes();
        for (extent h = 0; h < s.heads; ++h) {
            for (extent i = 0; i < s.queries; ++i) {
                // The results of a query that sees no key are zeros.
                if (!reaches_query(batch, i, h) || !seen.sees_any(i)) continue;
                if (operand != poisoned::d_o) count += shows(got.o.view, batch, i, h) ? 0 : 1;
                count += shows(got.d.q.view, batch, i, h) ? 0 : 1;
            }
        }
        for (extent g = 0; g < s.groups; ++g) {
            for (extent j = 0; j < s.keys; ++j) {
                if (!reaches_key(batch, j, g)) continue;
                count += shows(got.d.k.view, batch, j, g) ? 0 : 1;
                // A NaN in a value does not affect weights.
                if (operand != poisoned::v) count += shows(got.d.v.view, batch, j, g) ? 0 : 1;
            }
        }
        return count;
    }
};

/// Tests poison of several kinds at some of the times of every operand, one at a time.
template <class T, class Run>
void check_hidden(problem<T>& p, const seen_pairs& seen, const std::vector<extent>& query_times,
                  const std::vector<extent>& key_times, const Run& run, int kinds = 4) {
    CAPTURE(p.sizes);
    const outcome<T> clean = run(p);
    CHECK((is_finite(clean.o.view) && is_finite(clean.d.q.view) && is_finite(clean.d.k.view)));
    using limits = ht::number_traits<T>;
    std::vector<T> poisons{T(std::numeric_limits<float>::quiet_NaN()), T(std::numeric_limits<float>::infinity()),
                           T(static_cast<float>(limits::max)), T(-std::numeric_limits<float>::infinity())};
    poisons.resize(static_cast<std::size_t>(kinds));
    const struct {
        poisoned which;
        ht::view<T, 4> view;
    } operands[] = {
        {poisoned::q, p.x.q.view}, {poisoned::k, p.x.k.view}, {poisoned::v, p.x.v.view}, {poisoned::d_o, p.d_o.view}};
    for (const auto& operand : operands) {
        const poisoned which = operand.which;
        const ht::view<T, 4>& x = operand.view;
        const bool of_keys = which == poisoned::k || which == poisoned::v;
        const extent batch = x.extent_of(0) - 1, head = x.extent_of(2) - 1, width = x.extent_of(3);
        for (const extent time : of_keys ? key_times : query_times) {
            for (const T& poison : poisons) {
                T& place = x(batch, time, head, time % width);
                const T before = place;
                place = poison;
                const outcome<T> got = run(p);
                place = before;
                CAPTURE(static_cast<int>(which));
                CAPTURE(time);
                CAPTURE(static_cast<float>(poison));
                const poison_check<T> check{p, seen, clean, got, which, batch, time, head};
                CHECK(got.intact());
                CHECK(check.leaks() == 0);
                if (ht::is_nan(poison)) CHECK(check.lost() == 0);
            }
        }
    }
}

/// The first query sees only one key, with score minus infinity, so that its softmax is not defined; the results of the other
/// queries are not affected.
template <class T, class Run>
void check_lowest_score(const attention_sizes& sizes, layout way, const Run& run) {
    CAPTURE(sizes);
    problem<T> p(sizes, way);
    const extent first_hidden = 1 + sizes.keys - sizes.queries;
    for (extent h = 0; h < sizes.heads; ++h) p.x.q.view(0, 0, h, 0) = T(1.0f);
    for (extent g = 0; g < sizes.groups; ++g) {
        for (extent j = 0; j < first_hidden; ++j) p.x.k.view(0, j, g, 0) = T(-std::numeric_limits<float>::infinity());
    }
    const outcome<T> got = run(p);
    for (extent h = 0; h < sizes.heads; ++h) {
        CHECK(poison_check<T>::shows(got.o.view, 0, 0, h));
        CHECK(poison_check<T>::shows(got.d.q.view, 0, 0, h));
    }
}

}  // namespace support
