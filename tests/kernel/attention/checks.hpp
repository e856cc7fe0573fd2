// SPDX-License-Identifier: MIT
/// \file
/// Problems of attention, and the tests of any device's results. The device must be able to read host memory.
///
///     support::check_attention<bfloat16, bfloat16>(sizes, support::layout::fused, support::bounds::telling, run);
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/kernel/attention/attention.hpp>
#include <halftone/number/classify.hpp>

#include "kernel/attention/oracle.hpp"

namespace support {

using ht::bfloat16;
using ht::float16;

/// The memory layout of q, k, v and the gradients.
enum class layout {
    contiguous,          ///< separate tensors
    fused,               ///< q, k and v slices of one (batch, time, 3, heads, head_size) buffer
    heads_first,         ///< (batch, heads, time, head_size) with gaps between the times
    fused_chunks,        ///< as `fused`, and vectors of heads begin on multiples of 16 bytes if head_size allows it
    heads_first_chunks,  ///< as `heads_first`, likewise
};
inline bool is_fused(layout way) { return way == layout::fused || way == layout::fused_chunks; }

/// A tensor with its memory, initialised with NaNs.
template <class T>
struct operand {
    std::shared_ptr<guarded<T>> memory;
    ht::view<T, 4> view;

    bool same_bits(const operand& other) const { return memory->same_bits(*other.memory); }
};

template <class T>
operand<T> make_operand(layout way, extent batch, extent time, extent heads, extent width) {
    if (way == layout::heads_first || way == layout::heads_first_chunks) {
        const bool chunks = way == layout::heads_first_chunks;
        const extent row = width + (chunks ? 8 : 3);
        auto memory = std::make_shared<guarded<T>>(batch * heads * time * row, chunks ? 0 : 5);
        return {memory, {memory->data(), {batch, time, heads, width}, {heads * time * row, row, time * row, 1}}};
    }
    auto memory = std::make_shared<guarded<T>>(batch * time * heads * width, is_fused(way) ? 0 : 1);
    return {memory, {memory->data(), {batch, time, heads, width}}};
}

/// q, k and v, or their gradients.
template <class T>
struct operands {
    operand<T> q, k, v;

    operands(layout way, const attention_sizes& s)
        : q(make_operand<T>(way, s.batch, s.queries, s.heads, s.head_size)),
          k(make_operand<T>(way, s.batch, s.keys, s.groups, s.head_size)),
          v(make_operand<T>(way, s.batch, s.keys, s.groups, s.head_size)) {
        if (!is_fused(way)) return;
        if (s.heads != s.groups || s.queries != s.keys) throw std::invalid_argument("a fused buffer of unequal slices");
        const extent row = s.heads * s.head_size;
        auto memory = std::make_shared<guarded<T>>(s.batch * s.queries * 3 * row, way == layout::fused ? 3 : 0);
        const auto slice = [&](extent which) {
            return operand<T>{memory,
                              {memory->data() + which * row,
                               {s.batch, s.queries, s.heads, s.head_size},
                               {s.queries * 3 * row, 3 * row, s.head_size, 1}}};
        };
        q = slice(0), k = slice(1), v = slice(2);
    }
    bool intact() const { return q.memory->intact() && k.memory->intact() && v.memory->intact(); }
    bool same_bits(const operands& other) const {
        return q.same_bits(other.q) && k.same_bits(other.k) && v.same_bits(other.v);
    }
};

template <class T>
void fill(const ht::view<T, 4>& v, random& data, double deviation) {
    for (extent b = 0; b < v.extent_of(0); ++b) {
        for (extent t = 0; t < v.extent_of(1); ++t) {
            for (extent h = 0; h < v.extent_of(2); ++h) {
                for (extent d = 0; d < v.extent_of(3); ++d)
                    v(b, t, h, d) =
                        static_cast<T>(static_cast<float>(bfloat16(static_cast<float>(deviation * data.normal()))));
            }
        }
    }
}

/// One problem in one type.
template <class T>
struct problem {
    attention_sizes sizes;
    layout way;
    ht::attention_options options;
    operands<T> x;
    operand<T> d_o;

