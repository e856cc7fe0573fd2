// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention by Hopper's instructions (wgmma and TMA), for 16-bit types and heads of up to 128. As
/// in backward.hpp, one kernel computes dq by blocks of queries, another dk and dv by blocks of keys; every sum is computed
/// by one warp in one order.
///
/// A block keeps 128 rows of its own side, 64 in each of two warpgroups that multiply. One thread of a third warpgroup
/// copies tiles of 64 rows of the other side into a ring of slots in shared memory. Each slot has two mbarriers:
///
///     full     its bytes have arrived; counted by the copies that fill it
///     empty    all multiplying warps have finished reading it
///
/// A warpgroup multiplies 64 x 64 scores, and as many products of d_o and v, from shared memory; it turns them into
/// weights and gradients of the scores in registers, which are the left operands of the next products. While these are
/// multiplied, the scores of the next tile are.
///
/// A tile of which some rows are masked or beyond the end is added by single warps (mma.sync), which can leave out a
/// masked row for some of the kept rows only: 0 times a NaN would be a NaN. Masked rows that are not finite are found by
/// their masked scores, which are then not finite either.
///
/// Numeric contract: attention.hpp's. The order of additions depends on a row's place and on the shapes alone.
#pragma once

#include <halftone/kernel/attention/device/backward.hpp>
#include <halftone/kernel/attention/device/warpgroup.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// A block's part of a problem without packed sequences. Blocks go through four heads together, so that what they stream
/// stays in the L2 cache, and within them from part to part: first the longest under a causal mask.
HALFTONE_KERNEL template <class Simt>
HALFTONE_HD HALFTONE_INLINE attention_block block_of_heads_together(Simt simt, const attention_problem& p,
                                                                    attention_side side, int rows) {
    constexpr int together = 4;
    const bool keeps_queries = side == attention_side::queries;
    const int heads = keeps_queries ? p.heads : p.groups, all = p.sequences * heads, parts = p.parts(side, rows);
    const int bundle = simt.block().x / (together * parts), rest = simt.block().x - bundle * together * parts,
              size = smaller(together, all - bundle * together), part = rest / size,
              head = bundle * together + rest - part * size;
    return {head / heads,
            head % heads,
            (keeps_queries ? parts - 1 - part : part) * rows,
            p.mask == attention_mask::causal ? p.keys - p.queries : p.keys,
            p.queries,
            p.keys,
            0,
            0};
}

/// Starts copying a tile of one head from `row` on; rows beyond the end become zeros.
HALFTONE_KERNEL template <class Tile, class Simt, class Map>
HALFTONE_HD HALFTONE_INLINE void fetch_head_tile(Simt simt, word to, const Map& from, int row, int head, int sequence,
                                                 shared_span<simt::mbarrier> done) {
    HALFTONE_UNROLL for (int column = 0; column < Tile::head_size; column += 64)
        simt.bulk_copy(to + static_cast<word>(column) * Tile::rows * 2, from, column, row, head, sequence, done);
}

/// dq of some queries, or dk and dv of some keys; head_size is at most Head. With the recomputed weights p and score gradients
/// ds = p (d_o v^T - o d_o^T): dq = scale ds k, dk = scale ds^T q, dv = p^T d_o.
// local memory of `warpgroup_attention_backward_kernel<*, 128, (attention_side)1, *`: at most 96 bytes of stack, 96 of stores, 128 of
// loads. By keys, sums and products take 208 of 240 registers, and what the loop over tiles needs rarely is in memory.
template <class T, int Head, attention_side Side, class Map>
struct warpgroup_attention_backward_kernel {
    static constexpr bool keeps_keys = Side == attention_side::keys;
    static constexpr int threads = 384, min_blocks = 1, multiplying_warps = 8, rows = 64, kept_rows = 2 * rows;
    static constexpr int stages = Head > 64 ? 3 : 4;
    using tile = head_tile<T, rows, Head>;
    using result_tile = head_tile<T, kept_rows, Head>;
    // Each side has two tiles: first q or k, from which scores are computed, then d_o or v. Kept: those of the first
    // warpgroup, then those of the second. A slot of streamed queries also has their terms.
    static constexpr word pair_bytes = 2 * tile::bytes, slots_at = 2 * pair_bytes,
                          terms_at = slots_at + stages * pair_bytes,
                          term_bytes = keeps_keys ? rows * sizeof(query_term) : 0,
                          results_at = terms_at + stages * term_bytes;
    // Before a warp writes results, it keeps left operands where its 16 rows of them will be in a panel of 64 columns.
    static constexpr word panel_bytes = kept_rows * 128,
                          here_at = results_at + (keeps_keys || Head > 64 ? 2 : 1) * panel_bytes,
                          barriers_at = here_at + sizeof(attention_block),
                          shared_bytes = barriers_at + (2 * stages + 1) * sizeof(simt::mbarrier);
    static_assert(result_tile::bytes == Head / 64 * panel_bytes && 16 * 128 == rows / 16 * 32 * 16);

