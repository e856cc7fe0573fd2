// SPDX-License-Identifier: MIT
/// \file
/// Values hidden by an attention mask on a double-backward tape, on any device: they change no bit of the values and of the first
/// and second derivatives of queries that do not see them, except the sign of zeros. A visible NaN appears in the results.
#pragma once

#include <cstring>
#include <limits>
#include <vector>

#include <halftone/autodiff/double_backward/double_backward.hpp>

#include "kernel/attention/hidden.hpp"

namespace twice_hidden {

namespace ht = halftone;
using ht::extent;
using support::attention_sizes;
using support::poisoned;
using support::seen_pairs;

/// Queries, keys, values and the gradients of the results, in that order.
template <class T>
struct problem {
    attention_sizes sizes;
    support::sequence_lengths lengths;  ///< none: one sequence
    std::vector<T> operands[4];
    std::vector<std::int32_t> query_offsets, key_offsets;

    /// Of packed sequences, sizes.queries and sizes.keys are not read.
    explicit problem(const attention_sizes& s, const support::sequence_lengths& l = {}) : sizes(s), lengths(l) {
        if (is_packed()) {
            query_offsets = support::sequence_lengths::offsets(l.queries);
            key_offsets = support::sequence_lengths::offsets(l.keys);
            sizes.queries = query_offsets.back(), sizes.keys = key_offsets.back();
        }
        support::random data(7);
        for (int i = 0; i < 4; ++i) {
            operands[i].resize(static_cast<std::size_t>(shape_of(static_cast<poisoned>(i)).size()));
            for (T& x : operands[i]) x = T(static_cast<float>(data.normal()));
        }
    }
    bool is_packed() const { return !lengths.queries.empty(); }
    static bool is_of_keys(poisoned p) { return p == poisoned::k || p == poisoned::v; }
    ht::shape<4> shape_of(poisoned p) const {
        return is_of_keys(p) ? ht::shape<4>{sizes.batch, sizes.keys, sizes.groups, sizes.head_size}
                             : ht::shape<4>{sizes.batch, sizes.queries, sizes.heads, sizes.head_size};
    }
    ht::const_view<T, 4> view_of(poisoned p) const { return {operands[static_cast<int>(p)].data(), shape_of(p)}; }
    seen_pairs seen() const { return is_packed() ? support::seen_of(lengths, sizes.mask) : support::seen_of(sizes); }
    ht::packed_sequences sequences() const {
        if (!is_packed()) return {};
        using lists = support::sequence_lengths;
        const auto of = [](const std::vector<std::int32_t>& v) {
            return ht::const_view<std::int32_t, 1>(v.data(), {static_cast<extent>(v.size())});
        };
        return {of(query_offsets), of(key_offsets), lists::longest(lengths.queries), lists::longest(lengths.keys)};
    }
};

/// One tensor, (batch, time, heads, head_size), that belongs to queries or to keys.
struct result {
    const char* name;
    bool of_keys;
    std::vector<poisoned> does_not_read;
    std::vector<float> values;
};
using results = std::vector<result>;

template <class Device, class T, int Rank>
std::vector<float> read(Device& device, const ht::view<T, Rank>& v) {
    std::vector<std::remove_const_t<T>> values(static_cast<std::size_t>(v.size()));
    device.memory().read(values.data(), v.data(), values.size() * sizeof(T));
    return {values.begin(), values.end()};
}

/// Attention by the policy P. The loss is the sum of o d_o; the second one is that of its gradients by all four times
/// given numbers.
template <class P, class T, class Device>
results derivatives(Device& device, const problem<T>& p) {
    results all;
    ht::tape tape{device, ht::double_backward};
    using roles = ht::layer_roles<P, ht::op::attention, decltype(tape)>;
    using support::poisoned;
    const bool of_keys[] = {false, true, true, false};
    const std::vector<poisoned> gradient_does_not_read[] = {
        {}, {}, {poisoned::v}, {poisoned::d_o}};  // by q, k, v, d_o: it is linear in the last two
    for (const bool second : {false, true}) {
        std::vector<float> weights[4];
        ht::variable<T, 4> leaves[4];
        for (int i = 0; i < 4; ++i) leaves[i] = tape.leaf(p.view_of(static_cast<poisoned>(i)));
        const auto& [q, k, v, d_o] = leaves;
        const auto o = ht::attention<roles>(tape, q, k, v, {.mask = p.sizes.mask}, p.sequences());
        const auto loss = ht::sum<float>(tape, ht::mul<float>(tape, o, d_o));
        if (!second) {
            all.push_back({"o", false, {poisoned::d_o}, read(device, o.view())});
            tape.backward(loss);
        } else {
            const auto gradients = tape.gradients(loss, q, k, v, d_o);
            const char* const names[] = {"the gradient by q", "by k", "by v", "by d_o"};
            ht::variable<float, 0> total;
            for (std::size_t i = 0; i < 4; ++i) {
                all.push_back({names[i], of_keys[i], gradient_does_not_read[i], read(device, gradients[i].view())});
                support::random data(11 + i);
                weights[i].resize(static_cast<std::size_t>(gradients[i].size()));
                for (float& w : weights[i]) w = static_cast<float>(data.normal());
                const auto given = tape.constant(ht::const_view<float, 1>(weights[i].data(), gradients[i].shape()));
                const auto part = ht::sum(tape, ht::mul(tape, gradients[i], given));
                total = i == 0 ? part : ht::add(tape, total, part);
            }
            tape.backward(total);
        }
        const char* const names[2][4] = {
            {"the gradient by q by backward()", "by k by backward()", "by v by backward()", "by d_o by backward()"},
            {"the second derivative by q", "by k, second", "by v, second", "by d_o, second"}};
        for (int i = 0; i < 4; ++i)
            all.push_back(
                {names[second][i], of_keys[i], gradient_does_not_read[i], read(device, tape.gradient(leaves[i]))});
        tape.clear();
    }
    return all;
}

/// One number of one operand's place is changed.
struct place {
    poisoned operand;
    extent batch, time, head;
};

template <class T>
struct comparison {
    const problem<T>& p;
    const seen_pairs& seen;
    place at;

