// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in math.hpp that are no templates.
#pragma once

#include <halftone/kernel/attention/cpu/math.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

HALFTONE_OUT_OF_LINE void attention_rows<cpu>::mask_scores(cpu& device, const attention_visibility& visible, float value,
                                             const view<float, 2>& x) {
    for_rows(device, visible, x.extent_of(0), [&](extent i, extent first, extent last) {
        float* const row = x.data() + i * visible.keys;
        std::fill(row, row + first, value);
        std::fill(row + last, row + visible.keys, value);
    });
}

HALFTONE_OUT_OF_LINE void attention_rows<cpu>::logsumexp(cpu& device, const attention_visibility& visible,
                                           const view<float, 2>& scores, const view<float, 2>& to) {
    for_rows(device, visible, visible.queries, [&](extent i, extent first, extent last) {
        const float* const row = scores.data() + i * visible.keys;
        to(i, 0) = first == last ? detail::attention_masked_score : *std::max_element(row + first, row + last);
    });
}

HALFTONE_OUT_OF_LINE void attention_rows<cpu>::finish_logsumexp(cpu& device, const attention_visibility& visible,
                                                  const view<float, 2>& weights, const view<float, 2>& to) {
    for_rows(device, visible, visible.queries, [&](extent i, extent first, extent last) {
        const float* const row = weights.data() + i * visible.keys;
        to(i, 1) = first == last ? 0.0f : -std::log(*std::max_element(row + first, row + last));
    });
}

HALFTONE_OUT_OF_LINE attention_rows<cpu>::interval attention_rows<cpu>::seen_by(const attention_visibility& visible, extent query) {
    interval seen{0, visible.keys};
    extent first_query = 0, queries = visible.queries;
    if (visible.sequences.are_there()) {
        const auto& [query_offsets, key_offsets, longest_queries, longest_keys] = visible.sequences;
        // If several sequences begin at one place, all but the last are empty.
        const std::int32_t* const first = query_offsets.data();
        const extent s = std::upper_bound(first, first + visible.sequences.count(), query) - first - 1;
        first_query = query_offsets(s), queries = query_offsets(s + 1) - first_query;
        seen = {key_offsets(s), key_offsets(s + 1)};
    }
    if (visible.mask == attention_mask::causal) {
        const extent last = seen.last - queries + (query - first_query) + 1;
        seen.last = std::max(seen.first, last);
    }
    return seen;
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
