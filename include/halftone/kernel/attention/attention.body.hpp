// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in attention.hpp that are no templates.
#pragma once

#include <halftone/kernel/attention/attention.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE void check_sequences(const packed_sequences& s, const attention_extents& e) {
    if (e.batch != 1) fail<shape_error>("attention: packed sequences in a batch of ", e.batch, "; expected 1");
    if (s.query_offsets.extent_of(0) < 1)
        fail<shape_error>("attention: query_offsets is empty; expected sequences + 1");
    kernel::expect("attention", "query_offsets", s.query_offsets, {s.query_offsets.extent_of(0)});
    kernel::expect("attention", "key_offsets", s.key_offsets, {s.query_offsets.extent_of(0)});
    if (s.longest_queries < 0 || s.longest_keys < 0) {
        fail<shape_error>("attention: the longest sequence has ", s.longest_queries, " queries and ", s.longest_keys,
                          " keys; expected no negative number");
    }
}

HALFTONE_OUT_OF_LINE void check_offsets(const char* what, const const_view<std::int32_t, 1>& offsets, extent whole, extent longest) {
    const extent last = offsets.extent_of(0) - 1;
    if (offsets(0) != 0 || offsets(last) != whole) {
        fail<shape_error>("attention: the offsets of ", what, " go from ", offsets(0), " to ", offsets(last),
                          "; expected 0 to ", whole);
    }
    for (extent s = 0; s < last; ++s) {
        const extent length = extent{offsets(s + 1)} - offsets(s);
        if (length < 0 || length > longest) {
            fail<shape_error>("attention: the offsets give sequence ", s, " ", length, " ", what, "; expected 0 to ",
                              longest, ", the length stated of the longest");
        }
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
