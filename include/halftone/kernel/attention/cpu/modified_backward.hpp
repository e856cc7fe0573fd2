// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention on the CPU with functions of the scores (score_mod/score_mod.hpp): the tasks and
/// bodies of backward.hpp. A body for the functions recomputes the scores from the products, and turns the gradients of
/// weights into those of the products; the rest is the same as without functions. Panels of queries that see no key of
/// a block are skipped.
#pragma once

#include <halftone/kernel/attention/cpu/backward.hpp>
#include <halftone/kernel/attention/cpu/mod.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The terms that backward.hpp subtracts from the gradients: zeros, because the body for functions has already
/// subtracted them.
inline constexpr float attention_no_terms[32] = {};

struct modified_backward_layout : attention_backward_layout {
    std::size_t hidden;  ///< (keys of a block, attention_backward_queries): 1 where a pair is hidden
    std::size_t spare;   ///< memory for a panel whose k runs over a block of queries
    std::size_t dropped;  ///< (columns of a panel, keys of a block): 1 where a weight is dropped

    modified_backward_layout(const attention_extents& e, const detail::product_unit& u)
        : attention_backward_layout(e, u, attention_mask::full) {
        hidden = scratch.take(static_cast<std::size_t>(std::min(block_keys, e.keys) * attention_backward_queries));
        spare = take_panels(1, query_bytes);
        dropped = scratch.take(static_cast<std::size_t>(std::min(block_keys, e.keys) * unit.columns));
    }
};

template <class T>
struct modified_attention_backward_task : attention_backward_task<T> {
    const attention_mod_bodies& mod;
    const modified_backward_layout& room;

    void operator()(extent index, std::byte* scratch) const {
        const auto& at = room;
        const attention_extents& e = at.extents;
        const extent part = index % at.parts, group = index / at.parts % e.groups, batch = index / at.parts / e.groups;
        float* const dq = this->partials == nullptr ? this->floats(scratch + at.dq)
                                                    : this->partials + index * at.part_sums();
        std::memset(dq, 0, static_cast<std::size_t>(at.part_sums()) * sizeof(float));
        this->pack_queries(batch, group, scratch);
        at.unit.begin_worker();
        for (extent block = part; block < at.key_blocks; block += at.parts)
            run_keys(batch, group, block * at.block_keys, dq, scratch);
        at.unit.end_worker();
        if (this->partials == nullptr) this->store_queries(batch, group, dq);
    }

  private:
    /// The keys of one block: computes their dk and dv, and adds their contribution to dq.
    void run_keys(extent batch, extent group, extent first, float* dq, std::byte* scratch) const {
        const auto& at = room;
        const auto& a = this->a;
        const attention_extents& e = at.extents;
        const extent rows = std::min(at.block_keys, e.keys - first), stride = at.padded_width();
        const auto pack = [&](const const_view<T, 4>& x, std::size_t to) {
            this->engine.packing.pack_block(vector_at(x, batch, first, group), x.stride_of(1), 1, rows, e.head_size,
                                            scratch + to);
        };
        pack(a.k, at.keys);
        pack(a.v, at.values);
        this->pack_transposed_keys(batch, group, first, rows, scratch);
        const auto bytes = static_cast<std::size_t>(at.padded_rows(rows) * stride) * sizeof(float);
        std::memset(scratch + at.dk, 0, bytes);
        std::memset(scratch + at.dv, 0, bytes);
        for (extent member = 0; member < e.members(); ++member) {
            for (extent i = 0; i < e.queries; i += attention_backward_queries) {
                const attention_block block{batch, group * e.members() + member, i,
                                            std::min(attention_backward_queries, e.queries - i), first, rows};
                if (!mod.hides_all(block)) run_block(block, group, member, dq + member * at.member_sums, scratch);
            }
        }
        this->engine.store(rows, e.head_size, this->floats(scratch + at.dk), stride, attention_scale(a.options, e.head_size),
                           vector_at(a.dk, batch, first, group), a.dk.stride_of(1));
        this->engine.store(rows, e.head_size, this->floats(scratch + at.dv), stride, mod.dropout.draw.scale,
                           vector_at(a.dv, batch, first, group), a.dv.stride_of(1));
    }

