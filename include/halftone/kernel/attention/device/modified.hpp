// SPDX-License-Identifier: MIT
/// \file
/// Attention on a GPU with functions of the scores (score_mod/score_mod.hpp), without a stored score matrix: the tiles
/// of plain.hpp, for every element type, head size and alignment. Each lane evaluates the expression for its pair of a
/// query and a key. In addition to the weights of a tile, shared memory holds which pairs are visible, because hidden
/// operands may be infinities or NaNs.
///
/// Numeric contract: attention.hpp's. Each output is written by one block, which sums in the order of the streamed
/// rows. Scores are computed for all tiles; a warp skips the sums of a tile that is hidden from all its rows.
#pragma once

#include <halftone/kernel/attention/device/plain.hpp>
#include <halftone/kernel/attention/score_mod/score_mod.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// A score with its derivative, and the factor that dropout gives its weight.
template <class E>
struct pair_functions {
    using slope = typename std::remove_const_t<decltype(derivative<detail::mod_score>(std::declval<const E&>()))>;
    E score;
    slope by_score;
    detail::pair_dropout dropout;
    global_span<const random_record> record;

    explicit pair_functions(const attention_mod<E>& mod)
        : score(mod.score),
          by_score(derivative<detail::mod_score>(mod.score)),
          dropout(mod.dropout),
          record{mod.dropout.draw.record, 1} {}

    HALFTONE_KERNEL template <class Expression>
    HALFTONE_HD HALFTONE_INLINE static float value(const Expression& e, float product, int batch, int head, int query,
                                                   int key) {
        const float x[] = {product, static_cast<float>(batch), static_cast<float>(head), static_cast<float>(query),
                           static_cast<float>(key)};
        return scalar::evaluate(e, x);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE float kept(Simt simt, const attention_problem& p, int batch, int head, int query,
                                           int key) const {
        if (!dropout.is_there()) return 1;
        const extent row = static_cast<extent>(batch) * p.heads + head;
        return dropout.factor(simt.load(record, 0), detail::pair_number(row, p.queries, query, p.keys, key));
    }
};

/// sums += weights times streamed rows, for visible pairs: `seen` is 1 for these, otherwise 0.
HALFTONE_KERNEL template <class Tiles, int Kept, int Parts, class Simt>
HALFTONE_HD HALFTONE_INLINE void add_seen_products(Simt simt, word weights, word seen, word streamed,
                                                   vec<vec<float, Parts>, Kept>& to) {
    const extent row_of_warp = static_cast<extent>(simt.warp()) * Kept * Tiles::streamed_rows;
    const shared_span<float> w{weights, Tiles::kept_rows * Tiles::streamed_rows},
        s{seen, Tiles::kept_rows * Tiles::streamed_rows}, rows{streamed, Tiles::streamed_rows * Tiles::stride};
    for (int j = 0; j < Tiles::streamed_rows; ++j) {
        HALFTONE_UNROLL for (int r = 0; r < Kept; ++r) {
            const word at = static_cast<word>(row_of_warp) + static_cast<word>(r * Tiles::streamed_rows + j);
            if (simt.load(s, at) == 0) continue;  // the same in all lanes
            const float weight = simt.load(w, at);
            HALFTONE_UNROLL for (int i = 0; i < Parts; ++i) {
                const float x = simt.load(rows, j * Tiles::stride + 32 * i + simt.lane());
                to[r][i] = std::fma(weight, x, to[r][i]);
            }
        }
    }
}

/// Computes o and logsumexp of some queries.
// local memory of `modified_attention_*kernel<*`: at most 16 bytes of stack, 16 of stores, 64 of loads. As plain attention's, also for
// the gradients below.
template <class Compute, class T, int Parts, class E>
struct modified_attention_kernel {
    static constexpr int kept = Parts > 4 ? 2 : 4;
    using tiles = plain_tiles<Compute, Parts, kept>;
    static constexpr int threads = tiles::threads;
    static constexpr word keys_at = 0, values_at = tiles::streamed_bytes,
                          queries_at = values_at + tiles::streamed_bytes, weights_at = queries_at + tiles::kept_bytes,
                          seen_at = weights_at + tiles::weight_bytes, shared_bytes = seen_at + tiles::weight_bytes;

    head_vectors<const T> q, k, v;
    head_vectors<T> o;
    global_span<float> logsumexp;  // (batch, heads, queries, 2), or without data
    attention_problem problem;
    pair_functions<E> functions;