    /// Whether a result at this time, for this head, may depend on the element `at`.
    bool reaches(bool of_keys, extent batch, extent time, extent head) const {
        if (batch != at.batch) return false;
        const extent members = p.sizes.heads / p.sizes.groups;
        if (!problem<T>::is_of_keys(at.operand)) {
            return of_keys ? at.head / members == head && seen(at.time, time) : at.head == head && at.time == time;
        }
        return of_keys ? at.head == head && seen.meet(at.time, time) : at.head == head / members && seen(time, at.time);
    }
    /// How many rows are neither as they were nor may read it; of NaN, how many read it and are finite.
    void count(const result& clean, const result& got, extent& leaks, extent& lost) const {
        const ht::shape<4> s = p.shape_of(got.of_keys ? poisoned::k : poisoned::q);
        const bool reads =
            std::find(got.does_not_read.begin(), got.does_not_read.end(), at.operand) == got.does_not_read.end();
        std::size_t first = 0;
        for (extent b = 0; b < s[0]; ++b) {
            for (extent t = 0; t < s[1]; ++t) {
                for (extent h = 0; h < s[2]; ++h, first += static_cast<std::size_t>(s[3])) {
                    bool same = true, finite = true;
                    for (std::size_t i = first; i < first + static_cast<std::size_t>(s[3]); ++i) {
                        same = same && alike(clean.values[i], got.values[i]);
                        finite = finite && ht::is_finite(got.values[i]);
                    }
                    const bool may_read = reaches(got.of_keys, b, t, h);
                    leaks += !may_read && !same ? 1 : 0;
                    // A query without visible keys gives zeros.
                    lost += may_read && reads && finite && (got.of_keys || seen.sees_any(t)) ? 1 : 0;
                }
            }
        }
    }
    static bool alike(float a, float b) { return (a == 0 && b == 0) || std::memcmp(&a, &b, sizeof a) == 0; }
};

/// NaN, infinities and the largest number of T at some times of every operand, one after the other: so many of these.
template <class P, class T, class Device>
void check(Device& device, problem<T> p, const std::vector<extent>& query_times, const std::vector<extent>& key_times,
           int kinds = 4) {
    CAPTURE(p.sizes);
    const seen_pairs seen = p.seen();
    const results clean = derivatives<P>(device, p);
    for (const result& r : clean) {
        CAPTURE(std::string(r.name));
        CHECK(std::all_of(r.values.begin(), r.values.end(), [](float x) { return ht::is_finite(x); }));
        CHECK(std::any_of(r.values.begin(), r.values.end(), [](float x) { return x != 0; }));
    }
    using limits = ht::number_traits<T>;
    const T poisons[] = {T(std::numeric_limits<float>::quiet_NaN()), T(std::numeric_limits<float>::infinity()),
                         T(static_cast<float>(limits::max)), T(-std::numeric_limits<float>::infinity())};
    for (int operand = 0; operand < 4; ++operand) {
        const auto which = static_cast<poisoned>(operand);
        const ht::shape<4> s = p.shape_of(which);
        for (const extent time : problem<T>::is_of_keys(which) ? key_times : query_times) {
            for (int kind = 0; kind < kinds; ++kind) {
                const place at{which, s[0] - 1, time, s[2] - 1};
                T& number = p.operands[operand][static_cast<std::size_t>(
                    ((at.batch * s[1] + time) * s[2] + at.head) * s[3] + time % s[3])];
                const T before = number;
                number = poisons[kind];
                const results got = derivatives<P>(device, p);
                number = before;
                CAPTURE(operand);
                CAPTURE(time);
                CAPTURE(static_cast<float>(poisons[kind]));
                for (std::size_t i = 0; i < got.size(); ++i) {
                    CAPTURE(std::string(got[i].name));
                    extent leaks = 0, lost = 0;
                    comparison<T>{p, seen, at}.count(clean[i], got[i], leaks, lost);
                    CHECK(leaks == 0);
                    if (kind == 0) CHECK(lost == 0);
                }
            }
        }
    }
}

}  // namespace twice_hidden