    problem(const attention_sizes& s, layout w, double deviation = 1, float scale = 0)
        : sizes(s),
          way(w),
          options{.mask = s.mask, .scale = scale},
          x(w, s),
          d_o(make_operand<T>(w, s.batch, s.queries, s.heads, s.head_size)) {
        random data(static_cast<std::uint64_t>(s.queries * 1000 + s.keys * 100 + s.head_size));
        fill(x.q.view, data, deviation);
        fill(x.k.view, data, 1);
        fill(x.v.view, data, 1);
        fill(d_o.view, data, 1);
    }

    attention_inputs inputs() const {
        return {sizes, options, exact(x.q.view), exact(x.k.view), exact(x.v.view), exact(d_o.view)};
    }
};

/// The results of a kernel for a problem: run(forward, backward) is called with the kernel's arguments.
template <class T>
struct outcome {
    operand<T> o;
    operands<T> d;
    guarded<float> logsumexp;  // (batch, heads, queries, 2)

    template <class Run>
    outcome(const problem<T>& p, const Run& run)
        : o(make_operand<T>(p.way, p.sizes.batch, p.sizes.queries, p.sizes.heads, p.sizes.head_size)),
          d(p.way, p.sizes),
          logsumexp(2 * p.sizes.batch * p.sizes.heads * p.sizes.queries, 1) {
        const attention_sizes& s = p.sizes;
        const ht::view<float, 4> sums(logsumexp.data(), {s.batch, s.heads, s.queries, 2});
        run(ht::kernel::attention_forward<T>{p.x.q.view, p.x.k.view, p.x.v.view, o.view, sums, p.options},
            ht::kernel::attention_backward<T>{p.x.q.view, p.x.k.view, p.x.v.view, o.view, sums, p.d_o.view, d.q.view,
                                              d.k.view, d.v.view, p.options});
    }
    bool intact() const { return o.memory->intact() && d.intact() && logsumexp.intact(); }
    bool same_bits(const outcome& other) const {
        return o.same_bits(other.o) && d.same_bits(other.d) && logsumexp.same_bits(other.logsumexp);
    }
    /// Whether one query's sum has the same bits.
    bool same_sum(const outcome& other, extent i) const {
        return std::memcmp(&logsumexp[2 * i], &other.logsumexp[2 * i], 2 * sizeof(float)) == 0;
    }
    /// The logsumexp; for a query that sees no key, the value defined for it.
    double sum_of(extent i, double scale) const {
        const auto largest = static_cast<double>(logsumexp[2 * i]), log = static_cast<double>(logsumexp[2 * i + 1]);
        const auto hidden = static_cast<double>(ht::detail::attention_masked_score);
        return largest == hidden && log == 0 ? hidden : scale * largest + log;
    }
};

/// Computed by the device's flash kernels.
template <class Compute, class T, class Device>
outcome<T> outcome_of(const problem<T>& p, Device& device) {
    return outcome<T>(p, [&](const auto& forward, const auto& backward) {
        ht::kernel::attention<Device>::template forward<Compute>(device, forward);
        ht::kernel::attention<Device>::template backward<Compute>(device, backward);
    });
}
/// Computed by the device's other operations, one after the other.
template <class Compute, class T, class Device>
outcome<T> math_outcome_of(const problem<T>& p, Device& device) {
    return outcome<T>(p, [&](const auto& forward, const auto& backward) {
        ht::kernel::attention_math<Device>::template forward<Compute>(device, forward);
        ht::kernel::attention_math<Device>::template backward<Compute>(device, backward);
    });
}

/// Sequences of various lengths in one problem.
template <class T>
struct packed_problem {
    sequence_lengths lengths;
    guarded<std::int32_t> query_offsets, key_offsets;
    problem<T> whole;

    /// `heads.queries` and `heads.keys` are not read.
    packed_problem(const sequence_lengths& l, attention_sizes heads, layout way)
        : lengths(l),
          query_offsets(sequence_lengths::offsets(l.queries)),
          key_offsets(sequence_lengths::offsets(l.keys)),
          whole((heads.queries = query_offsets[query_offsets.size() - 1],
                 heads.keys = key_offsets[key_offsets.size() - 1], heads),
                way) {}

