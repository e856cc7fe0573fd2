// SPDX-License-Identifier: MIT
/// \file
/// Attention on a GPU without matrix instructions: for every element type, head size and alignment.
///
/// A block of four warps keeps some rows of one head and streams the other side's, 32 at a time; both are staged in
/// shared memory as floats that are rounded to Compute. Each warp owns a few of the kept rows. When it computes scores,
/// its lanes correspond to the 32 streamed rows; when it sums over these, lanes correspond to the columns of the head.
///
/// Numeric contract: attention.hpp's. Each output is written by one block, which sums in the order of the streamed
/// rows.
#pragma once

#include <halftone/kernel/attention/device/backward.hpp>
#include <halftone/number/in_float.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// The tiles of one block in shared memory. head_size is at most 32 Parts; a warp keeps Kept rows.
template <class Compute, int Parts, int Kept>
struct plain_tiles {
    static constexpr int warps = 4, threads = 32 * warps, streamed_rows = 32, kept_rows = warps * Kept;
    static constexpr int columns = 32 * Parts;
    static constexpr int stride = columns + 4;  // 32 lanes read 4 floats each of 32 rows without bank conflicts

    static constexpr word streamed_bytes = streamed_rows * stride * sizeof(float);
    static constexpr word kept_bytes = kept_rows * columns * sizeof(float);
    static constexpr word weight_bytes = kept_rows * streamed_rows * sizeof(float);

    using fours = vec<float, 4>;

    /// Loads `count` rows from `first` on; rows from `end` on as zeros.
    HALFTONE_KERNEL template <int Count, int Stride, class Simt, class T>
    HALFTONE_HD HALFTONE_INLINE static void stage(Simt simt, word to, const global_span<const T>& head,
                                                  extent time_stride, int first, int end, int width) {
        const shared_span<float> tile{to, Count * Stride};
        constexpr int across = columns < threads ? columns : threads, at_once = threads / across;
        for (int row = simt.thread() / across; row < Count; row += at_once) {
            const auto from = head.from((first + row) * time_stride);
            for (int d = simt.thread() % across; d < columns; d += across) {
                float x = 0;
                if (first + row < end && d < width) x = operand_of<Compute>(detail::in_float(simt.load(from, d)));
                simt.store(tile, row * Stride + d, x);
            }
        }
    }

    /// For each of the warp's kept rows, its dot product with the lane's streamed row.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void multiply_rows(Simt simt, word kept, word streamed, int width,
                                                          vec<float, Kept>& products) {
        const shared_span<fours> a{kept + simt.warp() * Kept * columns * static_cast<word>(sizeof(float)),
                                   Kept * columns / 4};
        const shared_span<fours> b{streamed + simt.lane() * stride * static_cast<word>(sizeof(float)), stride / 4};
        HALFTONE_UNROLL for (int r = 0; r < Kept; ++r) products[r] = 0;
        for (int d = 0; d < detail::ceil_div(width, 4); ++d) {
            const fours y = simt.load(b, d);
            HALFTONE_UNROLL for (int r = 0; r < Kept; ++r) {
                const fours x = simt.load(a, r * (columns / 4) + d);
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) products[r] = std::fma(x[e], y[e], products[r]);
            }
        }
    }

    using sums = vec<vec<float, Parts>, Kept>;  ///< a lane's: columns lane, lane + 32, ... of the warp's kept rows

    /// Stores the weight of each kept row and the lane's streamed row where the whole warp can read it.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void put_weight(Simt simt, word weights, int r, float weight) {
        const shared_span<float> tile{weights, kept_rows * streamed_rows};
        simt.store(tile, (simt.warp() * Kept + r) * streamed_rows + simt.lane(), operand_of<Compute>(weight));
    }
    /// sums += weights x streamed rows. If `hides`, a kept row sees only those from its `first` up to, but excluding,
    /// its `end`; otherwise all.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void add_products(Simt simt, word weights, word streamed, sums& to, bool has_masked,
                                                         const vec<int, Kept>& first, const vec<int, Kept>& end) {
        if (has_masked) {
            add_products<true>(simt, weights, streamed, to, first, end);
        } else {
            add_products<false>(simt, weights, streamed, to, first, end);
        }
    }
    HALFTONE_KERNEL template <bool Hides, class Simt>
    HALFTONE_HD HALFTONE_INLINE static void add_products(Simt simt, word weights, word streamed, sums& to,
                                                         const vec<int, Kept>& first, const vec<int, Kept>& end) {
        const shared_span<fours> w{weights + simt.warp() * Kept * streamed_rows * static_cast<word>(sizeof(float)),
                                   Kept * streamed_rows / 4};
        const shared_span<float> rows{streamed, streamed_rows * stride};
        for (int j = 0; j < streamed_rows; j += 4) {
            vec<fours, Kept> weight;
            HALFTONE_UNROLL for (int r = 0; r < Kept; ++r) weight[r] = simt.load(w, (r * streamed_rows + j) / 4);
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                HALFTONE_UNROLL for (int i = 0; i < Parts; ++i) {
                    const float x = simt.load(rows, (j + e) * stride + 32 * i + simt.lane());
                    HALFTONE_UNROLL for (int r = 0; r < Kept; ++r) {
                        // The weight of a masked row is zero, but the row may hold an infinity or a NaN.
                        const bool is_seen = !Hides || (j + e >= first[r] && j + e < end[r]);
                        to[r][i] = std::fma(weight[r][e], is_seen ? x : 0.0f, to[r][i]);
                    }
                }
            }
        }
    }
    /// Stores factor times the sums of kept row r.
    HALFTONE_KERNEL template <class Simt, class T>
    HALFTONE_HD HALFTONE_INLINE static void write(Simt simt, const global_span<T>& to, int width,
                                                  const vec<float, Parts>& sums_of_row, float factor) {
        HALFTONE_UNROLL for (int i = 0; i < Parts; ++i) {
            const int d = 32 * i + simt.lane();
            if (d < width) simt.store(to, d, T(sums_of_row[i] * factor));
        }
    }
};

