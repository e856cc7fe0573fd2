// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention on a GPU with matrix instructions, for 16-bit types.
///
/// One kernel gives dq by queries, another dk and dv by keys, so that every sum has one owner and one order. A block
/// keeps rows of its own side, 16 RowBlocks of them to a warp, and streams the other side's through two slots of shared
/// memory. Nothing of the softmax depends on a whole row any more, so scores live for 16 streamed rows at a time, in
/// registers.
#pragma once

#include <halftone/kernel/attention/device_fragments.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

/// dq of some queries, or dk and dv of some keys; head_size is at most Head. With the weights p and the slopes
/// ds = p (d_o v^T - o d_o^T), computed anew: dq = scale ds k, dk = scale ds^T q, dv = p^T d_o. Chunks of all operands
/// lie on multiples of 16 bytes.
template <class T, int Head, int RowBlocks, attention_side Side>
struct flash_attention_slopes_kernel {
    static constexpr bool keeps_keys = Side == attention_side::keys;
    static constexpr int warps = 4, threads = 32 * warps, warp_rows = 16 * RowBlocks, kept_rows = warps * warp_rows;
    static constexpr int streamed_rows = Head > 64 ? 32 : 64;
    // Of the kept rows so many columns stay in registers; the others are read again and again.
    static constexpr int held = keeps_keys && Head * RowBlocks > 96 ? 96 / RowBlocks / 32 * 32 : Head;
    using kept_tile = head_tile<T, kept_rows, Head>;
    using streamed_tile = head_tile<T, streamed_rows, Head>;
    // Of each side two tiles: q or k, which the scores are products of, then d_o or v. And the terms of streamed
    // queries.
    static constexpr word slot_bytes = 2 * streamed_tile::bytes, streamed_at = 2 * kept_tile::bytes,
                          terms_at = streamed_at + 2 * slot_bytes,
                          term_bytes = keeps_keys ? streamed_rows * sizeof(query_term) : 0,
                          shared_bytes = terms_at + 2 * term_bytes;

    head_vectors<const T> q, d_o, k, v;
    global_span<const query_term> terms;
    head_vectors<T> dq, dk, dv;
    attention_problem problem;