    grid_shape grid() const { return problem.grid(attention_side::queries, tiles::kept_rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const attention_block here = problem.block(simt, attention_side::queries, tiles::kept_rows);
        if (here.first >= here.queries) return;
        const int group = here.head / problem.members;
        const auto keys = k.from(here.sequence, 0, group), values = v.from(here.sequence, 0, group);
        tiles::template stage<tiles::kept_rows, tiles::columns>(simt, queries_at, q.from(here.sequence, 0, here.head),
                                                                q.time_stride, here.first, here.queries,
                                                                problem.head_size);
        const int mine = here.first + simt.warp() * kept;  // the warp's first query

        vec<float, kept> highest, total;
        typename tiles::sums sums;
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            highest[r] = detail::attention_masked_score;
            total[r] = 0;
            HALFTONE_UNROLL for (int i = 0; i < Parts; ++i) sums[r][i] = 0;
        }
        for (int j = 0; j < here.keys; j += tiles::streamed_rows) {
            simt.barrier();  // all warps are done with the previous tile
            tiles::template stage<tiles::streamed_rows, tiles::stride>(simt, keys_at, keys, k.time_stride, j, here.keys,
                                                                       problem.head_size);
            tiles::template stage<tiles::streamed_rows, tiles::stride>(simt, values_at, values, v.time_stride, j,
                                                                       here.keys, problem.head_size);
            simt.barrier();
            vec<float, kept> scores;
            tiles::multiply_rows(simt, queries_at, keys_at, problem.head_size, scores);
            const int key = j + simt.lane();
            bool any_seen = false;
            HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
                const int query = mine + r;
                const float score = functions.value(functions.score, scores[r] * problem.scale, here.sequence, here.head,
                                                    query, key);
                const bool is_seen = key < here.keys && query < here.queries && !(score < detail::attention_masked_score);
                const float of_seen = is_seen ? score : detail::attention_masked_score;
                const float next = simt::maximum{}(highest[r], simt::warp_max(simt, of_seen));
                const float factor = power_of_two((highest[r] - next) * detail::log2_of_e),
                            weight = is_seen ? power_of_two((score - next) * detail::log2_of_e) : 0.0f;
                highest[r] = next;
                total[r] = std::fma(total[r], factor, weight);
                HALFTONE_UNROLL for (int i = 0; i < Parts; ++i) sums[r][i] *= factor;
                const float kept_share =
                    is_seen ? functions.kept(simt, problem, here.sequence, here.head, query, key) : 0.0f;
                tiles::put_weight(simt, weights_at, r, kept_share == 0 ? 0.0f : weight);
                put_seen<tiles, kept>(simt, seen_at, r, is_seen);
                any_seen = any_seen || is_seen;
            }
            const bool adds = simt.any(any_seen);
            simt.warp_barrier();
            if (adds) add_seen_products<tiles, kept, Parts>(simt, weights_at, seen_at, values_at, sums);
        }
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            const float all = simt::warp_sum(simt, total[r]);
            const int query = mine + r;
            if (query >= here.queries) continue;
            const bool saw = all != 0;  // the largest weight is 1
            const float scale = functions.dropout.is_there() ? functions.dropout.draw.scale : 1.0f;
            tiles::write(simt, o.from(here.sequence, query, here.head), problem.head_size, sums[r],
                         saw ? scale / all : 0.0f);
            if (simt.lane() == 0 && logsumexp.is_there()) {
                simt.store(logsumexp, 2 * problem.row_sum(here, query), highest[r]);
                simt.store(logsumexp, 2 * problem.row_sum(here, query) + 1, saw ? std::log(all) : 0.0f);
            }
        }
    }

  private:
    template <class Tiles, int Kept, class Simt>
    HALFTONE_HD HALFTONE_INLINE static void put_seen(Simt simt, word seen, int r, bool is_seen) {
        const shared_span<float> tile{seen, Tiles::kept_rows * Tiles::streamed_rows};
        simt.store(tile, (simt.warp() * Kept + r) * Tiles::streamed_rows + simt.lane(), is_seen ? 1.0f : 0.0f);
    }
};

/// Computes dq of some queries, or dk and dv of some keys.
template <class Compute, class T, int Parts, attention_side Side, class E>
struct modified_attention_backward_kernel {
    static constexpr int kept = Parts > 4 ? 2 : 4;
    static constexpr bool keeps_keys = Side == attention_side::keys;
    using tiles = plain_tiles<Compute, Parts, kept>;
    static constexpr int threads = tiles::threads;
    // Two tiles for each side: q or k, whose products are the scores; and d_o or v.
    static constexpr word streamed_at = 0, kept_at = 2 * tiles::streamed_bytes,
                          score_gradients_at = kept_at + 2 * tiles::kept_bytes,
                          weights_at = score_gradients_at + tiles::weight_bytes,
                          seen_at = weights_at + tiles::weight_bytes, shared_bytes = seen_at + tiles::weight_bytes;

    attention_score_gradients<T> x;
    pair_functions<E> functions;