/// o and logsumexp of some queries, with a running softmax (Milakov and Gimelshein 2018).
// local memory of `plain_attention_*kernel<*`: at most 16 bytes of stack, 16 of stores, 64 of loads. It is for shapes that no fast
// kernel takes, so a word or two may spill; likewise the gradients' below.
template <class Compute, class T, int Parts>
struct plain_attention_kernel {
    static constexpr int kept = Parts > 4 ? 4 : 8;
    using tiles = plain_tiles<Compute, Parts, kept>;
    static constexpr int threads = tiles::threads;
    static constexpr word keys_at = 0, values_at = tiles::streamed_bytes,
                          queries_at = values_at + tiles::streamed_bytes, weights_at = queries_at + tiles::kept_bytes,
                          shared_bytes = weights_at + tiles::weight_bytes;

    head_vectors<const T> q, k, v;
    head_vectors<T> o;
    global_span<float> logsumexp;  // (batch, heads, queries, 2), or empty
    attention_problem problem;

    grid_shape grid() const { return problem.grid(attention_side::queries, tiles::kept_rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const attention_block here = problem.block(simt, attention_side::queries, tiles::kept_rows);
        if (here.first >= here.queries) return;
        const int group = here.head / problem.members;
        const auto keys = k.from(here.sequence, here.key_begin, group),
                   values = v.from(here.sequence, here.key_begin, group);
        const float scale = problem.scale * detail::log2_of_e;
        tiles::template stage<tiles::kept_rows, tiles::columns>(
            simt, queries_at, q.from(here.sequence, here.query_begin, here.head), q.time_stride, here.first,
            here.queries, problem.head_size);
        const int mine = here.first + simt.warp() * kept;  // the warp's first query

        vec<float, kept> highest, total;
        typename tiles::sums sums;
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            highest[r] = detail::attention_masked_score;
            total[r] = 0;
            HALFTONE_UNROLL for (int i = 0; i < Parts; ++i) sums[r][i] = 0;
        }
        const int end = here.keys_seen(here.first + tiles::kept_rows);
        for (int j = 0; j < end; j += tiles::streamed_rows) {
            simt.barrier();  // all warps have finished the previous tile
            tiles::template stage<tiles::streamed_rows, tiles::stride>(simt, keys_at, keys, k.time_stride, j, here.keys,
                                                                       problem.head_size);
            tiles::template stage<tiles::streamed_rows, tiles::stride>(simt, values_at, values, v.time_stride, j,
                                                                       here.keys, problem.head_size);
            simt.barrier();
            vec<float, kept> scores;
            vec<int, kept> first_seen, end_seen;  // of the tile's keys
            tiles::multiply_rows(simt, queries_at, keys_at, problem.head_size, scores);
            HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
                first_seen[r] = 0, end_seen[r] = mine + r + here.offset + 1 - j;
                const bool is_seen = here.sees(mine + r, j + simt.lane());
                const float score = is_seen ? scores[r] : detail::attention_masked_score;
                const float next = simt::maximum{}(highest[r], simt::warp_max(simt, score));
                const float factor = power_of_two((highest[r] - next) * scale),
                            weight = is_seen ? power_of_two((score - next) * scale) : 0.0f;
                highest[r] = next;
                total[r] = std::fma(total[r], factor, weight);
                HALFTONE_UNROLL for (int i = 0; i < Parts; ++i) sums[r][i] *= factor;
                tiles::put_weight(simt, weights_at, r, weight);
            }
            simt.warp_barrier();
            tiles::add_products(simt, weights_at, values_at, sums, end_seen[0] < smaller(32, here.keys - j), first_seen,
                                end_seen);
        }
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            const float all = simt::warp_sum(simt, total[r]);
            const int query = mine + r;
            if (query >= here.queries) continue;
            const bool saw = here.sees(query, 0);  // if not, all weights come from masked scores
            HALFTONE_UNROLL for (int i = 0; i < Parts; ++i) sums[r][i] = saw ? sums[r][i] : 0.0f;
            tiles::write(simt, o.from(here.sequence, here.query_begin + query, here.head), problem.head_size, sums[r],
                         saw ? 1 / all : 0.0f);
            if (simt.lane() == 0 && logsumexp.is_there()) {
                simt.store(logsumexp, 2 * problem.row_sum(here, query), highest[r]);
                simt.store(logsumexp, 2 * problem.row_sum(here, query) + 1, saw ? std::log(all) : 0.0f);
            }
        }
    }
};

