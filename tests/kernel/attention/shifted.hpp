// SPDX-License-Identifier: MIT
/// \file
/// Adding a constant to all scores of a query changes none of its results: if scores are exact, those of a million and more give
/// the same results as those near zero.
///
///     support::check_shifted<bfloat16, bfloat16>(sizes, 0.3f, run);   // run(problem) gives an outcome
#pragma once

#include <cmath>

#include "kernel/attention/checks.hpp"

namespace support {

/// Small numbers with few bits: sums of their products are exact in float, even near 2^20, where floats are 1/8 apart.
template <class T>
void fill_with_halves(const ht::view<T, 4>& v, random& data, int largest) {
    for (extent b = 0; b < v.extent_of(0); ++b) {
        for (extent t = 0; t < v.extent_of(1); ++t) {
            for (extent h = 0; h < v.extent_of(2); ++h) {
                for (extent d = 0; d < v.extent_of(3); ++d) {
                    const auto n = static_cast<int>(data.below(static_cast<std::uint64_t>(2 * largest + 1))) - largest;
                    v(b, t, h, d) = T(static_cast<float>(n) / 2);
                }
            }
        }
    }
}

/// The first columns of q and k add 2^20 to every score; results are compared with those for zeros there, within their bounds.
template <class Compute, class T, class Run>
void check_shifted(const attention_sizes& sizes, float scale, ht::attention_strategy strategy, const Run& run) {
    CAPTURE(sizes);
    CAPTURE(scale);
    problem<T> p(sizes, layout::heads_first_chunks, 1, scale);
    random data(21);
    fill_with_halves(p.x.q.view, data, 2);
    fill_with_halves(p.x.k.view, data, 2);
    const auto set_first = [&](float value) {
        for (const auto& x : {p.x.q.view, p.x.k.view}) {
            for (extent b = 0; b < x.extent_of(0); ++b) {
                for (extent t = 0; t < x.extent_of(1); ++t) {
                    for (extent h = 0; h < x.extent_of(2); ++h) x(b, t, h, 0) = T(value);
                }
            }
        }
    };
    set_first(0);
    const attention_inputs inputs = p.inputs();
    const attention_results want = attention_by_definition(inputs);
    const attention_results bound = attention_bounds(inputs, want, roundings_of<Compute, T>(strategy));
    set_first(1024);
    const outcome<T> got = run(p);

    CHECK(got.intact());
    comparison o, dq, dk, dv, logs;
    compare(o, exact(got.o.view), want.o, bound.o);
    compare(dv, exact(got.d.v.view), want.dv, bound.dv);
    // All columns of dq and dk except the first, which is 2^10 times the sum of the score gradients.
    const auto compare_rest = [](comparison& c, const doubles4& x, const doubles4& wanted, const doubles4& bounds) {
        for (std::size_t i = 0; i < x.values.size(); ++i) {
            if (i % static_cast<std::size_t>(x.shape[3]) != 0)
                c.expect(x.values[i], wanted.values[i], bounds.values[i]);
        }
    };
    compare_rest(dq, exact(got.d.q.view), want.dq, bound.dq);
    compare_rest(dk, exact(got.d.k.view), want.dk, bound.dk);
    // Scores are exact, and so is the largest; the error of the logarithm does not depend on it.
    const double factor = scale_of(p), shift = factor * 1024 * 1024;
    for (std::size_t i = 0; i < want.logsumexp.size(); ++i) {
        const auto at = static_cast<extent>(2 * i);
        const double largest = static_cast<double>(got.logsumexp[at]) * factor - shift;
        logs.expect(static_cast<double>(got.logsumexp[at + 1]), want.logsumexp[i] - largest, bound.logsumexp[i]);
    }
    CHECK_MESSAGE(o.within(), "o: ", o);
    CHECK_MESSAGE(dq.within(), "dq: ", dq);
    CHECK_MESSAGE(dk.within(), "dk: ", dk);
    CHECK_MESSAGE(dv.within(), "dv: ", dv);
    CHECK_MESSAGE(logs.within(), "logarithms: ", logs);
}

}  // namespace support