    grid_shape grid() const { return x.problem.grid(Side, tiles::kept_rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const attention_block here = x.problem.block(simt, Side, tiles::kept_rows);
        const int rows = keeps_keys ? here.keys : here.queries;
        if (here.first >= rows) return;
        typename tiles::sums score_gradient_sums, weight_sums;
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            HALFTONE_UNROLL for (int i = 0; i < Parts; ++i) score_gradient_sums[r][i] = weight_sums[r][i] = 0;
        }
        stage<tiles::kept_rows, tiles::columns>(simt, kept_at, tiles::kept_bytes, keeps_keys ? x.k : x.q,
                                                keeps_keys ? x.v : x.d_o, here.sequence, here.head, here.first, rows);
        if constexpr (keeps_keys) {
            for (int head = here.head * x.problem.members; head < (here.head + 1) * x.problem.members; ++head) {
                for (int i = 0; i < here.queries; i += tiles::streamed_rows)
                    add_tile(simt, here, head, i, score_gradient_sums, weight_sums);
            }
        } else {
            for (int j = 0; j < here.keys; j += tiles::streamed_rows)
                add_tile(simt, here, here.head, j, score_gradient_sums, weight_sums);
        }
        const int mine = here.first + simt.warp() * kept;  // the warp's first kept row
        const float scale = functions.dropout.is_there() ? functions.dropout.draw.scale : 1.0f;
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            if (mine + r >= rows) continue;
            if constexpr (keeps_keys) {
                tiles::write(simt, x.dk.from(here.sequence, mine + r, here.head), x.problem.head_size,
                             score_gradient_sums[r], x.problem.scale);
                tiles::write(simt, x.dv.from(here.sequence, mine + r, here.head), x.problem.head_size, weight_sums[r], scale);
            } else {
                tiles::write(simt, x.dq.from(here.sequence, mine + r, here.head), x.problem.head_size,
                             score_gradient_sums[r], x.problem.scale);
            }
        }
    }

  private:
    /// Stages rows of two operands of one side; the second is stored `next` bytes behind the first.
    HALFTONE_KERNEL template <int Count, int Stride, class Simt>
    HALFTONE_HD HALFTONE_INLINE void stage(Simt simt, word to, word next, const head_vectors<const T>& a,
                                           const head_vectors<const T>& b, int sequence, int head, int first,
                                           int end) const {
        tiles::template stage<Count, Stride>(simt, to, a.from(sequence, 0, head), a.time_stride, first, end,
                                             x.problem.head_size);
        tiles::template stage<Count, Stride>(simt, to + next, b.from(sequence, 0, head), b.time_stride, first, end,
                                             x.problem.head_size);
    }

    /// Stages the streamed rows from `first` on, of query head `head` or of the key head that it reads.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_tile(Simt simt, const attention_block& here, int head, int first,
                                              typename tiles::sums& score_gradient_sums,
                                              typename tiles::sums& weight_sums) const {
        simt.barrier();  // all warps are done with the previous tile
        stage<tiles::streamed_rows, tiles::stride>(simt, streamed_at, tiles::streamed_bytes, keeps_keys ? x.q : x.k,
                                                   keeps_keys ? x.d_o : x.v, here.sequence,
                                                   keeps_keys ? head : head / x.problem.members, first,
                                                   keeps_keys ? here.queries : here.keys);
        simt.barrier();
        vec<float, kept> scores, products;
        tiles::multiply_rows(simt, kept_at, streamed_at, x.problem.head_size, scores);
        tiles::multiply_rows(simt, kept_at + tiles::kept_bytes, streamed_at + tiles::streamed_bytes,
                             x.problem.head_size, products);
        const int mine = here.first + simt.warp() * kept, streamed = first + simt.lane();
        bool any_seen = false;
        HALFTONE_UNROLL for (int r = 0; r < kept; ++r) {
            const int query = keeps_keys ? streamed : mine + r, key = keeps_keys ? mine + r : streamed;
            const float product = scores[r] * x.problem.scale;
            const float score = functions.value(functions.score, product, here.sequence, head, query, key);
            const bool is_seen = key < here.keys && query < here.queries && !(score < detail::attention_masked_score);
            float weight = 0, gradient = 0;
            if (is_seen) {
                const query_term term = simt.load(x.terms, x.problem.first_term(here, head) + query);
                const float share = functions.kept(simt, x.problem, here.sequence, head, query, key);
                weight = power_of_two(weight_exponent(score, detail::log2_of_e, term));
                gradient = score_gradient(weight, share == 0 ? 0.0f : products[r] * share, term) *
                           functions.value(functions.by_score, product, here.sequence, head, query, key);
                if (share == 0) weight = 0;
            }
            tiles::put_weight(simt, score_gradients_at, r, gradient);
            if constexpr (keeps_keys) tiles::put_weight(simt, weights_at, r, weight);
            simt.store(shared_span<float>{seen_at, tiles::kept_rows * tiles::streamed_rows},
                       (simt.warp() * kept + r) * tiles::streamed_rows + simt.lane(), is_seen ? 1.0f : 0.0f);
            any_seen = any_seen || is_seen;
        }
        const bool adds = simt.any(any_seen);
        simt.warp_barrier();
        if (!adds) return;
        add_seen_products<tiles, kept, Parts>(simt, score_gradients_at, seen_at, streamed_at, score_gradient_sums);
        if constexpr (keeps_keys)
            add_seen_products<tiles, kept, Parts>(simt, weights_at, seen_at, streamed_at + tiles::streamed_bytes, weight_sums);
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
