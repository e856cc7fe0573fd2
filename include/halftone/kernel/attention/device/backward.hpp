// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention on a GPU with matrix instructions, for 16-bit types and for floats that multiply in
/// tfloat32.
///
/// One kernel computes dq by blocks of queries, another dk and dv by blocks of keys, so that every sum is computed by
/// one block in one order. A block keeps rows of its own side, 16 RowBlocks of them in each warp, and streams the other
/// side's through two slots of shared memory. The softmax's row sums are known, so scores exist only for 16 streamed
/// rows at a time, in registers. (dk and dv of wide heads: wide.hpp.)
#pragma once

#include <halftone/kernel/attention/device/fragments.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Arguments of the backward pass's kernels.
template <class T>
struct attention_score_gradients {
    head_vectors<const T> q, d_o, k, v;
    global_span<const query_term> terms;
    head_vectors<T> dq, dk, dv;
    attention_problem problem;
};

/// The rows that a block streams, in tiles: [begin, end) of each of its query heads.
template <int Rows>
struct row_stream {
    int head, heads_end, first, begin, end;

    HALFTONE_HD HALFTONE_INLINE bool are_there() const { return head < heads_end && first < end; }
    HALFTONE_HD HALFTONE_INLINE void next() {
        first += Rows;
        if (first < end) return;
        first = begin;
        ++head;
    }
    /// The keys that some of a block's queries see.
    HALFTONE_HD HALFTONE_INLINE static row_stream of_keys(const attention_block& here, int kept_rows) {
        return {here.head, here.head + 1, 0, 0, here.keys_seen(here.first + kept_rows)};
    }
    /// The queries of all heads that see some of a block's keys.
    HALFTONE_HD HALFTONE_INLINE static row_stream of_queries(const attention_block& here, int members) {
        const int begin = here.first_query(here.first) / Rows * Rows;
        return {here.head * members, (here.head + 1) * members, begin, begin, here.queries};
    }
};

/// Starts copying the vectors [first, end) of one head of a sequence, which begins at `begin`.
HALFTONE_KERNEL template <class Tile, int Threads, class T, class Simt>
HALFTONE_HD HALFTONE_INLINE void fetch_rows(Simt simt, const Tile& to, const head_vectors<const T>& x, int sequence,
                                            int begin, int head, int first, int end, int width) {
    tile_source<T, Tile, Threads>::of(simt, x.from(sequence, begin, head), x.time_stride, first, end)
        .fetch(simt, to, width);
}

/// Starts copying query terms.
HALFTONE_KERNEL template <int Count, class Simt>
HALFTONE_HD HALFTONE_INLINE void fetch_terms(Simt simt, word to, const global_span<const query_term>& from) {
    const int i = simt.thread();
    if (i >= Count) return;
    simt.async_copy16(shared_span<simt::chunk<float>>{to + static_cast<word>(i) * 16, 1},
                      global_span<const float>{&from.data[i].value[0], 4}, 4);
}