    /// A block of keys against a block of queries, panel by panel.
    void run_block(const attention_block& block, extent group, extent member, float* dq, std::byte* scratch) const {
        const extent columns = room.unit.columns;
        extent begin = block.queries, end = 0;
        bool found = false;
        for (extent c = 0; c < block.queries; c += columns) {
            attention_block panel = block;
            panel.first_query += c, panel.queries = std::min(columns, block.queries - c);
            if (mod.hides_all(panel)) {
                leave_out(panel, c, scratch);
                found = true;
                continue;
            }
            found = run_panel(panel, c, group, member, dq, scratch) || found;
            begin = std::min(begin, c), end = c + columns;
        }
        if (begin < end) sum_up(block, member, begin, end, found, scratch);
    }
    std::byte* hidden_at(std::byte* scratch, extent key, extent column) const {
        return scratch + room.hidden + key * attention_backward_queries + column;
    }
    /// Sets the weights and score gradients of the panel at that column to zero.
    void leave_out(const attention_block& panel, extent column, std::byte* scratch) const {
        const auto bytes = static_cast<std::size_t>(room.unit.columns * room.unit.element);
        for (extent key = 0; key < panel.keys; ++key) {
            const std::size_t at = room.row_bytes(key) + static_cast<std::size_t>(column * room.unit.element);
            std::memset(scratch + room.weights + at, 0, bytes);
            std::memset(scratch + room.score_gradients + at, 0, bytes);
            std::memset(hidden_at(scratch, key, column), 1, static_cast<std::size_t>(room.unit.columns));
        }
    }

    /// Computes the weights and score gradients of a panel of queries, and adds to its dq. Returns whether some pair is
    /// hidden.
    bool run_panel(const attention_block& panel, extent column, extent group, extent member, float* dq,
                   std::byte* scratch) const {
        const auto& at = room;
        const detail::product_unit& unit = at.unit;
        const extent rows = panel.keys, depth = unit.padded(at.extents.head_size), i = panel.first_query;
        const std::size_t from = at.head_bytes * static_cast<std::size_t>(member * at.query_panels + i / unit.columns);
        const std::size_t along_row = static_cast<std::size_t>(column * unit.element);
        float *const scores = this->floats(scratch + at.scores), *const dp = this->floats(scratch + at.weight_gradients);
        const extent terms = member * at.padded_queries + i;
        unit.multiply(rows, depth, scratch + at.keys, scratch + at.queries_t + from, scores, unit.columns, false, nullptr);
        unit.multiply(rows, depth, scratch + at.values, scratch + at.gradients_t + from, dp, unit.columns, false, nullptr);
        if (mod.dropout.is_there()) drop_gradients(panel, dp, scratch);
        const bool found =
            mod.modify_gradients(mod.expressions, {panel, scores, dp, this->floats(scratch + at.maxima) + terms,
                                                   this->floats(scratch + at.logs) + terms,
                                                   this->floats(scratch + at.dots) + terms,
                                                   attention_scale(this->a.options, at.extents.head_size)});
        for (extent key = 0; key < rows; ++key) {
            std::byte* const to = hidden_at(scratch, key, column);
            for (extent c = 0; c < unit.columns; ++c)
                to[c] = std::byte{found && is_hidden_score(scores[key * unit.columns + c])};
        }
        this->engine.score_gradients({.rows = rows,
                                      .block_rows = rows,
                                      .padded_rows = unit.padded(rows),
                                      .queries = panel.queries,
                                      .first_visible = -unit.columns - rows,
                                      .scores = scores,
                                      .weight_gradients = dp,
                                      .maxima = attention_no_terms,
                                      .logs = attention_no_terms,
                                      .dots = attention_no_terms,
                                      .scale = 1,
                                      .weights = scratch + at.weights + along_row,
                                      .score_gradients = scratch + at.score_gradients + along_row,
                                      .panel = scratch + at.panel});
        if (mod.dropout.is_there()) drop_weights(panel, column, scratch);
        add_to_queries(panel, column, group, found, dq + i / unit.columns * at.panel_sums, scratch);
        return found;
    }

