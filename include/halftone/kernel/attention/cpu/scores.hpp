// SPDX-License-Identifier: MIT
/// \file
/// Tiles of attention's scores on the CPU: the arguments of the SIMD bodies in tiles.hpp.
#pragma once

#include <algorithm>

#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Block of queries and keys of the forward pass, so that the keys and values of a tile stay in the L2 cache; within a
/// block one group of queries is processed after the other, whose scores and weights stay in the L1 cache.
inline constexpr extent attention_query_rows = 96, attention_key_columns = 256;
/// The number of queries in a group, rounded up to whole rows of a product unit; and an upper bound of the result.
inline constexpr extent attention_group = 24, attention_group_rows = 32;
/// Block of keys (half of it where they are packed as floats) and queries of the backward pass; within a block one
/// panel of queries is processed after the other.
inline constexpr extent attention_backward_keys = 192, attention_backward_queries = 128;
static_assert(attention_key_columns <= panel_depth && attention_backward_keys <= panel_depth &&
              attention_backward_queries <= panel_depth);

inline constexpr float attention_lanes[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                              16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

/// The running softmax of a group of queries.
struct attention_row_state {
    float maxima[attention_group_rows], sums[attention_group_rows];
};

/// A tile of scores, (rows, columns): queries by keys.
struct attention_score_tile {
    extent rows, columns;
    extent padded_columns;  ///< weights from `columns` to here are zero
    extent visible;         ///< row i sees the first visible + i columns
    float* scores;          ///< may be read and written up to whole panels
    extent stride;
    float scale;    ///< multiplied by log2(e)
    void* weights;  ///< an a block of the products' element type
    bool first;     ///< the first tile: state and outputs are uninitialised
    attention_row_state* state;
    float* outputs;  ///< (rows, output_stride)
    extent output_stride;

    extent visible_columns(extent row) const { return std::clamp<extent>(visible + row, 0, columns); }
};

/// A panel of transposed scores, (rows, columns of a panel): keys by queries.
struct attention_score_gradient_tile {
    extent rows;           ///< keys that some query of the panel sees
    extent block_rows;     ///< keys that some query of the block sees: from `rows` on weights and ds are zero
    extent padded_rows;    ///< the panel is zero from `rows` to here
    extent queries;        ///< queries in the panel, without padding
    extent first_visible;  ///< the first query to see key i is first_visible + i
    const float* scores;   ///< (rows, columns)
    const float* weight_gradients;  ///< (rows, columns)
    const float *maxima, *logs, *dots;  ///< (columns), from attention_query_terms
    float scale;                    ///< multiplied by log2(e)
    void *weights, *score_gradients;         ///< a blocks, at the panel's first column
    void* panel;                    ///< a panel of b: the score gradients again
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