    Map q, d_o, k, v;  // in boxes of 64 rows x 64 columns
    Map terms;         // as lines of 64 16-bit numbers, in boxes of eight
    attention_score_gradients<T> x;

    grid_shape grid() const { return x.problem.grid(Side, kept_rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        if constexpr (Simt::has_wgmma) {
            if (simt.thread() == 0) {
                simt.mbarrier_init(kept_arrived(), 1);
                for (int slot = 0; slot < stages; ++slot) {
                    simt.mbarrier_init(full(slot), 1);
                    simt.mbarrier_init(empty(slot), multiplying_warps);
                }
                simt.mbarrier_init_fence();
            }
            keep_block(simt, here_at, block_of_heads_together(simt, x.problem, Side, kept_rows));
            simt.barrier();
            const int group = simt.warpgroup();
            if (group == 2) {
                simt.fewer_registers(constant<24>{});
                if (simt.thread() % 128 == 0) fetch_all(simt, kept_block(simt, here_at));
            } else {
                simt.more_registers(constant<240>{});
                multiply(simt, group);
            }
        }
    }

  private:
    static constexpr int steps = rows / 16, score_blocks = rows / 8, head_blocks = Head / 8;
    using scores_of_lane = block_sums[score_blocks];
    using sums_of_lane = block_sums[1][head_blocks];
    using left_of_lane = vec<word, 4>[steps];
    using terms_of_two_rows = vec<query_term, 2>;  // of a lane's kept queries, which are eight rows apart
    // Heads of 128 leave no registers for weights and score gradients at the same time: dv is added before the latter
    // are computed.
    static constexpr bool shares_registers = keeps_keys && Head > 64;
    static constexpr int beside_products = shares_registers ? 0 : 1;  // groups in flight while they are used

    HALFTONE_HD HALFTONE_INLINE static shared_span<simt::mbarrier> barrier_number(int i) {
        return {barriers_at + static_cast<word>(i) * static_cast<word>(sizeof(simt::mbarrier)), 1};
    }
    HALFTONE_HD HALFTONE_INLINE static shared_span<simt::mbarrier> kept_arrived() { return barrier_number(0); }
    HALFTONE_HD HALFTONE_INLINE static shared_span<simt::mbarrier> full(int slot) { return barrier_number(1 + slot); }
    HALFTONE_HD HALFTONE_INLINE static shared_span<simt::mbarrier> empty(int slot) {
        return barrier_number(1 + stages + slot);
    }
    HALFTONE_HD HALFTONE_INLINE static word kept_at(int group) { return static_cast<word>(group) * pair_bytes; }
    HALFTONE_HD HALFTONE_INLINE static word slot_at(int slot) {
        return slots_at + static_cast<word>(slot) * pair_bytes;
    }
    HALFTONE_HD HALFTONE_INLINE static word slot_terms_at(int slot) {
        return terms_at + static_cast<word>(slot) * term_bytes;
    }

    /// The next slot, and how often the ring has wrapped around: phases of a barrier alternate between 0 and 1.
    struct ring_place {
        int slot = 0;
        word turn = 0;
        HALFTONE_HD HALFTONE_INLINE void advance() {
            if (++slot == stages) slot = 0, turn ^= 1;
        }
        HALFTONE_HD HALFTONE_INLINE ring_place next() const {
            ring_place n = *this;
            n.advance();
            return n;
        }
    };

    /// The rows that a block streams: [begin, end) of each of some heads, in tiles.
    struct streamed_rows {
        int first_head, heads, begin, end;
    };
    HALFTONE_HD HALFTONE_INLINE streamed_rows rows_for(const attention_block& here) const {
        const int members = x.problem.members;
        if (keeps_keys) return {here.head * members, members, here.first_query(here.first) / rows * rows, here.queries};
        return {here.head / members, 1, 0, here.keys_seen(here.first + kept_rows)};
    }

    /// What a warp knows of its kept rows: those of its warpgroup begin with `first`, its own 16 with `own`. Some of
    /// the warpgroup's see, or are seen by, the streamed rows from some_from to some_end; all of them those up to
    /// all_end, or, where keys are kept, from some_from + 63 on.
    struct kept_part {
        int first, own;
        int some_from, some_end, all_end;

        HALFTONE_HD HALFTONE_INLINE kept_part(const attention_block& here, int group, int warp)
            : first(here.first + rows * group), own(first + 16 * (warp % 4)) {
            if (keeps_keys) {
                some_from = first - here.offset, some_end = first < here.keys ? here.queries : 0;
                all_end = here.queries;
            } else {
                some_from = 0, some_end = first < here.queries ? smaller(here.keys, first + here.offset + rows) : 0;
                all_end = smaller(some_end, first + here.offset + 1);
            }
        }
        HALFTONE_HD HALFTONE_INLINE bool some_see(int row) const { return row < some_end && row + rows > some_from; }
        HALFTONE_HD HALFTONE_INLINE bool all_see(int row) const {
            return row + rows <= all_end && (!keeps_keys || (row >= some_from + rows - 1 && some_end > 0));
        }
        /// The visible part of 16 streamed rows for the warp's rows; rows beyond the end are zeros.
        HALFTONE_HD HALFTONE_INLINE row_window window(const attention_block& here, int row) const {
            return keeps_keys ? row_window{own - here.offset - row, 1, 16, 0}
                              : row_window{0, 0, smaller(here.keys, own + here.offset + 1) - row, 1};
        }
        HALFTONE_HD HALFTONE_INLINE bool warp_sees_some(const attention_block& here, int row) const {
            return keeps_keys ? row < here.queries && row + 15 >= own - here.offset
                              : row < smaller(here.keys, own + here.offset + 16);
        }
    };

    // ---- copies

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void fetch_all(Simt simt, const attention_block& here) const {
        simt.mbarrier_expect(kept_arrived(), 2 * pair_bytes);
        for (int group = 0; group < 2; ++group) {
            fetch_pair(simt, kept_at(group), keeps_keys ? k : q, keeps_keys ? v : d_o, here.first + rows * group,
                       here.head, here.sequence, kept_arrived());
        }
        const streamed_rows all = rows_for(here);
        ring_place at;
        for (int head = all.first_head; head < all.first_head + all.heads; ++head) {
            for (int row = all.begin; row < all.end; row += rows) {
                simt.mbarrier_wait(empty(at.slot), at.turn ^ 1);
                simt.mbarrier_expect(full(at.slot), pair_bytes + term_bytes);
                fetch_pair(simt, slot_at(at.slot), keeps_keys ? q : k, keeps_keys ? d_o : v, row, head, here.sequence,
                           full(at.slot));
                if constexpr (keeps_keys) {
                    const extent line = (x.problem.first_term(here, head) + row) / 8;
                    simt.bulk_copy(slot_terms_at(at.slot), terms, 0, static_cast<int>(line), full(at.slot));
                }
                at.advance();
            }
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void fetch_pair(Simt simt, word to, const Map& a, const Map& b, int row,
                                                       int head, int sequence, shared_span<simt::mbarrier> done) {
        fetch_head_tile<tile>(simt, to, a, row, head, sequence, done);
        fetch_head_tile<tile>(simt, to + tile::bytes, b, row, head, sequence, done);
    }

    // ---- products

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void multiply(Simt simt, int group) const {
        terms_of_two_rows terms_of_rows{};
        if constexpr (!keeps_keys) {
            const attention_block here = kept_block(simt, here_at);
            const kept_part mine(here, group, simt.warp());
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                const int query = mine.own + 8 * half + simt.lane() / 4;
                terms_of_rows[half] = {-detail::attention_masked_score, 0, 0, 0};
                if (query < here.queries)
                    terms_of_rows[half] = simt.load(x.terms, x.problem.first_term(here, here.head) + query);
            }
        }
        sums_of_lane score_gradient_sums = {}, weight_sums = {};
        simt.mbarrier_wait(kept_arrived(), 0);
        ring_place at;
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // a run-time count, and a large body
#endif
        for (int head = 0; head < (keeps_keys ? x.problem.members : 1); ++head) {
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
            for (int row = rows_for(kept_block(simt, here_at)).begin;;) {
                const attention_block here = kept_block(simt, here_at);
                const kept_part mine(here, group, simt.warp());
                const int end = rows_for(here).end;
                if (row >= end) break;
                if (mine.all_see(row)) {
                    const int count = (smaller(mine.all_end, end) - row) / rows;
                    if constexpr (keeps_keys) {
                        add_whole_queries(simt, group, count, at, score_gradient_sums, weight_sums);
                    } else {
                        add_whole_keys(simt, group, count, at, terms_of_rows, score_gradient_sums);
                    }
                    row += count * rows;
                } else {
                    simt.mbarrier_wait(full(at.slot), at.turn);
                    if (mine.some_see(row))
                        add_partly(simt, here, mine, group, row, at.slot, terms_of_rows, score_gradient_sums,
                                   weight_sums);
                    give_back(simt, at.slot);
                    at.advance();
                    row += rows;
                }
            }
        }
        write(simt, group, score_gradient_sums, x.problem.scale, keeps_keys ? x.dk : x.dq);
        if constexpr (keeps_keys) write(simt, group, weight_sums, 1.0f, x.dv);
    }

    /// dk and dv of `count` tiles of queries that all see every key of the warpgroup. The weights are computed during the
    /// products of d_o and v; dk of one tile is multiplied at the same time as the next tile's scores.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_whole_queries(Simt simt, int group, int count, ring_place& at,
                                                       sums_of_lane& dk, sums_of_lane& dv) const {
        scores_of_lane scores, products;
        left_of_lane weights, own_registers;
        left_of_lane& score_gradients = shares_registers ? weights : own_registers;
        int before = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
        for (int i = 0; i < count; ++i) {
            simt.mbarrier_wait(full(at.slot), at.turn);
            const word terms_here = slot_terms_at(at.slot);
            begin_scores(simt, group, at.slot, scores, products);
            simt.wgmma_wait(constant<1>{}, scores);  // for the scores, and dk of the tile before
            simt.hold(scores), simt.hold(dk[0]), simt.hold(dv[0]), simt.hold(weights), simt.hold(score_gradients);
            if (i > 0) give_back(simt, before);
            HALFTONE_UNROLL for (int j = 0; j < score_blocks; ++j) to_weights(simt, j, terms_here, {}, scores[j]);
            to_left(simt, scores, weights);
            begin_sums(simt, dv, weights, slot_at(at.slot) + tile::bytes);
            simt.wgmma_wait(constant<beside_products>{}, products);
            simt.hold(products), simt.hold(scores);
            if (shares_registers) simt.hold(dv[0]), simt.hold(weights);
            HALFTONE_UNROLL for (int j = 0; j < score_blocks; ++j)
                to_score_gradients(simt, j, terms_here, {}, scores[j], products[j]);
            to_left(simt, products, score_gradients);
            begin_sums(simt, dk, score_gradients, slot_at(at.slot));
            before = at.slot;
            at.advance();
        }
        simt.wgmma_wait(constant<0>{}, dk[0]);
        simt.hold(dv[0]), simt.hold(weights), simt.hold(score_gradients);
        give_back(simt, before);
    }

    /// dq of `count` tiles of keys that all of the warpgroup's queries see; it is multiplied at the same time as the next
    /// tile's scores.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_whole_keys(Simt simt, int group, int count, ring_place& at,
                                                    const terms_of_two_rows& terms_of_rows, sums_of_lane& dq) const {
        scores_of_lane scores, products;
        left_of_lane score_gradients;
        int before = 0;
        simt.mbarrier_wait(full(at.slot), at.turn);
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
        for (int i = 0; i < count; ++i) {
            begin_scores(simt, group, at.slot, scores, products);
            simt.wgmma_wait(constant<1>{}, scores);  // for the scores, and dq of the tile before
            simt.hold(scores), simt.hold(dq[0]), simt.hold(score_gradients);
            if (i > 0) give_back(simt, before);
            HALFTONE_UNROLL for (int j = 0; j < score_blocks; ++j) to_weights(simt, j, 0, terms_of_rows, scores[j]);
            simt.hold(scores);
            // Here, since the compiler would move the wait below up to before the weights unless a branch parts them.
            const ring_place next = at.next();
            if (i + 1 < count) simt.mbarrier_wait(full(next.slot), next.turn);
            simt.wgmma_wait(constant<0>{}, products);
            simt.hold(scores);
            HALFTONE_UNROLL for (int j = 0; j < score_blocks; ++j)
                to_score_gradients(simt, j, 0, terms_of_rows, scores[j], products[j]);
            to_left(simt, products, score_gradients);
            begin_sums(simt, dq, score_gradients, slot_at(at.slot));
            before = at.slot;
            at = next;
        }
        simt.wgmma_wait(constant<0>{}, dq[0]);
        simt.hold(score_gradients);
        give_back(simt, before);
    }

