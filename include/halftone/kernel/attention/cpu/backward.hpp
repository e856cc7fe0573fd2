// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention on the CPU.
///
/// A task takes one head of k and v and the heads of q that read it. It packs the queries once and iterates over blocks
/// of keys. For each panel of queries it recomputes the scores, transposed (keys by queries), so that the weights p and
/// the scores' gradients ds come out as operands of the three products that follow: dv += p^T d_o, dk += ds^T q, dq^T
/// += k^T ds^T. If there are fewer heads than threads need, the blocks of keys are distributed over several tasks,
/// whose partial sums of dq are added in order afterwards.
#pragma once

#include <cstring>

#include <halftone/kernel/attention/cpu/hidden.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

struct attention_backward_layout : attention_layout {
    extent parts;       ///< tasks that share the blocks of keys of one head
    extent block_keys;  ///< keys in a block
    extent key_blocks, query_blocks, query_panels;
    extent padded_queries;
    extent panel_sums, member_sums;                          ///< dq^T: (head_size, columns) for each panel of queries
    std::size_t query_bytes;                                 ///< size of a panel whose k is a block of queries
    std::size_t queries_t, gradients_t, queries, gradients;  ///< panels: q^T, d_o^T, q, d_o
    std::size_t maxima, logs, dots, dq, dk, dv;
    std::size_t keys, values, keys_t, weights, score_gradients, panel, scores, weight_gradients;

    attention_backward_layout(const attention_extents& e, const detail::product_unit& u, attention_mask mask);

    extent tasks() const { return extents.batch * extents.groups * parts; }
    /// If a head has several tasks: floats of one task's partial dq.
    extent part_sums() const { return extents.members() * member_sums; }
    extent partial_sums() const { return parts == 1 ? 0 : tasks() * part_sums(); }
};

template <class T>
struct attention_backward_task {
    const kernel::attention_backward<T>& a;
    const attention_engine<T>& engine;
    const attention_backward_layout& at;
    float* partials;  ///< partial dq^T of every task, one after the other; nullptr if at.parts is 1

    void operator()(extent index, std::byte* scratch) const {
        const attention_extents& e = at.extents;
        const extent part = index % at.parts, group = index / at.parts % e.groups, batch = index / at.parts / e.groups;
        auto* const dq =
            partials == nullptr ? reinterpret_cast<float*>(scratch + at.dq) : partials + index * at.part_sums();
        std::memset(dq, 0, static_cast<std::size_t>(at.part_sums()) * sizeof(float));

        pack_queries(batch, group, scratch);
        at.unit.begin_worker();
        // Dealt in turn, for under a causal mask the first blocks are seen by the most queries.
        for (extent block = part; block < at.key_blocks; block += at.parts) {
            run_keys(batch, group, block * at.block_keys, dq, scratch);
        }
        at.unit.end_worker();
        if (partials == nullptr) store_queries(batch, group, dq);
    }

    /// Stores dq of the heads that read a group, the sum of its tasks' partial sums.
    void store_queries(extent batch, extent group, const float* dq) const {
        const attention_extents& e = at.extents;
        if (e.queries == 0) return;
        for (extent member = 0; member < e.members(); ++member) {
            for (extent i = 0; i < e.queries; i += at.unit.columns, dq += at.panel_sums) {
                engine.store_transposed(std::min<extent>(at.unit.columns, e.queries - i), e.head_size, dq,
                                        at.unit.columns, at.parts, at.part_sums(),
                                        attention_scale(a.options, e.head_size),
                                        vector_at(a.dq, batch, i, group * e.members() + member), a.dq.stride_of(1));
            }
        }
    }

  protected:
    static float* floats(std::byte* at) { return reinterpret_cast<float*>(at); }

    /// Packs the queries [first, first + count), one block, of x (batch, queries, heads, head_size) in two ways: into
    /// panels whose columns are queries, and into panels whose k is queries.
    void pack_both_ways(const const_view<T, 4>& x, extent batch, extent head, extent member, extent first, extent count,
                        std::byte* transposed, std::byte* straight) const {
        const extent width = at.extents.head_size, columns = at.unit.columns;
        transposed += at.head_bytes * static_cast<std::size_t>(member * at.query_panels + first / columns);
        for (extent i = 0; i < count; i += columns, transposed += at.head_bytes) {
            engine.packing.pack_panel(vector_at(x, batch, first + i, head), 1, x.stride_of(1), width,
                                  std::min(columns, count - i), transposed);
        }
        const extent block = member * at.query_blocks + first / attention_backward_queries;
        straight += at.query_bytes * static_cast<std::size_t>(block * at.head_panels);
        for (extent d = 0; d < width; d += columns, straight += at.query_bytes) {
            engine.packing.pack_panel(vector_at(x, batch, first, head) + d, x.stride_of(1), 1, count,
                                  std::min(columns, width - d), straight);
        }
    }

