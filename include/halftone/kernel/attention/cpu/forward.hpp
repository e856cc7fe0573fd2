// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention on the CPU.
///
/// A task takes some queries of one head, packs the keys and values that they see once, and iterates over these with a
/// running softmax: blocks of 96 queries; within a block tiles of 256 keys; within a tile groups of about 24 queries.
/// Panels of keys that no query of a group sees are skipped. A single query, as a step of generation has, reads keys and
/// values where they are, if the unit can: packing them would serve it alone. The bits are the same.
#pragma once

#include <halftone/kernel/attention/cpu/hidden.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

struct attention_forward_layout : attention_layout {
    extent parts, part_queries;  ///< parts of a head, and queries of a part
    extent group;                ///< queries in a group
    extent tile_columns, tile_stride;
    std::size_t value_bytes;  ///< size of a panel whose k is a tile's keys
    std::size_t keys, values, queries, scores, weights, outputs, spare;

    attention_forward_layout(const attention_extents& e, const detail::product_unit& u, attention_mask mask);

    extent tasks() const { return extents.batch * extents.heads * parts; }
    /// An upper bound of the parts of a head; it does not decrease with more queries.
    static extent most_parts(const attention_extents& e) {
        return parts_of(e.batch * e.heads, ceil_div(e.queries, attention_query_rows), 4);
    }
};

template <class T>
struct attention_forward_task {
    const kernel::attention_forward<T>& a;
    const attention_engine<T>& engine;
    const attention_forward_layout& at;

    void operator()(extent index, std::byte* scratch) const {
        const attention_extents& e = at.extents;
        // Under a causal mask the last queries of a head see the most keys: they come first, for load balance.
        const extent part = at.parts - 1 - index % at.parts;
        const extent batch = index / at.parts / e.heads, head = index / at.parts % e.heads;
        const extent first = part * at.part_queries, last = std::min(first + at.part_queries, e.queries);

        if (e.queries == 1 && engine.packing.b.multiply_unpacked != nullptr) return run_query(batch, head, scratch);
        pack(batch, head / e.members(), std::min(e.keys, last + at.offset), scratch);
        at.unit.begin_worker();
        for (extent i = first; i < last; i += attention_query_rows) {
            run_block(batch, head, i, std::min(attention_query_rows, last - i), scratch);
        }
        at.unit.end_worker();
    }

  protected:
    void pack(extent batch, extent group, extent keys, std::byte* scratch) const {
        const extent width = at.extents.head_size;
        for (extent j = 0, panel = 0; j < keys; j += at.unit.columns, ++panel) {
            engine.packing.pack_panel(vector_at(a.k, batch, j, group), 1, a.k.stride_of(1), width,
                                  std::min<extent>(at.unit.columns, keys - j),
                                  scratch + at.keys + at.head_bytes * static_cast<std::size_t>(panel));
        }
        std::byte* to = scratch + at.values;
        for (extent j = 0; j < keys; j += attention_key_columns) {
            for (extent d = 0; d < width; d += at.unit.columns, to += at.value_bytes) {
                engine.packing.pack_panel(vector_at(a.v, batch, j, group) + d, a.v.stride_of(1), 1,
                                      std::min(attention_key_columns, keys - j),
                                      std::min<extent>(at.unit.columns, width - d), to);
            }
        }
    }

  private:
    /// The only query of one head, which sees all keys.
    void run_query(extent batch, extent head, std::byte* scratch) const {
        const attention_extents& e = at.extents;
        const extent group = head / e.members();
        auto* const scores = reinterpret_cast<float*>(scratch + at.scores);
        auto* const outputs = reinterpret_cast<float*>(scratch + at.outputs);
        engine.packing.pack_block(vector_at(a.q, batch, 0, head), a.q.stride_of(1), 1, 1, e.head_size, scratch + at.queries);
        attention_row_state state;
        for (extent j = 0; j < e.keys; j += attention_key_columns) {
            const extent columns = std::min(attention_key_columns, e.keys - j);
            engine.packing.b.multiply_unpacked(1, e.head_size, scratch + at.queries, panel_stride,
                                               vector_at(a.k, batch, j, group), 1, a.k.stride_of(1), columns, scores,
                                               at.tile_stride, false);
            weigh_scores(1, columns, columns, j == 0, outputs, state, scratch);
            engine.packing.b.multiply_unpacked(1, columns, scratch + at.weights, panel_stride,
                                               vector_at(a.v, batch, j, group), a.v.stride_of(1), 1, e.head_size, outputs,
                                               at.padded_width(), j > 0);
        }
        finish(batch, head, 0, 1, outputs, state);
    }
    /// Scores become weights; the sums of o so far are rescaled. The first row sees the first `visible` columns.
    void weigh_scores(extent rows, extent columns, extent visible, bool is_first, float* outputs, attention_row_state& state,
                      std::byte* scratch) const {
        engine.softmax({.rows = rows,
                        .columns = columns,
                        .padded_columns = at.unit.padded(columns),
                        .visible = visible,
                        .scores = reinterpret_cast<float*>(scratch + at.scores),
                        .stride = at.tile_stride,
                        .scale = attention_scale(a.options, at.extents.head_size) * log2_of_e,
                        .weights = scratch + at.weights,
                        .first = is_first,
                        .state = &state,
                        .outputs = outputs,
                        .output_stride = at.padded_width()});
    }
    /// Stores the results of the queries [first, first + rows) of one head.
    void finish(extent batch, extent head, extent first, extent rows, const float* outputs,
                const attention_row_state& state) const {
        float* const logsumexp = a.logsumexp.data() == nullptr ? nullptr : &a.logsumexp(batch, head, first, 0);
        engine.finish(rows, at.extents.head_size, outputs, at.padded_width(), state, vector_at(a.o, batch, first, head),
                      a.o.stride_of(1), logsumexp);
    }