/// dq of some queries, or dk and dv of some keys; head_size is at most Head. With the recomputed weights p and score
/// gradients ds = p (d_o v^T - o d_o^T): dq = scale ds k, dk = scale ds^T q, dv = p^T d_o. Chunks of all operands are
/// aligned to 16 bytes.
template <class T, int Head, int RowBlocks, int Warps, int StreamedRows, attention_side Side>
struct flash_attention_backward_kernel {
    static constexpr bool keeps_keys = Side == attention_side::keys;
    static constexpr int threads = 32 * Warps, warp_rows = 16 * RowBlocks, kept_rows = Warps * warp_rows;
    static constexpr int columns = block_columns<T>;
    // This many columns of the kept rows stay in registers; the others are read from shared memory again for every
    // tile. Terms of streamed queries take registers, too, so that two row blocks leave less room.
    static constexpr int held = sizeof(T) == 4
                                    ? (keeps_keys ? 32 / RowBlocks / RowBlocks : (Head > 128 ? 32 : 64) / RowBlocks)
                                : Head * RowBlocks > 128  ? 32
                                : !keeps_keys             ? Head
                                : Head * RowBlocks > 96   ? 96 / RowBlocks / 32 * 32
                                : (Head* RowBlocks == 64) ? Head / RowBlocks
                                                          : Head;
    using kept_tile = head_tile<T, kept_rows, Head>;
    using streamed_tile = head_tile<T, StreamedRows, Head>;
    // Wide floats leave room for one slot: a tile is copied when all warps have finished the previous one.
    static constexpr int slots = Head * sizeof(T) > 512 ? 1 : 2;
    // Each side has two tiles: first q or k, from which scores are computed, then d_o or v. The slot also holds the
    // terms of streamed queries.
    static constexpr word slot_bytes = 2 * streamed_tile::bytes, streamed_at = 2 * kept_tile::bytes,
                          terms_at = streamed_at + slots * slot_bytes,
                          term_bytes = keeps_keys ? StreamedRows * sizeof(query_term) : 0,
                          here_at = terms_at + slots * term_bytes, shared_bytes = here_at + sizeof(attention_block);

    attention_score_gradients<T> x;

