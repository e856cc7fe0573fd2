// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention on the CPU with functions of the scores (score_mod/score_mod.hpp): the tasks and bodies of
/// forward.hpp, with a body for the functions between the products and the running softmax. Tiles and panels whose keys are
/// hidden from all queries of a group are skipped.
#pragma once

#include <halftone/kernel/attention/cpu/forward.hpp>
#include <halftone/kernel/attention/cpu/mod.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The layout of scratch memory, with a panel of values in which hidden rows are replaced by zeros.
struct modified_forward_layout : attention_forward_layout {
    modified_forward_layout(const attention_extents& e, const detail::product_unit& u)
        : attention_forward_layout(e, u, attention_mask::full) {
        spare = take_panels(1, value_bytes);
    }
};

template <class T>
struct modified_attention_forward_task : attention_forward_task<T> {
    const attention_mod_bodies& mod;

    void operator()(extent index, std::byte* scratch) const {
        const attention_extents& e = this->at.extents;
        const extent part = this->at.parts - 1 - index % this->at.parts;
        const extent batch = index / this->at.parts / e.heads, head = index / this->at.parts % e.heads;
        const extent first = part * this->at.part_queries, last = std::min(first + this->at.part_queries, e.queries);
        this->pack(batch, head / e.members(), e.keys, scratch);
        this->at.unit.begin_worker();
        for (extent i = first; i < last; i += attention_query_rows)
            run_block({batch, head, i, std::min(attention_query_rows, last - i), 0, e.keys}, scratch);
        this->at.unit.end_worker();
    }

  private:
    /// The running sums of a group of queries.
    struct group_sums {
        float* outputs;
        attention_row_state state;
        bool begun = false;
    };

    /// Computes a block of queries of one head, over all keys.
    void run_block(const attention_block& block, std::byte* scratch) const {
        const auto& at = this->at;
        this->engine.packing.pack_block(vector_at(this->a.q, block.batch, block.first_query, block.head),
                                        this->a.q.stride_of(1), 1, block.queries, at.extents.head_size,
                                        scratch + at.queries);
        group_sums sums[ceil_div(attention_query_rows, attention_group)];
        for (extent j = 0; j < block.keys; j += attention_key_columns) {
            for (extent i = 0; i < block.queries; i += at.group) {
                group_sums& group = sums[i / at.group];
                group.outputs = reinterpret_cast<float*>(scratch + at.outputs) + i * at.padded_width();
                attention_block tile = block;
                tile.first_query += i, tile.queries = std::min(at.group, block.queries - i);
                tile.first_key = j, tile.keys = std::min(attention_key_columns, block.keys - j);
                if (!mod.hides_all(tile)) run_tile(tile, scratch + at.queries + at.row_bytes(i), group, scratch);
            }
        }
        for (extent i = 0; i < block.queries; i += at.group)
            finish(block, i, std::min(at.group, block.queries - i), sums[i / at.group]);
    }