    ht::packed_sequences sequences() const {
        return {query_offsets.const_view(), key_offsets.const_view(), sequence_lengths::longest(lengths.queries),
                sequence_lengths::longest(lengths.keys)};
    }
    /// The outcome of run(forward, backward), called with the kernel's arguments.
    template <class Run>
    outcome<T> outcome_by(const Run& run) const {
        return outcome<T>(whole, [&](auto forward, auto backward) {
            forward.sequences = backward.sequences = sequences();
            run(forward, backward);
        });
    }
    template <class Compute, class Device>
    outcome<T> outcome_on(Device& device) const {
        return outcome_by([&](const auto& forward, const auto& backward) {
            ht::kernel::attention<Device>::template forward<Compute>(device, forward);
            ht::kernel::attention<Device>::template backward<Compute>(device, backward);
        });
    }
    template <class Compute, class Device>
    outcome<T> math_outcome_on(Device& device) const {
        return outcome_by([&](const auto& forward, const auto& backward) {
            ht::kernel::attention_math<Device>::template forward<Compute>(device, forward);
            ht::kernel::attention_math<Device>::template backward<Compute>(device, backward);
        });
    }
};

/// A separate call for each sequence gives the same bits; queries that see no key are not compared.
template <class Compute, class T, class Device>
outcome<T> one_by_one(const packed_problem<T>& p, Device& device) {
    using attention = ht::kernel::attention<Device>;
    return outcome<T>(p.whole, [&](auto forward, auto backward) {
        const extent heads = p.whole.sizes.heads;
        for (extent i = 0; i < forward.logsumexp.size(); ++i)
            forward.logsumexp.data()[i] = i % 2 == 0 ? ht::detail::attention_masked_score : 0.0f;
        const auto clear = [](const ht::view<T, 4>& v) {
            for (extent i = 0; i < v.extent_of(1); ++i) {
                for (extent h = 0; h < v.extent_of(2); ++h) std::fill_n(&v(0, i, h, 0), v.extent_of(3), T(0.0f));
            }
        };
        clear(forward.o), clear(backward.dq);
        for (std::size_t s = 0; s < p.lengths.queries.size(); ++s) {
            const ht::reference::sequence_times at(p.sequences(), static_cast<extent>(s));
            const bool few = at.keys == 0 || p.whole.options.mask == ht::attention_mask::causal;
            const extent blind = few ? std::max<extent>(0, at.queries - at.keys) : 0;
            const extent first = at.first_query + blind, count = at.queries - blind;
            const auto queries = [&](const auto& v) { return ht::detail::times_of(v, first, count); };
            const guarded<float> sums(2 * heads * count);
            std::fill_n(sums.data(), sums.size(), 0.0f);
            const ht::view<float, 4> logsumexp(sums.data(), {1, heads, count, 2});
            attention::template forward<Compute>(
                device, ht::kernel::attention_forward<T>{queries(forward.q), at.of_keys(forward.k),
                                                         at.of_keys(forward.v), queries(forward.o), logsumexp,
                                                         forward.options});
            attention::template backward<Compute>(
                device, ht::kernel::attention_backward<T>{
                            queries(backward.q), at.of_keys(backward.k), at.of_keys(backward.v), queries(backward.o),
                            logsumexp, queries(backward.d_o), queries(backward.dq), at.of_keys(backward.dk),
                            at.of_keys(backward.dv), backward.options});
            for (extent h = 0; h < heads && count > 0; ++h)
                std::copy_n(&sums[2 * h * count], 2 * count, &forward.logsumexp(0, h, first, 0));
        }
    });
}

inline void compare(comparison& c, const doubles4& got, const doubles4& want, const doubles4& bound) {
    for (std::size_t i = 0; i < got.values.size(); ++i) c.expect(got.values[i], want.values[i], bound.values[i]);
}

template <class T>
bool is_finite(const ht::view<T, 4>& v) {
    bool finite = true;
    for (extent b = 0; b < v.extent_of(0); ++b) {
        for (extent t = 0; t < v.extent_of(1); ++t) {
            for (extent h = 0; h < v.extent_of(2); ++h) {
                for (extent d = 0; d < v.extent_of(3); ++d) finite = finite && ht::is_finite(v(b, t, h, d));
            }
        }
    }
    return finite;
}

inline double distance(const doubles4& a, const doubles4& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.values.size(); ++i) {
        const double error = std::fabs(a.values[i] - b.values[i]);
        if (!(error <= most)) most = error;
    }
    return most;
}

