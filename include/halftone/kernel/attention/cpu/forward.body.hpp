// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in forward.hpp that are no templates.
#pragma once

#include <halftone/kernel/attention/cpu/forward.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE attention_forward_layout::attention_forward_layout(const attention_extents& e, const detail::product_unit& u,
                                                          attention_mask mask)
    : attention_layout(e, u, mask) {
    const extent blocks = ceil_div(e.queries, attention_query_rows);
    const extent blocks_each = ceil_div(blocks, most_parts(e));
    parts = ceil_div(blocks, blocks_each);
    part_queries = blocks_each * attention_query_rows;

    group = round_up(attention_group, unit.rows);
    const extent key_panels = ceil_div(e.keys, unit.columns), rows = std::min(e.queries, attention_query_rows);
    tile_columns = std::min(attention_key_columns, key_panels * unit.columns);
    tile_stride = tile_columns + 16;  // not a power of two, so that rows fall into different cache sets
    value_bytes = unit.panel_bytes(tile_columns);
    keys = take_panels(key_panels, head_bytes);
    values = take_panels(ceil_div(e.keys, attention_key_columns) * head_panels, value_bytes);
    queries = take_block(rows);
    weights = take_block(group);
    scores = scratch.take_floats(padded_rows(group) * tile_stride);
    outputs = scratch.take_floats(padded_rows(rows) * padded_width());
    spare = mask == attention_mask::causal ? take_panels(1, value_bytes) : 0;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