    /// Computes the scores of a tile, panel by panel, and then the sums, from the first panel with visible keys to the
    /// last.
    void run_tile(attention_block tile, const std::byte* queries, group_sums& group, std::byte* scratch) const {
        const auto& at = this->at;
        const detail::product_unit& unit = at.unit;
        auto* scores = reinterpret_cast<float*>(scratch + at.scores);
        const std::byte* keys = scratch + at.keys + at.head_bytes * static_cast<std::size_t>(tile.first_key / unit.columns);
        extent begin = tile.keys, end = 0;
        for (extent c = 0; c < tile.keys; c += unit.columns, keys += at.head_bytes) {
            attention_block panel = tile;
            panel.first_key += c, panel.keys = std::min<extent>(unit.columns, tile.keys - c);
            if (mod.hides_all(panel)) {
                for (extent i = 0; i < tile.queries; ++i) std::fill_n(scores + i * at.tile_stride + c, unit.columns, 0.0f);
                continue;
            }
            unit.multiply(tile.queries, unit.padded(at.extents.head_size), queries, keys, scores + c, at.tile_stride, false,
                          nullptr);
            begin = std::min(begin, c), end = c + panel.keys;
        }
        if (begin >= end) return;
        const extent column = tile.first_key + begin, row_of_values = column % attention_key_columns;
        tile.first_key = column, tile.keys = end - begin, scores += begin;
        // A named variable, because nvcc's front end loses a parenthesis if the braces are an argument.
        const attention_mod_tile modified{tile, scores, at.tile_stride,
                                          attention_scale(this->a.options, at.extents.head_size)};
        const bool found = mod.modify(mod.expressions, modified);
        this->engine.softmax({.rows = tile.queries,
                              .columns = tile.keys,
                              .padded_columns = unit.padded(tile.keys),
                              .visible = tile.keys,
                              .scores = scores,
                              .stride = at.tile_stride,
                              .scale = log2_of_e,
                              .weights = scratch + at.weights,
                              .first = !group.begun,
                              .state = &group.state,
                              .outputs = group.outputs,
                              .output_stride = at.padded_width()});
        if (mod.dropout.is_there()) drop(tile, scratch);
        const std::byte* values =
            scratch + at.values + at.panel_rows_bytes(row_of_values) +
            at.value_bytes * static_cast<std::size_t>(column / attention_key_columns * at.head_panels);
        // A unit may process keys beyond the last one.
        const extent depth = unit.run(tile.keys);
        for (extent d = 0; d < at.padded_width(); d += unit.columns, values += at.value_bytes) {
            if ((found || depth > tile.keys) && any_not_finite_in_panel(this->engine, values, 0, depth)) {
                multiply_where_seen(unit, tile.queries, tile.keys, scratch + at.weights, values, group.outputs + d,
                                    at.padded_width(), group.begun, scratch + at.spare, [&](extent i, extent k) {
                                        return !is_hidden_score(scores[i * at.tile_stride + k]);
                                    });
            } else {
                unit.multiply(tile.queries, depth, scratch + at.weights, values, group.outputs + d, at.padded_width(),
                              group.begun, nullptr);
            }
        }
        group.begun = true;
    }

    /// Sets dropped weights of the tile to zero.
    void drop(const attention_block& tile, std::byte* scratch) const {
        const attention_extents& e = this->at.extents;
        const auto element = static_cast<std::size_t>(this->at.unit.element);
        for (extent i = 0; i < tile.queries; ++i) {
            std::byte* const row = scratch + this->at.weights + this->at.row_bytes(i);
            mod.dropout.for_dropped(pair_number(tile.batch * e.heads + tile.head, e.queries, tile.first_query + i, e.keys,
                                                tile.first_key),
                                    tile.keys, [&](extent k) {
                                        std::memset(row + static_cast<std::size_t>(k) * element, 0, element);
                                    });
        }
    }

    /// Divides the sums of queries [first, first + rows) of the block; the result of a query that sees no key is zero.
    void finish(const attention_block& block, extent first, extent rows, const group_sums& group) const {
        const auto& a = this->a;
        const extent width = this->at.extents.head_size, query = block.first_query + first;
        T* const o = vector_at(a.o, block.batch, query, block.head);
        float* const logsumexp =
            a.logsumexp.data() == nullptr ? nullptr : &a.logsumexp(block.batch, block.head, query, 0);
        if (group.begun && mod.dropout.is_there()) {
            for (extent i = 0; i < rows * this->at.padded_width(); ++i) group.outputs[i] *= mod.dropout.draw.scale;
        }
        if (group.begun)
            this->engine.finish(rows, width, group.outputs, this->at.padded_width(), group.state, o, a.o.stride_of(1),
                                logsumexp);
        for (extent i = 0; i < rows; ++i) {
            if (group.begun && group.state.sums[i] != 0) continue;
            std::fill_n(o + i * a.o.stride_of(1), width, T(0.0f));
            if (logsumexp != nullptr) logsumexp[2 * i] = attention_masked_score, logsumexp[2 * i + 1] = 0;
        }
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