template <class T>
double scale_of(const problem<T>& p) {
    return ht::reference::attention_scale(p.options, p.sizes.head_size);
}

enum class bounds {
    telling,   ///< at least about half of the values exceed their bounds
    may_hide,  ///< gradients that are nearly or exactly zero, huge scores
};

template <class T>
void check_within(const outcome<T>& got, const attention_results& want, const attention_results& bound, bounds kind,
                  double scale) {
    CHECK(got.intact());
    CHECK((is_finite(got.o.view) && is_finite(got.d.q.view) && is_finite(got.d.k.view) && is_finite(got.d.v.view)));
    comparison o, dq, dk, dv, logsumexp;
    compare(o, exact(got.o.view), want.o, bound.o);
    compare(dq, exact(got.d.q.view), want.dq, bound.dq);
    compare(dk, exact(got.d.k.view), want.dk, bound.dk);
    compare(dv, exact(got.d.v.view), want.dv, bound.dv);
    for (extent i = 0; i < got.logsumexp.size() / 2; ++i) {
        logsumexp.expect(got.sum_of(i, scale), want.logsumexp[static_cast<std::size_t>(i)],
                         bound.logsumexp[static_cast<std::size_t>(i)]);
    }
    CHECK_MESSAGE(o.within(), "o: ", o);
    CHECK_MESSAGE(dq.within(), "dq: ", dq);
    CHECK_MESSAGE(dk.within(), "dk: ", dk);
    CHECK_MESSAGE(dv.within(), "dv: ", dv);
    CHECK_MESSAGE(logsumexp.within(), "logsumexp: ", logsumexp);
    if (kind == bounds::may_hide) return;
    CHECK_MESSAGE(o.telling(), "o: ", o);
    CHECK_MESSAGE(dv.telling(), "dv: ", dv);
    CHECK_MESSAGE(dq.telling(0.4), "dq: ", dq);  // their sums are of terms that cancel
    CHECK_MESSAGE(dk.telling(0.4), "dk: ", dk);
}

/// The error is at most twice that of the straightforward implementation (FlashAttention's rule), plus that of float sums.
template <class T>
void check_against_operations(const outcome<T>& got, const attention_results& want, const attention_results& naive,
                              const attention_results& slack) {
    CHECK(distance(exact(got.o.view), want.o) <= 2 * distance(naive.o, want.o) + slack.o.largest());
    CHECK(distance(exact(got.d.q.view), want.dq) <= 2 * distance(naive.dq, want.dq) + slack.dq.largest());
    CHECK(distance(exact(got.d.k.view), want.dk) <= 2 * distance(naive.dk, want.dk) + slack.dk.largest());
    CHECK(distance(exact(got.d.v.view), want.dv) <= 2 * distance(naive.dv, want.dv) + slack.dv.largest());
}

/// `test(check)` runs the problem on some devices, and calls check(outcome), which compares one result with the definition.
template <class Compute, class T, class Test>
void check_problem(const attention_sizes& sizes, layout way, bounds kind, double deviation, const Test& test,
                   ht::attention_strategy strategy = ht::attention_strategy::flash) {
    CAPTURE(sizes);
    const problem<T> p(sizes, way, deviation);
    const attention_inputs inputs = p.inputs();
    const attention_results want = attention_by_definition(inputs);
    const attention_results bound = attention_bounds(inputs, want, roundings_of<Compute, T>(strategy));
    // With few values either implementation may happen to be better; beyond float16's range the straightforward one has no result.
    const bool rule = !std::is_same_v<Compute, float> && sizes.keys >= 63 && sizes.queries >= 63 && deviation == 1;
    const attention_results naive = rule ? attention_by_operations<Compute>(inputs) : attention_results(sizes);
    const attention_results slack =
        rule ? attention_bounds(inputs, want, roundings_of<float, float>()) : attention_results(sizes);
    test(p, [&](const outcome<T>& got) {
        check_within(got, want, bound, kind, scale_of(p));
        if (rule) check_against_operations(got, want, naive, slack);
    });
}