    void pack_queries(extent batch, extent group, std::byte* scratch) const {
        const attention_extents& e = at.extents;
        for (extent member = 0; member < e.members(); ++member) {
            const extent head = group * e.members() + member, terms = member * at.padded_queries;
            for (extent i = 0; i < e.queries; i += attention_backward_queries) {
                const extent count = std::min(attention_backward_queries, e.queries - i), after = i + count;
                if (after < e.queries) {
                    // Rows are far apart, where hardware prefetchers do not work: prefetches the next ones.
                    const extent next = std::min(attention_backward_queries, e.queries - after);
                    for (const const_view<T, 4>* x : {&a.q, &a.o, &a.d_o}) {
                        prefetch_rows(vector_at(*x, batch, after, head), x->stride_of(1), next, e.head_size);
                    }
                }
                engine.query_terms(count, round_up(count, at.unit.columns), e.head_size, vector_at(a.o, batch, i, head),
                                   a.o.stride_of(1), vector_at(a.d_o, batch, i, head), a.d_o.stride_of(1),
                                   &a.logsumexp(batch, head, i, 0), floats(scratch + at.maxima) + terms + i,
                                   floats(scratch + at.logs) + terms + i, floats(scratch + at.dots) + terms + i);
                pack_both_ways(a.d_o, batch, head, member, i, count, scratch + at.gradients_t, scratch + at.gradients);
                pack_both_ways(a.q, batch, head, member, i, count, scratch + at.queries_t, scratch + at.queries);
            }
        }
    }

    /// Processes one block of keys: all of dk and dv, and this block's contribution to dq.
    void run_keys(extent batch, extent group, extent first, float* dq, std::byte* scratch) const {
        const attention_extents& e = at.extents;
        const extent rows = std::min(at.block_keys, e.keys - first), stride = at.padded_width();
        engine.packing.pack_block(vector_at(a.k, batch, first, group), a.k.stride_of(1), 1, rows, e.head_size,
                                  scratch + at.keys);
        engine.packing.pack_block(vector_at(a.v, batch, first, group), a.v.stride_of(1), 1, rows, e.head_size,
                                  scratch + at.values);
        pack_transposed_keys(batch, group, first, rows, scratch);
        const extent first_query = std::max<extent>(0, first - at.offset),
                     first_block = first_query / attention_backward_queries * attention_backward_queries;
        // The first block of queries initialises the sums of dk and dv if it sees all keys.
        const bool sees_all = rows <= seen_by(first_block) - first && e.members() > 0;
        if (!sees_all) {
            const auto bytes = static_cast<std::size_t>(at.padded_rows(rows) * stride) * sizeof(float);
            std::memset(scratch + at.dk, 0, bytes);
            std::memset(scratch + at.dv, 0, bytes);
        }
        for (extent member = 0; member < e.members(); ++member) {
            for (extent i = first_block; i < e.queries; i += attention_backward_queries) {
                run_block(batch, group, member, first, rows, i, std::max<extent>(0, first_query - i),
                          !sees_all || member > 0 || i > first_block, dq + member * at.member_sums, scratch);
            }
        }
        engine.store(rows, e.head_size, floats(scratch + at.dk), stride, attention_scale(a.options, e.head_size),
                     vector_at(a.dk, batch, first, group), a.dk.stride_of(1));
        engine.store(rows, e.head_size, floats(scratch + at.dv), stride, 1.0f, vector_at(a.dv, batch, first, group),
                     a.dv.stride_of(1));
    }

    /// How many keys the block of queries from i on sees; 0 if there is no such block.
    extent seen_by(extent i) const {
        const extent last = std::min(i + attention_backward_queries, at.extents.queries);
        return i < last ? std::min(at.extents.keys, last + at.offset) : 0;
    }

