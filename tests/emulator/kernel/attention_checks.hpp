// SPDX-License-Identifier: MIT
/// \file
/// Tests of attention's kernels on the emulated GPU, for all types of products.
///
///     emulator::check_attention<bfloat16, bfloat16>(sizes, support::layout::fused_chunks);
#pragma once

#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/attention/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/attention/checks.hpp"

namespace halftone::emulator {

template <class Compute, class T>
void check_attention(const support::attention_sizes& sizes, support::layout way,
                     support::bounds kind = support::bounds::telling, double deviation = 1, int architecture = 80,
                     const options& how = {}) {
    support::check_problem<Compute, T>(sizes, way, kind, deviation,
                                       [&](const support::problem<T>& p, const auto& check) {
                                           device on(how, simt::architecture_of(architecture));
                                           check(support::outcome_of<Compute>(p, on));
                                           CHECK(on.count().bank_conflicts == 0);
                                       });
}

/// On matrix units that truncate addends, as those of a GPU do.
template <class Compute, class T>
void check_truncated_attention() {
    const options how{.check = checking::values_only, .mma = accumulation::truncating};
    const auto check = [&](int architecture, const support::attention_sizes& sizes) {
        check_attention<Compute, T>(sizes, support::layout::heads_first_chunks, support::bounds::telling, 1,
                                    architecture, how);
    };
    check(80, {1, 37, 70, 1, 1, 40, attention_mask::causal});
    check(90, {1, 33, 65, 1, 1, 128, attention_mask::full});
    check(80, {1, 17, 34, 1, 1, 256, attention_mask::causal});
}

/// Each sequence has the same bits as in a call of its own.
template <class Compute, class T>
void check_packed_attention(const support::sequence_lengths& lengths, const support::attention_sizes& heads,
                            support::layout way, support::bounds kind) {
    support::check_packed<Compute, T>(lengths, heads, way, kind,
                                      [](const support::packed_problem<T>& p, const auto& check) {
                                          device on;
                                          const auto got = p.template outcome_on<Compute>(on);
                                          check(got);
                                          CHECK(got.same_bits(support::one_by_one<Compute>(p, on)));
                                      });
}

/// Keys are unit vectors and each query is a large multiple of one that it sees. So its result is that key's value, that
/// value's gradient is the result's, and the gradients of scores are 0. All numbers are integers.
template <class Compute, class T>
void check_exact_attention(const support::sequence_lengths& lengths, extent head_size, int architecture) {
    CAPTURE(head_size);
    support::packed_problem<T> p(lengths, {1, 0, 0, 2, 1, head_size, attention_mask::causal},
                                 support::layout::heads_first_chunks);
    p.whole.options.scale = 1;
    support::random data(7);
    for (const auto& v : {p.whole.x.q.view, p.whole.x.k.view, p.whole.x.v.view, p.whole.d_o.view}) {
        const bool is_code = v.data() == p.whole.x.q.view.data() || v.data() == p.whole.x.k.view.data();
        for (extent i = 0; i < v.extent_of(1); ++i) {
            for (extent h = 0; h < v.extent_of(2); ++h) {
                const std::vector<T> values = data.integers<T>(head_size, 4);
                for (extent d = 0; d < head_size; ++d)
                    v(0, i, h, d) = is_code ? T(0.0f) : values[static_cast<std::size_t>(d)];
            }
        }
    }
    support::attention_results want(p.whole.sizes);
    for (extent s = 0; s < p.sequences().count(); ++s) {
        const reference::sequence_times at(p.sequences(), s);
        for (extent j = 0; j < at.keys; ++j)
            p.whole.x.k.view(0, at.first_key + j, 0, (j * 3 + 1) % head_size) = T(1.0f);
        for (extent i = 0; i < at.queries; ++i) {
            for (extent h = 0; h < 2; ++h) {
                const extent chosen = (7 * i + 3 * h) % (i + 1 + at.keys - at.queries);
                p.whole.x.q.view(0, at.first_query + i, h, (chosen * 3 + 1) % head_size) = T(128.0f);
                want.logsumexp[static_cast<std::size_t>(h * p.whole.sizes.queries + at.first_query + i)] = 128;
                for (extent d = 0; d < head_size; ++d) {
                    want.o.row(0, at.first_query + i, h)[d] =
                        static_cast<double>(static_cast<float>(p.whole.x.v.view(0, at.first_key + chosen, 0, d)));
                    want.dv.row(0, at.first_key + chosen, 0)[d] +=
                        static_cast<double>(static_cast<float>(p.whole.d_o.view(0, at.first_query + i, h, d)));
                }
            }
        }
    }
    device on({}, simt::architecture_of(architecture));
    support::check_within(p.template outcome_on<Compute>(on), want, support::attention_results(p.whole.sizes),
                          support::bounds::may_hide, 1);
}

/// A test for check_kernels: results are within bounds, with the same bits in every schedule.
template <class Compute, class T>
auto same_in_all_schedules(const support::problem<T>& p, int architecture = 80) {
    const support::attention_inputs inputs = p.inputs();
    const support::attention_results want = support::attention_by_definition(inputs);
    const support::attention_results bound =
        support::attention_bounds(inputs, want, support::roundings_of<Compute, T>());
    device on({}, simt::architecture_of(architecture));
    const std::shared_ptr<const support::outcome<T>> first(
        new support::outcome<T>(support::outcome_of<Compute>(p, on)));
    support::check_within(*first, want, bound, support::bounds::telling, support::scale_of(p));
    return [&p, first](device& d) { return support::outcome_of<Compute>(p, d).same_bits(*first); };
}

}  // namespace halftone::emulator
