// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in tiles.hpp that are no templates.
#pragma once

#include <halftone/kernel/attention/cpu/tiles.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE attention_extents longest_sequence(const attention_extents& e, const packed_sequences& sequences) {
    attention_extents longest = e;
    longest.queries = std::min(e.queries, sequences.longest_queries);
    longest.keys = std::min(e.keys, sequences.longest_keys);
    return longest;
}

HALFTONE_OUT_OF_LINE sequence_place::sequence_place(const packed_sequences& sequences, extent s, attention_mask mask,
                                      const attention_extents& e)
    : first_fully_masked(sequences.query_offsets(s)), first_key(sequences.key_offsets(s)), extents(e) {
    extents.queries = sequences.query_offsets(s + 1) - first_fully_masked;
    extents.keys = sequences.key_offsets(s + 1) - first_key;
    const bool few = mask == attention_mask::causal || extents.keys == 0;
    const extent fully_masked = few ? std::max<extent>(0, extents.queries - extents.keys) : 0;
    first_query = first_fully_masked + fully_masked;
    extents.queries -= fully_masked;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