    /// Sets dp of dropped weights to zero and scales the others.
    void drop_gradients(const attention_block& panel, float* dp, std::byte* scratch) const {
        const attention_extents& e = room.extents;
        const extent columns = room.unit.columns;
        std::byte* const dropped = scratch + room.dropped;
        std::memset(dropped, 0, static_cast<std::size_t>(panel.keys * columns));
        for (extent c = 0; c < panel.queries; ++c) {
            mod.dropout.for_dropped(pair_number(panel.batch * e.heads + panel.head, e.queries, panel.first_query + c, e.keys,
                                                panel.first_key),
                                    panel.keys, [&](extent key) { dropped[key * columns + c] = std::byte{1}; });
        }
        for (extent i = 0; i < panel.keys * columns; ++i)
            dp[i] = dropped[i] == std::byte{0} ? dp[i] * mod.dropout.draw.scale : 0.0f;
    }
    /// Sets the dropped weights to zero.
    void drop_weights(const attention_block& panel, extent column, std::byte* scratch) const {
        const extent columns = room.unit.columns, element = room.unit.element;
        for (extent i = 0; i < panel.keys * columns; ++i) {
            if (*(scratch + room.dropped + i) == std::byte{0}) continue;
            std::byte* const row = scratch + room.weights + room.row_bytes(i / columns);
            std::memset(row + (column + i % columns) * element, 0, static_cast<std::size_t>(element));
        }
    }

    /// dq^T += k^T ds^T of one panel.
    void add_to_queries(const attention_block& panel, extent column, extent group, bool found, float* sums,
                        std::byte* scratch) const {
        const auto& at = room;
        const detail::product_unit& unit = at.unit;
        const extent rows = panel.keys, width = at.extents.head_size, depth = unit.run(rows);
        if (!found || !this->masks_not_finite(scratch + at.keys, 0, rows))
            return unit.multiply(width, depth, scratch + at.keys_t, scratch + at.panel, sums, unit.columns, true, nullptr);
        // One query at a time, with zeros for the keys that it does not see.
        for (extent c = 0; c < panel.queries; ++c) {
            for (extent key = 0; key < rows; ++key) {
                if (*hidden_at(scratch, key, column + c) == std::byte{0}) continue;
                for (extent d = 0; d < width; ++d)
                    std::memset(scratch + at.keys_t + (d * detail::panel_stride + key) * unit.element, 0,
                                static_cast<std::size_t>(unit.element));
            }
            add_to_column(unit, width, depth, scratch + at.keys_t, scratch + at.panel, sums, c);
            this->pack_transposed_keys(panel.batch, group, panel.first_key, rows, scratch);
        }
    }

    /// dv += p^T d_o and dk += ds^T q, for the panels from column `begin` to `end` of a block.
    void sum_up(const attention_block& block, extent member, extent begin, extent end, bool found,
                std::byte* scratch) const {
        const auto& at = room;
        const detail::product_unit& unit = at.unit;
        const extent depth = std::min(unit.padded(block.queries), end) - begin;
        const auto along_row = static_cast<std::size_t>(begin * unit.element);
        for (extent d = 0; d < at.head_panels; ++d) {
            const extent query_block = member * at.query_blocks + block.first_query / attention_backward_queries;
            const std::size_t panel = at.query_bytes * static_cast<std::size_t>(query_block * at.head_panels + d) +
                                      at.panel_rows_bytes(begin);
            const auto add = [&](std::size_t factors, std::size_t operands, std::size_t to) {
                const std::byte *const left = scratch + factors + along_row, *const right = scratch + operands + panel;
                float* const sums = this->floats(scratch + to) + d * unit.columns;
                if (found && any_not_finite_in_panel(this->engine, right, 0, depth)) {
                    multiply_where_seen(unit, block.keys, depth, left, right, sums, at.padded_width(), true,
                                        scratch + at.spare, [&](extent key, extent k) {
                                            return *hidden_at(scratch, key, begin + k) == std::byte{0};
                                        });
                } else {
                    unit.multiply(block.keys, depth, left, right, sums, at.padded_width(), true, nullptr);
                }
            };
            add(at.weights, at.gradients, at.dv);
            add(at.score_gradients, at.queries, at.dk);
        }
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