    /// The queries [first, first + rows) of one head.
    void run_block(extent batch, extent head, extent first, extent rows, std::byte* scratch) const {
        const attention_extents& e = at.extents;
        auto* const outputs = reinterpret_cast<float*>(scratch + at.outputs);
        engine.packing.pack_block(vector_at(a.q, batch, first, head), a.q.stride_of(1), 1, rows, e.head_size,
                                  scratch + at.queries);

        attention_row_state states[ceil_div(attention_query_rows, attention_group)];
        const extent visible = std::min(e.keys, first + rows + at.offset);
        for (extent j = 0; j < visible; j += attention_key_columns) {
            for (extent i = 0; i < rows; i += at.group) {
                const extent group_rows = std::min(at.group, rows - i);
                const extent columns =
                    std::min({attention_key_columns, visible - j, first + i + group_rows + at.offset - j});
                if (columns > 0)
                    run_tile(first + i, group_rows, j, columns, scratch + at.queries + at.row_bytes(i),
                             outputs + i * at.padded_width(), states[i / at.group], scratch);
            }
        }
        for (extent i = 0; i < rows; i += at.group) {
            finish(batch, head, first + i, std::min(at.group, rows - i), outputs + i * at.padded_width(),
                   states[i / at.group]);
        }
    }

    /// Processes the queries [first, first + rows) of one group and the keys [first_key, first_key + columns).
    void run_tile(extent first, extent rows, extent first_key, extent columns, const std::byte* queries, float* outputs,
                  attention_row_state& state, std::byte* scratch) const {
        const attention_extents& e = at.extents;
        const detail::product_unit& unit = at.unit;
        auto* const scores = reinterpret_cast<float*>(scratch + at.scores);
        const std::byte* keys = scratch + at.keys + at.head_bytes * static_cast<std::size_t>(first_key / unit.columns);
        const extent visible = first + 1 + at.offset - first_key;  // of the first row; one more in each further row
        for (extent c = 0; c < columns; c += unit.columns, keys += at.head_bytes) {
            const extent fully_masked = std::max<extent>(0, c + 1 - visible) / unit.rows * unit.rows;
            unit.multiply(rows - fully_masked, unit.padded(e.head_size), queries + at.row_bytes(fully_masked), keys,
                          scores + fully_masked * at.tile_stride + c, at.tile_stride, false, nullptr);
        }
        weigh_scores(rows, columns, visible, first_key == 0, outputs, state, scratch);
        const std::byte* values =
            scratch + at.values +
            at.value_bytes * static_cast<std::size_t>(first_key / attention_key_columns * at.head_panels);
        for (extent d = 0; d < at.padded_width(); d += unit.columns, values += at.value_bytes) {
            // Proceeds by groups of rows if the later ones see more.
            const extent some = visible >= columns ? rows : unit.rows;
            // A unit may include keys that no query of the group sees.
            const bool careful = any_not_finite_in_panel(engine, values, std::clamp<extent>(visible, 0, columns),
                                                         unit.run(columns));
            for (extent i = 0; i < rows; i += some) {
                const extent seen = std::clamp<extent>(visible + i + some - 1, 1, columns);
                const std::byte* const weights = scratch + at.weights + at.row_bytes(i);
                float* const to = outputs + i * at.padded_width() + d;
                if (careful) {
                    multiply_seen(
                        unit, std::min(some, rows - i), unit.run(seen), weights, values, to, at.padded_width(),
                        first_key > 0, scratch + at.spare, [](extent) { return extent{0}; },
                        [&](extent row) { return std::min(columns, visible + i + row); });
                } else {
                    unit.multiply(std::min(some, rows - i), unit.run(seen), weights, values, to, at.padded_width(),
                                  first_key > 0, nullptr);
                }
            }
        }
    }
};

/// A task of packed sequences. Each sequence is partitioned as if it were alone, so that it has the same bits.
template <class T>
struct packed_attention_forward_task {
    const kernel::attention_forward<T>& a;
    const attention_engine<T>& engine;
    const attention_extents& whole;
    extent head_parts;  ///< at least the number of parts of a head of any sequence

    void operator()(extent index, std::byte* scratch) const {
        const extent each = whole.heads * head_parts, part = index % each;
        const sequence_place at(a.sequences, index / each, a.options.mask, whole);
        if (part == 0) clear_fully_masked(at);
        if (at.extents.queries == 0) return;
        const kernel::attention_forward<T> alone{at.queries_of(a.q),
                                                 at.keys_of(a.k),
                                                 at.keys_of(a.v),
                                                 at.queries_of(a.o),
                                                 a.logsumexp.data() == nullptr ? a.logsumexp : at.sums_of(a.logsumexp),
                                                 a.options};
        const attention_forward_layout layout(at.extents, engine.unit, a.options.mask);
        if (part < layout.tasks()) attention_forward_task<T>{alone, engine, layout}(part, scratch);
    }

  private:
    void clear_fully_masked(const sequence_place& at) const {
        at.clear_fully_masked(a.o);
        if (a.logsumexp.data() == nullptr) return;
        for (extent head = 0; head < whole.heads; ++head) {
            for (extent i = at.first_fully_masked; i < at.first_query; ++i) {
                a.logsumexp(0, head, i, 0) = attention_masked_score;
                a.logsumexp(0, head, i, 1) = 0;
            }
        }
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/attention/cpu/forward.body.hpp>
#endif