    /// Processes the keys [first_key, first_key + keys) with a block of queries, the first `unseeing` of which see none
    /// of these keys. Adds to dk and dv, or overwrites them.
    void run_block(extent batch, extent group, extent member, extent first_key, extent keys, extent first_query,
                   extent without_keys, bool add, float* dq, std::byte* scratch) const {
        const attention_extents& e = at.extents;
        const detail::product_unit& unit = at.unit;
        const float scale = attention_scale(a.options, e.head_size) * log2_of_e;
        const extent queries = std::min(attention_backward_queries, e.queries - first_query),
                     skipped = without_keys / unit.columns * unit.columns;
        const extent rows = std::min(keys, seen_by(first_query) - first_key), depth = unit.padded(e.head_size);
        // A unit may process whole blocks of rows: keys that this block does not see get zeros added.
        const extent block_rows = rows < keys ? round_up(rows, unit.rows) : rows;
        auto* const weights = scratch + at.weights;
        auto* const score_gradients = scratch + at.score_gradients;

        for (extent c = skipped; c < queries; c += unit.columns) {
            const extent i = first_query + c, first_visible = first_key - at.offset - i;
            const extent panel_rows = std::min(rows, unit.columns - first_visible), padded = unit.padded(panel_rows);
            const std::size_t from =
                at.head_bytes * static_cast<std::size_t>(member * at.query_panels + i / unit.columns);
            const std::size_t along_row = static_cast<std::size_t>(c * unit.element);
            unit.multiply(panel_rows, depth, scratch + at.keys, scratch + at.queries_t + from,
                          floats(scratch + at.scores), unit.columns, false, nullptr);
            unit.multiply(panel_rows, depth, scratch + at.values, scratch + at.gradients_t + from,
                          floats(scratch + at.weight_gradients), unit.columns, false, nullptr);
            engine.score_gradients({.rows = panel_rows,
                           .block_rows = block_rows,
                           .padded_rows = padded,
                           .queries = std::min<extent>(unit.columns, e.queries - i),
                           .first_visible = first_visible,
                           .scores = floats(scratch + at.scores),
                           .weight_gradients = floats(scratch + at.weight_gradients),
                           .maxima = floats(scratch + at.maxima) + member * at.padded_queries + i,
                           .logs = floats(scratch + at.logs) + member * at.padded_queries + i,
                           .dots = floats(scratch + at.dots) + member * at.padded_queries + i,
                           .scale = scale,
                           .weights = weights + along_row,
                           .score_gradients = score_gradients + along_row,
                           .panel = scratch + at.panel});
            float* const sums = dq + i / unit.columns * at.panel_sums;
            // A unit may include keys that no query of the panel sees.
            const extent seen_by_all = std::clamp<extent>(1 - first_visible, 0, panel_rows);
            if (masks_not_finite(scratch + at.keys, seen_by_all, std::min(keys, unit.run(panel_rows)))) {
                multiply_seen_by_columns(unit, e.head_size, unit.run(panel_rows), scratch + at.keys_t,
                                         scratch + at.panel, sums,
                                         [&](extent column) {
                                             return std::min(panel_rows, column - first_visible + 1);
                                         });
                pack_transposed_keys(batch, group, first_key, keys, scratch);
            } else {
                unit.multiply(e.head_size, unit.run(panel_rows), scratch + at.keys_t, scratch + at.panel, sums,
                              unit.columns, true, nullptr);
            }
        }

        // Proceeds by groups of keys if fewer queries see the later ones.
        const extent last_visible = first_key + rows - 1 - at.offset - first_query;  // the first query to see the last key
        const bool fully_masked_rows = last_visible > 0;
        // A unit's whole block of rows may include keys that no query sees.
        const extent hidden = std::max<extent>(0, block_rows > rows ? queries : last_visible);
        const extent some = fully_masked_rows ? unit.rows : rows,
                     block = member * at.query_blocks + first_query / attention_backward_queries;
        for (extent d = 0; d < at.head_panels; ++d) {
            const std::size_t panel = at.query_bytes * static_cast<std::size_t>(block * at.head_panels + d);
            const bool careful_v = any_not_finite_in_panel(engine, scratch + at.gradients + panel, 0, hidden),
                       careful_k = any_not_finite_in_panel(engine, scratch + at.queries + panel, 0, hidden);
            for (extent j = 0; j < rows; j += some) {
                const extent fully_masked =
                    std::max<extent>(0, first_key + j - at.offset - first_query) / at.unit.k_multiple * at.unit.k_multiple;
                const extent unmasked_rows = unit.padded(queries) - fully_masked, to = j * at.padded_width() + d * unit.columns;
                const std::size_t from = static_cast<std::size_t>((j * detail::panel_stride + fully_masked) * unit.element);
                const std::size_t skipped_panel = panel + at.panel_rows_bytes(fully_masked);
                const auto sum_up = [&](bool careful, const std::byte* factors, const std::byte* operands,
                                        float* sums) {
                    const extent high = std::min(some, rows - j);
                    if (careful) {
                        const extent first = first_key + j - at.offset - first_query - fully_masked;
                        multiply_seen(
                            unit, high, unmasked_rows, factors, operands, sums, at.padded_width(), add, scratch + at.panel,
                            [&](extent row) { return first + row; }, [&](extent) { return unmasked_rows; });
                    } else {
                        unit.multiply(high, unmasked_rows, factors, operands, sums, at.padded_width(), add, nullptr);
                    }
                };
                sum_up(careful_v, weights + from, scratch + at.gradients + skipped_panel, floats(scratch + at.dv) + to);
                sum_up(careful_k, score_gradients + from, scratch + at.queries + skipped_panel, floats(scratch + at.dk) + to);
            }
        }
    }
    /// Whether the keys [first, last) of the block, which may be masked for some query of a panel, hold an infinity or
    /// a NaN.
    bool masks_not_finite(const std::byte* keys, extent first, extent last) const {
        return first < last &&
               engine.any_not_finite(keys + at.row_bytes(first), last - first, at.extents.head_size, detail::panel_stride);
    }
    void pack_transposed_keys(extent batch, extent group, extent first, extent rows, std::byte* scratch) const {
        engine.packing.pack_block(vector_at(a.k, batch, first, group), 1, a.k.stride_of(1), at.extents.head_size, rows,
                                  scratch + at.keys_t);
    }
};