/// Moves numbers by less than half a unit of tfloat32, in their bits, so that they round up or down to the original numbers.
inline void move_aside(const ht::view<float, 4>& v, random& data) {
    for (extent b = 0; b < v.extent_of(0); ++b) {
        for (extent t = 0; t < v.extent_of(1); ++t) {
            for (extent h = 0; h < v.extent_of(2); ++h) {
                for (extent d = 0; d < v.extent_of(3); ++d) {
                    const auto aside = static_cast<std::uint32_t>(data.below(2 * 0x1000 - 1)) - 0xfffu;
                    v(b, t, h, d) = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v(b, t, h, d)) + aside);
                }
            }
        }
    }
}

/// Products read floats rounded to tfloat32, once: operands that round to the same numbers give the same bits.
template <class Device>
void check_operands_are_rounded(const attention_sizes& sizes, layout way, Device& device) {
    CAPTURE(sizes);
    const problem<float> exact(sizes, way), moved(sizes, way), moved_d_o(sizes, way);
    random data(11);
    for (const auto& v : {moved.x.q.view, moved.x.k.view, moved.x.v.view, moved_d_o.d_o.view}) move_aside(v, data);
    const outcome<float> want = outcome_of<ht::tfloat32>(exact, device);
    CHECK(outcome_of<ht::tfloat32>(moved, device).same_bits(want));
    CHECK(outcome_of<ht::tfloat32>(moved_d_o, device).d.v.same_bits(want.d.v));
    CHECK(!moved.x.same_bits(exact.x));
}

/// The same with packed sequences; `heads` has a batch of 1, and its queries and keys are not read.
template <class Compute, class T, class Test>
void check_packed(const sequence_lengths& lengths, const attention_sizes& heads, layout way, bounds kind,
                  const Test& test, ht::attention_strategy strategy = ht::attention_strategy::flash) {
    const packed_problem<T> p(lengths, heads, way);
    CAPTURE(p.whole.sizes);
    const attention_inputs inputs = p.whole.inputs();
    const attention_results want = packed_attention_by_definition(inputs, lengths);
    const attention_results bound = packed_attention_bounds(inputs, lengths, roundings_of<Compute, T>(strategy));
    test(p, [&](const outcome<T>& got) { check_within(got, want, bound, kind, scale_of(p.whole)); });
}

/// Runs test(lengths, heads, way, kind) with packs of every kind: short and long sequences, empty ones, ones without
/// keys or without queries, more queries than keys. Small enough for an emulated device.
template <class Test>
void for_each_pack(const Test& test) {
    constexpr auto full = ht::attention_mask::full, causal = ht::attention_mask::causal;
    const sequence_lengths same{{1, 17, 5, 33}, {1, 17, 5, 33}}, one{{40}, {40}};
    const sequence_lengths holes{{0, 3, 4, 0, 20, 0}, {0, 0, 9, 5, 20, 0}};
    const sequence_lengths cached{{2, 1, 19, 9}, {30, 70, 19, 4}};
    // heads, groups, head_size
    for (const ht::attention_mask mask : {causal, full}) {
        test(same, attention_sizes{1, 0, 0, 2, 2, 16, mask}, layout::fused_chunks, bounds::may_hide);
        test(holes, attention_sizes{1, 0, 0, 2, 1, 24, mask}, layout::heads_first_chunks, bounds::may_hide);
        test(cached, attention_sizes{1, 0, 0, 1, 1, 20, mask}, layout::heads_first, bounds::may_hide);
    }
    test(one, attention_sizes{1, 0, 0, 2, 2, 32, causal}, layout::fused_chunks, bounds::telling);
}

}  // namespace support
