// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in backward.hpp that are no templates.
#pragma once

#include <halftone/kernel/attention/cpu/backward.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE attention_backward_layout::attention_backward_layout(const attention_extents& e, const detail::product_unit& u,
                                                            attention_mask mask)
    : attention_layout(e, u, mask) {
    block_keys = attention_backward_keys / (unit.element == 2 ? 1 : 2);
    key_blocks = ceil_div(e.keys, block_keys);
    parts = parts_of(e.batch * e.groups, key_blocks, 2);
    query_blocks = ceil_div(e.queries, attention_backward_queries);
    query_panels = ceil_div(e.queries, unit.columns);
    padded_queries = query_panels * unit.columns;
    panel_sums = padded_rows(e.head_size) * unit.columns;
    member_sums = query_panels * panel_sums;
    query_bytes = unit.panel_bytes(std::min(attention_backward_queries, e.queries));

    const extent members = e.members(), rows = std::min(block_keys, e.keys);
    queries_t = take_panels(members * query_panels, head_bytes);
    gradients_t = take_panels(members * query_panels, head_bytes);
    queries = take_panels(members * query_blocks * head_panels, query_bytes);
    gradients = take_panels(members * query_blocks * head_panels, query_bytes);
    maxima = scratch.take_floats(members * padded_queries);
    logs = scratch.take_floats(members * padded_queries);
    dots = scratch.take_floats(members * padded_queries);
    dk = scratch.take_floats(padded_rows(rows) * padded_width());
    dv = scratch.take_floats(padded_rows(rows) * padded_width());
    keys = take_block(rows);
    values = take_block(rows);
    keys_t = take_block(e.head_size);
    weights = take_block(rows);
    score_gradients = take_block(rows);
    // With masked keys, the buffer later also holds a panel of queries.
    panel = take_panels(1, std::max(unit.panel_bytes(rows + 1), mask == attention_mask::causal ? query_bytes : 0));
    scores = scratch.take_floats(padded_rows(rows) * unit.columns);
    weight_gradients = scratch.take_floats(padded_rows(rows) * unit.columns);
    // The last in the layout: packed sequences of one part do not have it, while others with several parts do.
    dq = parts == 1 ? scratch.take_floats(members * member_sums) : 0;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