    /// Issues the scores of a slot's rows and the products of d_o and v, a group of instructions each.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void begin_scores(Simt simt, int group, int slot, scores_of_lane& scores,
                                                         scores_of_lane& products) {
        // Held, since the compiler would keep the addresses of all steps in registers, which are scarce.
        vec<word, 4> places[1] = {{kept_at(group), slot_at(slot), 0, 0}};
        simt.hold(places), simt.hold(scores), simt.hold(products);
        simt.wgmma_fence();
        begin_products(simt, scores, places[0][0], places[0][1]);
        begin_products(simt, products, places[0][0] + tile::bytes, places[0][1] + tile::bytes);
    }
    /// to = a b^T of two tiles, issued.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void begin_products(Simt simt, scores_of_lane& to, word a, word b) {
        using operand = simt::wgmma_operand<false>;
        HALFTONE_UNROLL for (int step = 0; step < Head / 16; ++step) {
            const word at = static_cast<word>(step / 4) * rows * 128 + static_cast<word>(step % 4) * operand::step;
            simt.wgmma(simt::element<T>{}, to, operand{a + at}, operand{b + at}, step > 0);
        }
        simt.wgmma_commit();
    }
    /// sums += left x tile, issued.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void begin_sums(Simt simt, sums_of_lane& sums, left_of_lane& left,
                                                       word of_tile) {
        using operand = simt::wgmma_operand<true>;
        simt.hold(left), simt.hold(sums[0]);
        simt.wgmma_fence();
        HALFTONE_UNROLL for (int step = 0; step < steps; ++step) {
            simt.wgmma(simt::element<T>{}, sums[0], left[step],
                       operand{of_tile + static_cast<word>(step) * operand::step}, true);
        }
        simt.wgmma_commit();
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void to_left(Simt simt, const scores_of_lane& from, left_of_lane& to) {
        HALFTONE_UNROLL for (int step = 0; step < steps; ++step) to[step] =
            as_left<T>(simt, from[2 * step], from[2 * step + 1])[0];
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void give_back(Simt simt, int slot) {
        simt.warp_barrier();  // all of its lanes have read
        if (simt.lane() == 0) simt.mbarrier_arrive(empty(slot));
    }
    /// The place of the term of column 8 j + 2 (lane % 4) + e of a tile.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static word term_place(Simt simt, word terms_here, int j, int e) {
        return terms_here + static_cast<word>(128 * j) +
               (static_cast<word>(simt.lane() % 4 * 32) ^ static_cast<word>(16 * (j ^ e)));
    }
    /// Turns the scores of 8 streamed rows, block number j, into weights, by the terms of these or of the kept queries.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void to_weights(Simt simt, int j, word terms_here,
                                                const terms_of_two_rows& terms_of_rows, block_sums& scores) const {
        const float scale = x.problem.scale * detail::log2_of_e;
        HALFTONE_UNROLL for (int e = 0; e < 2; ++e) {
            vec<float, 2> of_column{};
            if constexpr (keeps_keys)
                of_column = simt.load(shared_span<vec<float, 2>>{term_place(simt, terms_here, j, e), 1}, 0);
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                const query_term term = keeps_keys ? query_term{of_column[0], of_column[1], 0, 0} : terms_of_rows[half];
                scores[2 * half + e] = power_of_two(weight_exponent(scores[2 * half + e], scale, term));
            }
        }
    }
    /// Turns products of d_o and v into the gradients of the scores, likewise.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void to_score_gradients(Simt simt, int j, word terms_here,
                                                        const terms_of_two_rows& terms_of_rows,
                                                        const block_sums& weights, block_sums& products) const {
        HALFTONE_UNROLL for (int e = 0; e < 2; ++e) {
            float of_column = 0;
            if constexpr (keeps_keys) {
                const word third = term_place(simt, terms_here, j, e) + 2 * sizeof(float);
                of_column = simt.load(shared_span<float>{third, 1}, 0);
            }
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                const query_term term = keeps_keys ? query_term{0, 0, of_column, 0} : terms_of_rows[half];
                products[2 * half + e] = score_gradient(weights[2 * half + e], products[2 * half + e], term);
            }
        }
    }

    /// Which of a lane's pairs are hidden, by a mask or beyond the end. `first` and `end` are relative to the lane's first
    /// streamed row, and for its first kept row.
    struct hidden_pairs {
        int first, end;

        HALFTONE_HD HALFTONE_INLINE bool has(int j, int e) const {
            const int down = e / 2 * 8, across = 8 * j + e % 2;
            return (keeps_keys ? across - down < first : across - down > first) | (across >= end);
        }
        /// Clears them in the left operand of 16 streamed rows.
        HALFTONE_HD HALFTONE_INLINE vec<word, 4> cleared(int step, vec<word, 4> left_operand) const {
            HALFTONE_UNROLL for (int i = 0; i < 4; ++i) {
                const int j = 2 * step + i / 2, half = i % 2;
                left_operand[i] &= (has(j, 2 * half) ? 0 : 0xffffu) | (has(j, 2 * half + 1) ? 0 : 0xffff0000u);
            }
            return left_operand;
        }
        /// Whether one of their values is not finite.
        HALFTONE_HD HALFTONE_INLINE bool any_not_finite(const scores_of_lane& values) const {
            bool found = false;
            HALFTONE_UNROLL for (int j = 0; j < score_blocks; ++j) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    const bool is_hidden = has(j, e),
                               is_here = is_not_finite<float>(bit_cast<word>(values[j][e]));
                    found |= is_hidden & is_here;  // without branches
                }
            }
            return found;
        }
    };

    /// Adds a tile of which some rows are masked for some of the warpgroup's rows, or beyond the end.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_partly(Simt simt, const attention_block& here, const kept_part& mine,
                                                int group, int row, int slot, const terms_of_two_rows& terms_of_rows,
                                                sums_of_lane& score_gradient_sums, sums_of_lane& weight_sums) const {
        scores_of_lane scores, products;
        begin_scores(simt, group, slot, scores, products);
        simt.wgmma_wait(constant<0>{}, scores);
        simt.hold(products);
        const int streamed = row + simt.lane() % 4 * 2;
        const hidden_pairs hidden{mine.own + simt.lane() / 4 - streamed + (keeps_keys ? -here.offset : here.offset),
                                  (keeps_keys ? here.queries : here.keys) - streamed};
        const bool careful_a = simt.any(hidden.any_not_finite(scores));
        bool careful_b = false;
        if constexpr (keeps_keys) careful_b = simt.any(hidden.any_not_finite(products));
        // Each lane leaves its left operands in shared memory, so that the loop over them need not be unrolled: its code
        // is long, and it would take more registers than there are.
        const word left_at = results_at + static_cast<word>(simt.warp()) * 16 * 128;
        const shared_span<vec<word, 4>> left_a{left_at, 32 * steps}, left_b{left_at + panel_bytes, 32 * steps};
        HALFTONE_UNROLL for (int step = 0; step < steps; ++step) {
            HALFTONE_UNROLL for (int j = 2 * step; j < 2 * step + 2; ++j) {
                to_weights(simt, j, slot_terms_at(slot), terms_of_rows, scores[j]);
                to_score_gradients(simt, j, slot_terms_at(slot), terms_of_rows, scores[j], products[j]);
            }
            const left_operand<T> of_a = as_left<T>(simt, products[2 * step], products[2 * step + 1]);
            simt.store(left_a, step * 32 + simt.lane(), hidden.cleared(step, of_a[0]));
            if constexpr (keeps_keys) {
                const left_operand<T> of_b = as_left<T>(simt, scores[2 * step], scores[2 * step + 1]);
                simt.store(left_b, step * 32 + simt.lane(), hidden.cleared(step, of_b[0]));
            }
        }
        const tile a{{slot_at(slot)}}, b{{slot_at(slot) + tile::bytes}};
        const lane_place place = tile::place_of(simt);
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
        for (int step = 0; step < steps; ++step) {
            const int from = row + 16 * step;
            if (!mine.warp_sees_some(here, from)) continue;
            const row_window window = mine.window(here, from);
            const left_operand<T> of_a[1] = {{simt.load(left_a, step * 32 + simt.lane())}};
            add_rows_of_all_columns<T>(simt, x.problem, a, place, 16 * step, of_a, score_gradient_sums, careful_a,
                                       window);
            if constexpr (keeps_keys) {
                const left_operand<T> of_b[1] = {{simt.load(left_b, step * 32 + simt.lane())}};
                add_rows_of_all_columns<T>(simt, x.problem, b, place, 16 * step, of_b, weight_sums, careful_b, window);
            }
        }
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, int group, sums_of_lane& sums, float factor,
                                           const head_vectors<T>& to) const {
        const attention_block here = kept_block(simt, here_at);
        const kept_part mine(here, group, simt.warp());
        HALFTONE_UNROLL for (int n = 0; n < head_blocks; ++n) {
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) sums[0][n][e] *= factor;
        }
        const result_tile through{{results_at}};
        through.template write<1>(simt, 16 * simt.warp(), sums, to.from(here.sequence, 0, here.head), to.time_stride,
                                  mine.own, keeps_keys ? here.keys : here.queries, x.problem.head_size);
    }
};

