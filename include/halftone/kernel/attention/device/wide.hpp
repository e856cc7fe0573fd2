// SPDX-License-Identifier: MIT
/// \file
/// dk and dv of wide heads on a GPU with matrix instructions, for 16-bit types and for floats that multiply in
/// tfloat32.
///
/// The sums of dk and dv for 16 keys do not fit into one warp's registers, so a pair of warps shares them: one computes
/// scores, weights and dv, the other the products of d_o and v, the score gradients and dk. The weights pass from the
/// first warp to the second through shared memory in the middle of a tile's work, so that both warps have equal shares.
#pragma once

#include <halftone/kernel/attention/device/backward.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// The kernel of the gradients of keys and values for wide heads: as flash_attention_backward_kernel with kept keys, by
/// Pairs pairs of warps.
template <class T, int Head, int Pairs, int StreamedRows>
struct wide_attention_backward_kernel {
    static constexpr int threads = 64 * Pairs, kept_rows = 16 * Pairs, columns = block_columns<T>;
    // This many columns of the kept rows stay in registers; the others are read from shared memory again for every
    // tile.
    static constexpr int held = Head < 32 ? Head : 32;
    using kept_tile = head_tile<T, kept_rows, Head>;
    using streamed_tile = head_tile<T, StreamedRows, Head>;
    static constexpr word slot_bytes = 2 * streamed_tile::bytes, streamed_at = 2 * kept_tile::bytes,
                          weights_at = streamed_at + 2 * slot_bytes,
                          weight_bytes = Pairs * (StreamedRows / 8) * 32 * sizeof(block_sums),
                          terms_at = weights_at + weight_bytes, term_bytes = StreamedRows * sizeof(query_term),
                          here_at = terms_at + 2 * term_bytes, shared_bytes = here_at + sizeof(attention_block);

    attention_score_gradients<T> x;