/// dq of some queries, or dk and dv of some keys. With the recomputed weights p and score gradients
/// ds = p (d_o v^T - o d_o^T): dq = scale ds k, dk = scale ds^T q, dv = p^T d_o.
template <class Compute, class T, int Parts, attention_side Side>
struct plain_attention_backward_kernel {
    static constexpr int kept = Parts > 4 ? 2 : 8;
    static constexpr bool keeps_keys = Side == attention_side::keys;
    static constexpr bool shares_terms = !keeps_keys && kept > 2;  // terms of kept queries: too many for registers
    using tiles = plain_tiles<Compute, Parts, kept>;
    static constexpr int threads = tiles::threads;
    // Each side has two tiles: first q or k, from which scores are computed, then d_o or v.
    static constexpr word streamed_at = 0, kept_at = 2 * tiles::streamed_bytes,
                          score_gradients_at = kept_at + 2 * tiles::kept_bytes,
                          weights_at = score_gradients_at + tiles::weight_bytes,  // followed by the terms of kept queries
        here_at = weights_at + (keeps_keys ? tiles::weight_bytes : tiles::kept_rows * sizeof(query_term)),
                          shared_bytes = here_at + sizeof(attention_block);

    attention_score_gradients<T> x;

    grid_shape grid() const { return x.problem.grid(Side, tiles::kept_rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const attention_block here = x.problem.block(simt, Side, tiles::kept_rows);
        if (here.first >= (keeps_keys ? here.keys : here.queries)) return;
        keep_block(simt, here_at, here);
        typename tiles::sums score_gradient_sums, weight_sums;
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            HALFTONE_UNROLL for (int i = 0; i < Parts; ++i) score_gradient_sums[r][i] = weight_sums[r][i] = 0;
        }
        if constexpr (keeps_keys) {
            stage<tiles::kept_rows, tiles::columns>(simt, kept_at, tiles::kept_bytes, x.k, x.v, here.sequence,
                                                    here.key_begin, here.head, here.first, here.keys);
            simt.barrier();  // orders the stores of the block's part of the problem
            const int begin = here.first_query(here.first) / tiles::streamed_rows * tiles::streamed_rows;
            for (int head = here.head * x.problem.members; head < (here.head + 1) * x.problem.members; ++head) {
                for (int i = begin; i < here.queries; i += tiles::streamed_rows) {
                    add_tile(simt, head, i, score_gradient_sums, weight_sums);
                }
            }
        } else {
            if (shares_terms && simt.thread() < tiles::kept_rows && here.first + simt.thread() < here.queries) {
                simt.store(kept_terms(), simt.thread(),
                           simt.load(x.terms, x.problem.first_term(here, here.head) + here.first + simt.thread()));
            }
            stage<tiles::kept_rows, tiles::columns>(simt, kept_at, tiles::kept_bytes, x.q, x.d_o, here.sequence,
                                                    here.query_begin, here.head, here.first, here.queries);
            simt.barrier();  // orders the stores of the block's part of the problem
            const int end = here.keys_seen(here.first + tiles::kept_rows);
            for (int j = 0; j < end; j += tiles::streamed_rows) {
                add_tile(simt, here.head, j, score_gradient_sums, weight_sums);
            }
        }
        const attention_block again = kept_block(simt, here_at);
        const int mine = again.first + simt.warp() * kept;  // the warp's first kept row
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            if (mine + r >= (keeps_keys ? again.keys : again.queries)) continue;
            if constexpr (keeps_keys) {
                const int time = again.key_begin + mine + r;
                tiles::write(simt, x.dk.from(again.sequence, time, again.head), x.problem.head_size, score_gradient_sums[r],
                             x.problem.scale);
                tiles::write(simt, x.dv.from(again.sequence, time, again.head), x.problem.head_size, weight_sums[r],
                             1.0f);
            } else {
                tiles::write(simt, x.dq.from(again.sequence, again.query_begin + mine + r, again.head),
                             x.problem.head_size, score_gradient_sums[r], x.problem.scale);
            }
        }
    }

  private:
    HALFTONE_HD HALFTONE_INLINE static shared_span<query_term> kept_terms() { return {weights_at, tiles::kept_rows}; }
    /// Loads rows of two operands of one side; the second's tile is `next` bytes after the first's.
    HALFTONE_KERNEL template <int Count, int Stride, class Simt>
    HALFTONE_HD HALFTONE_INLINE void stage(Simt simt, word to, word next, const head_vectors<const T>& a,
                                           const head_vectors<const T>& b, int sequence, int begin, int head, int first,
                                           int end) const {
        tiles::template stage<Count, Stride>(simt, to, a.from(sequence, begin, head), a.time_stride, first, end,
                                             x.problem.head_size);
        tiles::template stage<Count, Stride>(simt, to + next, b.from(sequence, begin, head), b.time_stride, first, end,
                                             x.problem.head_size);
    }

    /// Loads the streamed rows from `first` on, of query head `head` or of the key head that it reads.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_tile(Simt simt, int head, int first, typename tiles::sums& score_gradient_sums,
                                              typename tiles::sums& weight_sums) const {
        const attention_block here = kept_block(simt, here_at);
        if constexpr (keeps_keys) {
            stage<tiles::streamed_rows, tiles::stride>(simt, streamed_at, tiles::streamed_bytes, x.q, x.d_o,
                                                       here.sequence, here.query_begin, head, first, here.queries);
        } else {
            stage<tiles::streamed_rows, tiles::stride>(simt, streamed_at, tiles::streamed_bytes, x.k, x.v,
                                                       here.sequence, here.key_begin, head / x.problem.members, first,
                                                       here.keys);
        }
        simt.barrier();
        vec<float, kept> scores, products;
        tiles::multiply_rows(simt, kept_at, streamed_at, x.problem.head_size, scores);
        tiles::multiply_rows(simt, kept_at + tiles::kept_bytes, streamed_at + tiles::streamed_bytes,
                             x.problem.head_size, products);
        const int mine = here.first + simt.warp() * kept, streamed = first + simt.lane();
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            const int query = keeps_keys ? streamed : mine + r, key = keeps_keys ? mine + r : streamed;
            float weight = 0, score_gradient_value = 0;
            if (query < here.queries && here.sees(query, key)) {
                const query_term term = shares_terms ? simt.load(kept_terms(), simt.warp() * kept + r)
                                                     : simt.load(x.terms, x.problem.first_term(here, head) + query);
                weight = power_of_two(weight_exponent(scores[r], x.problem.scale * detail::log2_of_e, term));
                score_gradient_value = score_gradient(weight, products[r], term);
            }
            tiles::put_weight(simt, score_gradients_at, r, score_gradient_value);
            if constexpr (keeps_keys) tiles::put_weight(simt, weights_at, r, weight);
        }
        vec<int, kept> first_seen, end_seen;  // of the tile's rows; rows beyond the end are zeros
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            first_seen[r] = keeps_keys ? mine + r - here.offset - first : 0;
            end_seen[r] = keeps_keys ? tiles::streamed_rows : mine + r + here.offset + 1 - first;
        }
        const bool has_masked = keeps_keys ? first_seen[kept - 1] > 0 : end_seen[0] < smaller(32, here.keys - first);
        simt.warp_barrier();
        tiles::add_products(simt, score_gradients_at, streamed_at, score_gradient_sums, has_masked, first_seen, end_seen);
        if constexpr (keeps_keys) {
            tiles::add_products(simt, weights_at, streamed_at + tiles::streamed_bytes, weight_sums, has_masked, first_seen,
                                end_seen);
        }
        simt.barrier();  // all warps have finished the tile
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
