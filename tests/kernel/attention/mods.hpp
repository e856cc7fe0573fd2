// SPDX-License-Identifier: MIT
/// \file
/// Attention with functions of the scores: the definition, bounds by running error analysis of their expression, and the visible
/// pairs.
///
///     support::check_mod<bfloat16, bfloat16>(sizes, layout, kind, run, ht::sliding_window{5});
#pragma once

#include <halftone/kernel/attention/score_mod/reference.hpp>

#include "kernel/attention/hidden.hpp"
#include "kernel/map/bounded.hpp"

namespace support {

template <class E>
attention_results modified_by_definition(const attention_inputs& x, const ht::kernel::attention_mod<E>& mod) {
    attention_results want(x.sizes);
    const attention_sizes& s = x.sizes;
    ht::reference::attention(x.q.view(), x.k.view(), x.v.view(), want.o.view(),
                             ht::view<double, 3>(want.logsumexp.data(), {s.batch, s.heads, s.queries}), x.options, mod);
    ht::reference::attention_gradients(x.q.view(), x.k.view(), x.v.view(), x.d_o.view(), want.dq.view(), want.dk.view(),
                                       want.dv.view(), x.options, mod);
    return want;
}

/// Scores and their errors: the error of a product propagates through the expression, operation by operation.
template <class E>
score_bounds modified_score_bounds(const attention_inputs& x, const ht::kernel::attention_mod<E>& mod, extent b, extent h,
                                   extent i) {
    const ht::reference::seen_scores seen(x.q.view(), x.k.view(), b, i, h, x.options, mod);
    score_bounds to;
    to.keys = seen.keys, to.p = seen.weights, to.slopes = seen.slopes, to.factors = seen.factors, to.logsumexp = seen.logsumexp;
    for (const extent j : seen.keys) {
        double product = 0;
        const double error = product_error(x, b, h, i, j, product);
        const float known[] = {0, static_cast<float>(b), static_cast<float>(h), static_cast<float>(i),
                               static_cast<float>(j)};
        const bounded arguments[] = {{product, error + 2 * u * (std::fabs(product) + error)}, known[1], known[2], known[3],
                                     known[4]};
        using bound = ht::detail::bound_lookups<0b11110>;
        const bounded score = ht::scalar::evaluate(bound::of(mod.score, known), arguments),
                      slope = ht::scalar::evaluate(bound::of(ht::derivative<0>(mod.score), known), arguments);
        to.scores.push_back(score.value), to.errors.push_back(score.error), to.slope_errors.push_back(slope.error);
    }
    return to;
}

/// run(problem, mod, check) calls check(outcome).
template <class Compute, class T, class Run, class... F>
void check_mod(const attention_sizes& sizes, layout way, bounds kind, const Run& run, const F&... functions) {
    CAPTURE(sizes);
    const problem<T> p(sizes, way);
    auto mod = ht::detail::attention_mod_of(p.options, sizes.queries, sizes.keys, functions...);
    // In memory that a device can read: the seed, and the pass.
    const guarded<std::uint64_t> drawn(std::vector<std::uint64_t>{7, 3});
    if (const float share = ht::detail::dropout_of(functions...); share > 0) {
        const auto* const record = reinterpret_cast<const ht::kernel::random_record*>(drawn.data());
        mod.dropout.draw = ht::kernel::dropout_draw::of(record, 5, share);
    }
    const attention_inputs inputs = p.inputs();
    const attention_results want = modified_by_definition(inputs, mod);
    const attention_results bound =
        attention_bounds_by(inputs, want, roundings_of<Compute, T>(), [&](extent b, extent h, extent i) {
            return modified_score_bounds(inputs, mod, b, h, i);
        });
    run(p, mod, [&](const outcome<T>& got) { check_within(got, want, bound, kind, 1); });
}

/// Computed by the device's flash kernels.
template <class Compute, class T, class Device, class Mod>
outcome<T> modified_outcome(const problem<T>& p, Device& device, const Mod& mod) {
    return outcome<T>(p, [&](const auto& forward, const auto& backward) {
        ht::kernel::attention<Device>::template forward<Compute>(device, forward, mod);
        ht::kernel::attention<Device>::template backward<Compute>(device, backward, mod);
    });
}

/// For functions that depend on neither batch nor head.
template <class E>
seen_pairs seen_of(const attention_sizes& s, const ht::kernel::attention_mod<E>& mod) {
    seen_pairs seen(s.queries, s.keys);
    for (extent i = 0; i < s.queries; ++i) {
        for (extent j = 0; j < s.keys; ++j) {
            const double x[] = {0, 0, 0, static_cast<double>(i), static_cast<double>(j)};
            seen.sees[static_cast<std::size_t>(i * s.keys + j)] = ht::scalar::evaluate(mod.score, x) >= -3e38;
        }
    }
    return seen;
}

}  // namespace support