    grid_shape grid() const { return x.problem.grid(attention_side::keys, kept_rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const attention_block here = x.problem.block(simt, attention_side::keys, kept_rows);
        if (here.first >= here.keys) return;
        keep_block(simt, here_at, here);
        const kept_tile kept_k{{0}}, kept_v{{kept_tile::bytes}};
        fetch_rows<kept_tile, threads>(simt, kept_k, x.k, here.sequence, here.key_begin, here.head, here.first,
                                       here.keys, x.problem.head_size);
        fetch_rows<kept_tile, threads>(simt, kept_v, x.v, here.sequence, here.key_begin, here.head, here.first,
                                       here.keys, x.problem.head_size);
        simt.async_commit();
        stream rows = stream::of_queries(here, x.problem.members);
        int slot = 0;
        fetch(simt, here, rows, slot);
        simt.async_wait(constant<1>{});
        simt.barrier();

        const bool score_gradients = gives_score_gradients(simt);
        const kept_tile mine = (score_gradients ? kept_v : kept_k).from_row(pair(simt) * 16);
        const lane_place place = kept_tile::place_of(simt);
        const int seen_from = here.first + 16 * pair(simt) - here.offset;  // the first query that sees some of the keys
        vec<word, 4> holds[held / columns];
        HALFTONE_UNROLL for (int d = 0; d < held; d += columns) holds[d / columns] = mine.read(simt, place, 0, d);

        block_sums sums[1][Head / 8] = {};
        while (rows.are_there()) {
            simt.async_wait(constant<0>{});
            simt.barrier();  // this tile has arrived, and all warps have finished the previous one
            const int first = rows.first, end = rows.end;
            rows.next();
            fetch(simt, kept_block(simt, here_at), rows, 1 - slot);
            const word at = streamed_at + static_cast<word>(slot) * slot_bytes;
            const streamed_tile q{{at}}, d_o{{at + streamed_tile::bytes}};
            const streamed_tile one{{score_gradients ? d_o.base : q.base}}, other{{score_gradients ? q.base : d_o.base}};

            block_sums scores[StreamedRows / 16][2] = {};  // or products of d_o and v
            HALFTONE_UNROLL for (int s = 0; s < StreamedRows; s += 16) {
                if (first + s >= end || first + s + 15 < seen_from) continue;
                HALFTONE_UNROLL for (int d = 0; d < Head; d += columns) {
                    if (!x.problem.template has_columns<T, Head>(d)) continue;
                    const vec<word, 4> right = one.read(simt, place, s, d);
                    vec<word, 4> left;
                    if (d < held) {
                        left = holds[d / columns];
                    } else {
                        left = mine.read(simt, place, 0, d);
                    }
                    multiply_block<T>(simt, scores[s / 16][0], left, rows_as_columns(right, 0));
                    multiply_block<T>(simt, scores[s / 16][1], left, rows_as_columns(right, 1));
                }
                if (!score_gradients) to_weights(simt, slot, s, first + s, scores[s / 16]);
            }
            simt.barrier();  // the weights are visible to the other warp
            HALFTONE_UNROLL for (int s = 0; s < StreamedRows; s += 16) {
                if (first + s >= end || first + s + 15 < seen_from) continue;
                if (score_gradients) to_score_gradients(simt, slot, s, first + s, scores[s / 16]);
                const left_operand<T> left[1] = {as_left<T>(simt, scores[s / 16][0], scores[s / 16][1])};
                const row_window window{seen_from - first - s, 1, 16, 0};
                // Some keys may not be visible to all of these queries.
                const bool careful = window.first + 15 > 0 && any_not_finite<T>(simt, x.problem, other, place, s);
                add_rows_of_all_columns<T>(simt, x.problem, other, place, s, left, sums, careful, window);
            }
            slot = 1 - slot;
        }

        const float factor = score_gradients ? x.problem.scale : 1.0f;
        HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) sums[0][n][e] *= factor;
        }
        // Stored through the shared memory of the kept rows of this warp, which no other warp reads.
        const attention_block again = kept_block(simt, here_at);
        const head_vectors<T>& to = score_gradients ? x.dk : x.dv;
        mine.template write<1>(simt, 0, sums, to.from(again.sequence, again.key_begin, again.head), to.time_stride,
                               again.first + 16 * pair(simt), again.keys, x.problem.head_size);
    }

  private:
    using stream = row_stream<StreamedRows>;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static int pair(Simt simt) {
        return simt.warp() % Pairs;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static bool gives_score_gradients(Simt simt) {
        return simt.warp() >= Pairs;
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void fetch(Simt simt, const attention_block& here, const stream& rows, int slot) const {
        const word at = streamed_at + static_cast<word>(slot) * slot_bytes;
        if (rows.are_there()) {
            fetch_rows<streamed_tile, threads>(simt, streamed_tile{{at}}, x.q, here.sequence, here.query_begin,
                                               rows.head, rows.first, here.queries, x.problem.head_size);
            fetch_rows<streamed_tile, threads>(simt, streamed_tile{{at + streamed_tile::bytes}}, x.d_o, here.sequence,
                                               here.query_begin, rows.head, rows.first, here.queries,
                                               x.problem.head_size);
            fetch_terms<StreamedRows>(simt, terms_at + static_cast<word>(slot) * term_bytes,
                                      x.terms.from(x.problem.first_term(here, rows.head) + rows.first));
        }
        simt.async_commit();
    }

    /// The terms of the lane's queries in a block of 8, from `row` of the slot on.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<query_term, 2> terms_of(Simt simt, int slot, int row) const {
        const shared_span<query_term> terms{terms_at + static_cast<word>(slot) * term_bytes, StreamedRows};
        const int first = row + simt.lane() % 4 * 2;
        return {simt.load(terms, first), simt.load(terms, first + 1)};
    }
    /// Where a lane stores the weights of a block, and the same lane of the other warp reads them.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static shared_span<block_sums> weights_of(Simt simt, int row) {
        const int which = (pair(simt) * (StreamedRows / 8) + row / 8) * 32 + simt.lane();
        return {weights_at + static_cast<word>(which) * static_cast<word>(sizeof(block_sums)), 1};
    }

    /// Which keys a lane's queries see, relative to its first query, and for its first key.
    struct lane_view {
        int key, left;

        HALFTONE_HD HALFTONE_INLINE bool has_masked(int n, int e) const {
            const int down = 8 * (e / 2), across = 8 * n + e % 2;
            return across - down < key || across >= left;
        }
    };
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE lane_view view_of(Simt simt, int row) const {
        const attention_block here = kept_block(simt, here_at);
        const int query = row + simt.lane() % 4 * 2;
        return {here.first + 16 * pair(simt) + simt.lane() / 4 - query - here.offset, here.queries - query};
    }

    /// Turns scores into weights, and stores them for the other warp.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void to_weights(Simt simt, int slot, int s, int row, block_sums (&scores)[2]) const {
        const float scale = x.problem.scale * detail::log2_of_e;
        const lane_view seen = view_of(simt, row);
        HALFTONE_UNROLL for (int n = 0; n < 2; ++n) {
            const vec<query_term, 2> terms = terms_of(simt, slot, s + 8 * n);
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                const float weight = power_of_two(weight_exponent(scores[n][e], scale, terms[e % 2]));
                scores[n][e] = seen.has_masked(n, e) ? 0.0f : weight;
            }
            simt.store(weights_of(simt, s + 8 * n), 0, scores[n]);
        }
    }
    /// Turns products into score gradients.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void to_score_gradients(Simt simt, int slot, int s, int row, block_sums (&products)[2]) const {
        const lane_view seen = view_of(simt, row);
        HALFTONE_UNROLL for (int n = 0; n < 2; ++n) {
            const vec<query_term, 2> terms = terms_of(simt, slot, s + 8 * n);
            const block_sums weights = simt.load(weights_of(simt, s + 8 * n), 0);
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                const float score_gradient_value = score_gradient(weights[e], products[n][e], terms[e % 2]);
                products[n][e] = seen.has_masked(n, e) ? 0.0f : score_gradient_value;
            }
        }
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