    grid_shape grid() const { return x.problem.grid(Side, kept_rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const attention_block here = x.problem.block(simt, Side, kept_rows);
        if (here.first >= (keeps_keys ? here.keys : here.queries)) return;
        keep_block(simt, here_at, here);
        const kept_tile kept_a{{0}}, kept_b{{kept_tile::bytes}};
        fetch_kept(simt, kept_a, keeps_keys ? x.k : x.q, here);
        fetch_kept(simt, kept_b, keeps_keys ? x.v : x.d_o, here);
        simt.async_commit();
        stream rows = keeps_keys ? stream::of_queries(here, x.problem.members) : stream::of_keys(here, kept_rows);
        int slot = 0;
        fetch(simt, here, rows, slot);
        simt.async_wait(constant<1>{});
        simt.barrier();

        lane_part mine;
        const int first = here.first + simt.warp() * warp_rows;
        if constexpr (keeps_keys) {
            mine.some_from = first - here.offset, mine.all_end = here.queries;
        } else {
            mine.some_end = smaller(here.keys, first + here.offset + warp_rows);
            mine.all_end = smaller(here.keys, first + here.offset + 1);
        }
        mine.kept_a = kept_a.from_row(simt.warp() * warp_rows);
        mine.kept_b = kept_b.from_row(simt.warp() * warp_rows);
        mine.place = kept_tile::place_of(simt);
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int d = 0; d < held; d += columns) {
                mine.held_a[m][d / columns] = mine.kept_a.read(simt, mine.place, 16 * m, d);
                mine.held_b[m][d / columns] = mine.kept_b.read(simt, mine.place, 16 * m, d);
            }
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                const int query = first + 16 * m + 8 * half + simt.lane() / 4;
                if (!keeps_keys && query < here.queries)
                    mine.terms[m][half] = simt.load(x.terms, x.problem.first_term(here, here.head) + query);
            }
        }

        while (rows.are_there()) {
            simt.async_wait(constant<0>{});
            simt.barrier();  // this tile has arrived, and all warps have finished the previous one
            const int row = rows.first;
            rows.next();
            if constexpr (slots == 2) {
                fetch(simt, kept_block(simt, here_at), rows, 1 - slot);
                add_tile(simt, slot, row, mine);
                slot = 1 - slot;
            } else {
                add_tile(simt, 0, row, mine);
                simt.barrier();  // all warps have finished this tile
                fetch(simt, kept_block(simt, here_at), rows, 0);
            }
        }

        if constexpr (keeps_keys) {
            write(simt, kept_a, mine.score_gradient_sums, x.problem.scale, x.dk);
            write(simt, kept_b, mine.weight_sums, 1.0f, x.dv);
        } else {
            write(simt, kept_a, mine.score_gradient_sums, x.problem.scale, x.dq);
        }
    }

  private:
    using stream = row_stream<StreamedRows>;

    /// What a lane holds of its warp's kept rows. Some kept rows see, or are seen by, the streamed rows from some_from
    /// to some_end; all of them those up to all_end, or, where keys are kept, from some_from + warp_rows - 1 on.
    struct lane_part {
        int some_from = 0, some_end = 0, all_end = 0;
        kept_tile kept_a, kept_b;
        lane_place place;
        vec<word, 4> held_a[RowBlocks][held / columns], held_b[RowBlocks][held / columns];
        query_term terms[RowBlocks][2] = {};
        block_sums score_gradient_sums[RowBlocks][Head / 8] = {}, weight_sums[RowBlocks][keeps_keys ? Head / 8 : 1] = {};

        HALFTONE_HD HALFTONE_INLINE bool some_see(int row) const {
            return keeps_keys ? row < all_end && row + 15 >= some_from : row < some_end;
        }
        HALFTONE_HD HALFTONE_INLINE bool all_see(int row) const {
            return row + 16 <= all_end && (!keeps_keys || row >= some_from + warp_rows - 1);
        }
        /// The visible part of 16 streamed rows; rows beyond the end are zeros.
        HALFTONE_HD HALFTONE_INLINE row_window window(int row) const {
            return keeps_keys ? row_window{some_from - row, 1, 16, 0} : row_window{0, 0, all_end - row, 1};
        }
    };

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void fetch_kept(Simt simt, const kept_tile& to, const head_vectors<const T>& from,
                                                const attention_block& here) const {
        fetch_rows<kept_tile, threads>(simt, to, from, here.sequence, keeps_keys ? here.key_begin : here.query_begin,
                                       here.head, here.first, keeps_keys ? here.keys : here.queries,
                                       x.problem.head_size);
    }
    /// Starts copying a tile of streamed rows into a slot, unless all have been copied.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void fetch(Simt simt, const attention_block& here, const stream& rows, int slot) const {
        const word at = streamed_at + static_cast<word>(slot) * slot_bytes;
        const streamed_tile a{{at}}, b{{at + streamed_tile::bytes}};
        if (rows.are_there()) {
            const int begin = keeps_keys ? here.query_begin : here.key_begin,
                      head = keeps_keys ? rows.head : here.head / x.problem.members,
                      end = keeps_keys ? here.queries : here.keys;
            fetch_rows<streamed_tile, threads>(simt, a, keeps_keys ? x.q : x.k, here.sequence, begin, head, rows.first,
                                               end, x.problem.head_size);
            fetch_rows<streamed_tile, threads>(simt, b, keeps_keys ? x.d_o : x.v, here.sequence, begin, head,
                                               rows.first, end, x.problem.head_size);
            if constexpr (keeps_keys) {
                fetch_terms<StreamedRows>(simt, terms_at + static_cast<word>(slot) * term_bytes,
                                          x.terms.from(x.problem.first_term(here, rows.head) + rows.first));
            }
        }
        simt.async_commit();
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_tile(Simt simt, int slot, int first, lane_part& mine) const {
        const word at = streamed_at + static_cast<word>(slot) * slot_bytes;
        const streamed_tile a{{at}}, b{{at + streamed_tile::bytes}};
        HALFTONE_UNROLL for (int s = 0; s < StreamedRows; s += 16) {
            const int row = first + s;
            if (!mine.some_see(row)) continue;
            block_sums scores[RowBlocks][2] = {}, products[RowBlocks][2] = {};
            HALFTONE_UNROLL for (int d = 0; d < Head; d += columns) {
                if (!x.problem.template has_columns<T, Head>(d)) continue;
                const vec<word, 4> right_a = a.read(simt, mine.place, s, d), right_b = b.read(simt, mine.place, s, d);
                HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                    vec<word, 4> left_a, left_b;
                    if (d < held) {
                        left_a = mine.held_a[m][d / columns], left_b = mine.held_b[m][d / columns];
                    } else {
                        left_a = mine.kept_a.read(simt, mine.place, 16 * m, d);
                        left_b = mine.kept_b.read(simt, mine.place, 16 * m, d);
                    }
                    multiply_block<T>(simt, scores[m][0], left_a, rows_as_columns(right_a, 0));
                    multiply_block<T>(simt, scores[m][1], left_a, rows_as_columns(right_a, 1));
                    multiply_block<T>(simt, products[m][0], left_b, rows_as_columns(right_b, 0));
                    multiply_block<T>(simt, products[m][1], left_b, rows_as_columns(right_b, 1));
                }
            }
            to_weights(simt, slot, s, row, mine, scores, products);
            left_operand<T> score_gradients[RowBlocks], weights[RowBlocks];
            HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                score_gradients[m] = as_left<T>(simt, products[m][0], products[m][1]);
                weights[m] = as_left<T>(simt, scores[m][0], scores[m][1]);
            }
            const row_window window = mine.window(row);
            bool careful_a = false, careful_b = false;
            if (!mine.all_see(row)) {
                careful_a = any_not_finite<T>(simt, x.problem, a, mine.place, s);
                if constexpr (keeps_keys) careful_b = any_not_finite<T>(simt, x.problem, b, mine.place, s);
            }
            add_rows_of_all_columns<T>(simt, x.problem, a, mine.place, s, score_gradients, mine.score_gradient_sums,
                                       careful_a, window);
            if constexpr (keeps_keys)
                add_rows_of_all_columns<T>(simt, x.problem, b, mine.place, s, weights, mine.weight_sums, careful_b,
                                           window);
        }
    }

    /// Turns scores into weights, and the products of d_o and v into score gradients.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void to_weights(Simt simt, int slot, int s, int row, const lane_part& mine,
                                           block_sums (&scores)[RowBlocks][2],
                                           block_sums (&products)[RowBlocks][2]) const {
        const float scale = x.problem.scale * detail::log2_of_e;
        const shared_span<query_term> all_terms{terms_at + static_cast<word>(slot) * term_bytes, StreamedRows};
        HALFTONE_UNROLL for (int n = 0; n < 2; ++n) {
            query_term streamed_terms[2] = {};
            if constexpr (keeps_keys) {
                HALFTONE_UNROLL for (int e = 0; e < 2; ++e) streamed_terms[e] =
                    simt.load(all_terms, s + 8 * n + simt.lane() % 4 * 2 + e);
            }
            HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    const query_term term = keeps_keys ? streamed_terms[e % 2] : mine.terms[m][e / 2];
                    float& score = scores[m][n][e];
                    score = power_of_two(weight_exponent(score, scale, term));
                    products[m][n][e] = score_gradient(score, products[m][n][e], term);
                }
            }
        }
        if (mine.all_see(row)) return;
        // Indices are relative to the lane's first streamed row, and for its first kept row.
        const attention_block here = kept_block(simt, here_at);
        const int streamed = row + simt.lane() % 4 * 2, left = (keeps_keys ? here.queries : here.keys) - streamed;
        const int first = here.first + simt.warp() * warp_rows + simt.lane() / 4 - streamed +
                          (keeps_keys ? -here.offset : here.offset);
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int n = 0; n < 2; ++n) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    const int down = 16 * m + 8 * (e / 2), across = 8 * n + e % 2;
                    const bool is_hidden = keeps_keys ? across - down < first : across - down > first;
                    if (is_hidden || across >= left) scores[m][n][e] = products[m][n][e] = 0;
                }
            }
        }
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const kept_tile& tile, block_sums (&sums)[RowBlocks][Head / 8],
                                           float factor, const head_vectors<T>& to) const {
        const attention_block here = kept_block(simt, here_at);
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) sums[m][n][e] *= factor;
            }
        }
        tile.template write<RowBlocks>(
            simt, simt.warp() * warp_rows, sums,
            to.from(here.sequence, keeps_keys ? here.key_begin : here.query_begin, here.head), to.time_stride,
            here.first + simt.warp() * warp_rows, keeps_keys ? here.keys : here.queries, x.problem.head_size);
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