/// dq, dk and dv of a problem that the plan (plan.hpp) gives to warpgroups. Other head sizes than 64 and 128 are padded with zeros.
template <class Device, class T>
void gradients_by_warpgroups(Device& device, const attention_backward<T>& a, const attention_problem& problem) {
    const extent count = query_term_count(problem);
    const workspace::lease scratch(device.scratch(), static_cast<std::size_t>(count) * sizeof(query_term));
    const global_span<query_term> terms{scratch.as<query_term>(), count};
    const auto o = vectors_of(a.o, {}), d_o = vectors_of(a.d_o, {});
    device.launch(query_terms_kernel<T, 16 / sizeof(T)>{o, d_o, simt::span_of(a.logsumexp), terms, problem});

    const auto of_q = head_map(device, a.q, 64), of_d_o = head_map(device, a.d_o, 64), of_k = head_map(device, a.k, 64),
               of_v = head_map(device, a.v, 64);
    const auto of_terms = device.tile_map(reinterpret_cast<const T*>(terms.data), 64, count / 8, 64, 8);
    using map = std::remove_const_t<decltype(of_q)>;
    const attention_score_gradients<T> x{vectors_of(a.q, {}),
                                         d_o,
                                         vectors_of(a.k, {}),
                                         vectors_of(a.v, {}),
                                         {terms.data, terms.count},
                                         vectors_of(a.dq, {}),
                                         vectors_of(a.dk, {}),
                                         vectors_of(a.dv, {}),
                                         problem};
    const auto launch = [&]<int Head>(constant<Head>) {
        device.launch(warpgroup_attention_backward_kernel<T, Head, attention_side::queries, map>{of_q, of_d_o, of_k,
                                                                                                 of_v, of_terms, x});
        device.launch(warpgroup_attention_backward_kernel<T, Head, attention_side::keys, map>{of_q, of_d_o, of_k, of_v,
                                                                                              of_terms, x});
    };
    if (problem.head_size <= 64) return launch(constant<64>{});
    launch(constant<128>{});
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