    HALFTONE_HD attention_grid parts() const {
        return keeps_keys ? attention_grid{problem.batch, problem.groups, problem.keys, kept_rows}
                          : attention_grid{problem.batch, problem.heads, problem.queries, kept_rows};
    }
    grid_shape grid() const { return parts().shape(); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const attention_part part = keeps_keys ? parts().part(simt.block().x) : parts().part_from_last(simt.block().x);
        const kept_tile kept_a{{0}}, kept_b{{kept_tile::bytes}};
        if constexpr (keeps_keys) {
            fetch(simt, kept_a, k, part.batch, part.head, part.first, problem.keys);
            fetch(simt, kept_b, v, part.batch, part.head, part.first, problem.keys);
        } else {
            fetch(simt, kept_a, q, part.batch, part.head, part.first, problem.queries);
            fetch(simt, kept_b, d_o, part.batch, part.head, part.first, problem.queries);
        }
        simt.async_commit();
        stream rows = stream_of(part);
        int slot = 0;
        fetch(simt, part, rows, slot);
        simt.async_wait(constant<1>{});
        simt.barrier();

        lane_part mine;
        mine.first = part.first + simt.warp() * warp_rows;
        mine.kept_a = kept_a.from_row(simt.warp() * warp_rows);
        mine.kept_b = kept_b.from_row(simt.warp() * warp_rows);
        mine.place = kept_tile::place_of(simt);
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int d = 0; d < held; d += 16) {
                mine.held_a[m][d / 16] = simt.ldmatrix_x4(mine.kept_a.block(mine.place, 16 * m, d));
                mine.held_b[m][d / 16] = simt.ldmatrix_x4(mine.kept_b.block(mine.place, 16 * m, d));
            }
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                const int query = mine.first + 16 * m + 8 * half + simt.lane() / 4;
                if (!keeps_keys && query < problem.queries)
                    mine.terms[m][half] = simt.load(terms, first_term(part.batch, part.head) + query);
            }
        }

        while (rows.are_there()) {
            simt.async_wait(constant<0>{});
            simt.barrier();  // these rows are there, and all warps are done with the previous ones
            const int first = rows.first;
            rows.next();
            fetch(simt, part, rows, 1 - slot);
            add_tile(simt, slot, first, mine);
            slot = 1 - slot;
        }

        if constexpr (keeps_keys) {
            const int group = rows.heads_end / problem.members - 1;  // part.head, for which the loop has no register
            write(simt, kept_a, mine.slope_sums, problem.scale, dk, part.batch, group, mine.first, problem.keys);
            write(simt, kept_b, mine.weight_sums, 1.0f, dv, part.batch, group, mine.first, problem.keys);
        } else {
            write(simt, kept_a, mine.slope_sums, problem.scale, dq, part.batch, part.head, mine.first, problem.queries);
        }
    }

  private:
    /// The streamed rows in their order: those from `begin` to `end` of one query head after the other.
    struct stream {
        int head, heads_end, first, begin, end;

        HALFTONE_HD HALFTONE_INLINE bool are_there() const { return head < heads_end && first < end; }
        HALFTONE_HD HALFTONE_INLINE void next() {
            first += streamed_rows;
            if (first < end) return;
            first = begin;
            ++head;
        }
    };
    HALFTONE_HD HALFTONE_INLINE stream stream_of(const attention_part& part) const {
        if constexpr (keeps_keys) {
            const int begin = problem.first_query(part.first) / streamed_rows * streamed_rows;
            return {part.head * problem.members, (part.head + 1) * problem.members, begin, begin, problem.queries};
        } else {
            return {part.head, part.head + 1, 0, 0, problem.keys_seen(part.first + kept_rows)};
        }
    }
    HALFTONE_HD HALFTONE_INLINE extent first_term(int batch, int head) const {
        return (batch * problem.heads + head) * padded_queries(problem.queries);
    }

    /// What a lane has of its warp's kept rows.
    struct lane_part {
        int first;  ///< of these rows
        kept_tile kept_a, kept_b;
        word place;
        vec<word, 4> held_a[RowBlocks][held > 0 ? held / 16 : 1], held_b[RowBlocks][held > 0 ? held / 16 : 1];
        query_term terms[RowBlocks][2] = {};
        block_sums slope_sums[RowBlocks][Head / 8] = {}, weight_sums[RowBlocks][keeps_keys ? Head / 8 : 1] = {};
    };

    HALFTONE_KERNEL template <class Simt, class Tile>
    HALFTONE_HD HALFTONE_INLINE void fetch(Simt simt, const Tile& to, const head_vectors<const T>& x, int batch,
                                           int head, int first, int end) const {
        tile_source<T, Tile, threads>::of(simt, x.from(batch, 0, head), x.time_stride, first, end, problem.head_size)
            .fetch(simt, to);
    }
    /// Starts to copy streamed rows into a slot, if there are any.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void fetch(Simt simt, const attention_part& part, const stream& rows, int slot) const {
        const word at = streamed_at + static_cast<word>(slot) * slot_bytes;
        const streamed_tile a{{at}}, b{{at + streamed_tile::bytes}};
        if (rows.are_there()) {
            if constexpr (keeps_keys) {
                fetch(simt, a, q, part.batch, rows.head, rows.first, problem.queries);
                fetch(simt, b, d_o, part.batch, rows.head, rows.first, problem.queries);
                const int pair = simt.thread();  // of terms, which are padded to whole tiles
                if (pair < streamed_rows / 2) {
                    const auto source = simt::as_vectors<2>(terms.from(first_term(part.batch, rows.head) + rows.first));
                    simt.async_copy16(
                        shared_span<simt::chunk<float>>{
                            terms_at + static_cast<word>(slot) * term_bytes + static_cast<word>(pair) * 16, 1},
                        global_span<const float>{&source.data[pair].value[0].value[0], 4}, 4);
                }
            } else {
                fetch(simt, a, k, part.batch, part.head / problem.members, rows.first, problem.keys);
                fetch(simt, b, v, part.batch, part.head / problem.members, rows.first, problem.keys);
            }
        }
        simt.async_commit();
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_tile(Simt simt, int slot, int first, lane_part& mine) const {
        const word at = streamed_at + static_cast<word>(slot) * slot_bytes;
        const streamed_tile a{{at}}, b{{at + streamed_tile::bytes}};
        HALFTONE_UNROLL for (int s = 0; s < streamed_rows; s += 16) {
            // Of the 16 rows some are seen by, or see, some of the warp's.
            const int row = first + s;
            if (keeps_keys ? row >= problem.queries || row + 15 + problem.offset < mine.first
                           : row >= problem.keys || row > mine.first + warp_rows - 1 + problem.offset) {
                continue;
            }
            block_sums scores[RowBlocks][2] = {}, products[RowBlocks][2] = {};
            HALFTONE_UNROLL for (int d = 0; d < Head; d += 16) {
                const vec<word, 4> right_a = simt.ldmatrix_x4(a.block(mine.place, s, d)),
                                   right_b = simt.ldmatrix_x4(b.block(mine.place, s, d));
                HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                    vec<word, 4> left_a, left_b;
                    if (d < held) {
                        left_a = mine.held_a[m][d / 16], left_b = mine.held_b[m][d / 16];
                    } else {
                        left_a = simt.ldmatrix_x4(mine.kept_a.block(mine.place, 16 * m, d));
                        left_b = simt.ldmatrix_x4(mine.kept_b.block(mine.place, 16 * m, d));
                    }
                    simt.mma_16816(simt::element<T>{}, scores[m][0], left_a, rows_as_columns(right_a, 0));
                    simt.mma_16816(simt::element<T>{}, scores[m][1], left_a, rows_as_columns(right_a, 1));
                    simt.mma_16816(simt::element<T>{}, products[m][0], left_b, rows_as_columns(right_b, 0));
                    simt.mma_16816(simt::element<T>{}, products[m][1], left_b, rows_as_columns(right_b, 1));
                }
            }
            weigh(simt, slot, s, row, mine, scores, products);
            vec<word, 4> slopes[RowBlocks], weights[RowBlocks];
            HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                slopes[m] = as_left<T>(products[m][0], products[m][1]);
                weights[m] = as_left<T>(scores[m][0], scores[m][1]);
            }
            HALFTONE_UNROLL for (int d = 0; d < Head; d += 16) {
                const vec<word, 4> right_a = simt.ldmatrix_x4_trans(a.block(mine.place, s, d));
                HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                    simt.mma_16816(simt::element<T>{}, mine.slope_sums[m][d / 8], slopes[m], columns(right_a, 0));
                    simt.mma_16816(simt::element<T>{}, mine.slope_sums[m][d / 8 + 1], slopes[m], columns(right_a, 1));
                }
                if constexpr (keeps_keys) {
                    const vec<word, 4> right_b = simt.ldmatrix_x4_trans(b.block(mine.place, s, d));
                    HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                        simt.mma_16816(simt::element<T>{}, mine.weight_sums[m][d / 8], weights[m], columns(right_b, 0));
                        simt.mma_16816(simt::element<T>{}, mine.weight_sums[m][d / 8 + 1], weights[m],
                                       columns(right_b, 1));
                    }
                }
            }
        }
    }

    /// Scores become weights, the products of d_o and v slopes.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void weigh(Simt simt, int slot, int s, int row, const lane_part& mine,
                                           block_sums (&scores)[RowBlocks][2],
                                           block_sums (&products)[RowBlocks][2]) const {
        const float scale = problem.scale * detail::log2_of_e;
        const shared_span<vec<query_term, 2>> pairs{terms_at + static_cast<word>(slot) * term_bytes, streamed_rows / 2};
        HALFTONE_UNROLL for (int n = 0; n < 2; ++n) {
            vec<query_term, 2> streamed_terms{};
            if constexpr (keeps_keys) streamed_terms = simt.load(pairs, (s + 8 * n) / 2 + simt.lane() % 4);
            HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    const query_term term = keeps_keys ? streamed_terms[e % 2] : mine.terms[m][e / 2];
                    float& score = scores[m][n][e];
                    score = power_of_two(std::fma(score, scale, -term[0]));
                    products[m][n][e] = score * (products[m][n][e] - term[1]);
                }
            }
        }
        const bool all_see = keeps_keys
                                 ? row + problem.offset >= mine.first + warp_rows - 1 && row + 16 <= problem.queries
                                 : row + 15 <= mine.first + problem.offset && row + 16 <= problem.keys;
        if (all_see) return;
        // Relative to the lane's first streamed row, and for its first kept one.
        const int streamed = row + simt.lane() % 4 * 2, left = (keeps_keys ? problem.queries : problem.keys) - streamed;
        const int kept = mine.first + simt.lane() / 4 - streamed + (keeps_keys ? -problem.offset : problem.offset);
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int n = 0; n < 2; ++n) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    const int down = 16 * m + 8 * (e / 2), across = 8 * n + e % 2;
                    const bool is_hidden = keeps_keys ? across - down < kept : across - down > kept;
                    if (is_hidden || across >= left) scores[m][n][e] = products[m][n][e] = 0;
                }
            }
        }
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const kept_tile& tile, block_sums (&sums)[RowBlocks][Head / 8],
                                           float factor, const head_vectors<T>& to, int batch, int head, int first,
                                           int end) const {
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) sums[m][n][e] *= factor;
            }
        }
        tile.template write<RowBlocks>(simt, simt.warp() * warp_rows, sums, to.from(batch, 0, head), to.time_stride,
                                       first, end, problem.head_size);
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