/// A task of packed sequences. Each sequence is partitioned as if it were alone, so that it has the same bits.
template <class T>
struct packed_attention_backward_task {
    const kernel::attention_backward<T>& a;
    const attention_engine<T>& engine;
    const attention_backward_layout& longest;  ///< the layout of a sequence as long as the longest
    const attention_extents& whole;
    float* partials;  ///< (partial_sums); nullptr if longest.parts is 1

    extent tasks() const { return a.sequences.count() * whole.groups * longest.parts; }

    void operator()(extent index, std::byte* scratch) const {
        const extent each = whole.groups * longest.parts, s = index / each, part = index % each;
        const sequence_place at(a.sequences, s, a.options.mask, whole);
        if (part == 0) at.clear_fully_masked(a.dq);
        if (at.extents.keys == 0) return;
        const attention_backward_layout layout(at.extents, engine.unit, a.options.mask);
        if (part >= layout.tasks()) return;
        const kernel::attention_backward<T> alone = arguments(at);
        attention_backward_task<T>{alone, engine, layout, sums_of(s)}(part, scratch);
    }

    /// Stores dq of the heads that read one group in one sequence, the sum of its tasks' partial sums.
    void store_queries(extent index) const {
        const extent s = index / whole.groups, group = index % whole.groups;
        const sequence_place at(a.sequences, s, a.options.mask, whole);
        if (at.extents.keys == 0) return;
        const attention_backward_layout layout(at.extents, engine.unit, a.options.mask);
        const kernel::attention_backward<T> alone = arguments(at);
        const attention_backward_task<T> task{alone, engine, layout, sums_of(s)};
        task.store_queries(0, group, task.partials + group * layout.parts * layout.part_sums());
    }

    /// The number of floats of partial sums of all sequences.
    static extent partial_sums(const attention_backward_layout& longest, extent queries, extent sequences) {
        return longest.parts == 1 ? 0 : sums_before(longest, queries, sequences);
    }

  private:
    /// An upper bound of what the sequences before s need, which have `queries` queries together; each of them is
    /// rounded up to whole panels.
    static extent sums_before(const attention_backward_layout& longest, extent queries, extent s) {
        const extent columns = longest.unit.columns;
        return longest.extents.heads * longest.parts * longest.panel_sums * (queries / columns + 2 * s);
    }
    float* sums_of(extent s) const {
        return partials == nullptr ? nullptr : partials + sums_before(longest, a.sequences.query_offsets(s), s);
    }
    kernel::attention_backward<T> arguments(const sequence_place& at) const {
        return {
            at.queries_of(a.q),   at.keys_of(a.k),     at.keys_of(a.v),  at.queries_of(a.o), at.sums_of(a.logsumexp),
            at.queries_of(a.d_o), at.queries_of(a.dq), at.keys_of(a.dk), at.keys_of(a.dv),   a.options};
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/attention/cpu/backward.body.hpp>
#endif
