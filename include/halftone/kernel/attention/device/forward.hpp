// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention on a GPU with matrix instructions, for 16-bit types and for floats that multiply in
/// tfloat32 (Dao 2023, "FlashAttention-2").
///
/// A block keeps some queries, 16 RowBlocks of them in each warp, and iterates over the tiles of keys and values that
/// they see. Scores, weights and the sums of o stay in registers: blocks of weights, rounded, are the left operand of
/// the product with the values. A tile's values are copied while its scores are computed; the next tile's keys are
/// copied meanwhile, too.
#pragma once

#include <halftone/kernel/attention/device/fragments.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Computes o and logsumexp; head_size is at most Head. Chunks of all operands are aligned to 16 bytes.
template <class T, int Head, int RowBlocks, int Warps, int KeyRows>
struct flash_attention_kernel {
    static constexpr int threads = 32 * Warps, warp_rows = 16 * RowBlocks, query_rows = Warps * warp_rows;
    static constexpr int columns = block_columns<T>;
    // Queries stay in registers where these have room; otherwise they are read from shared memory again for each tile.
    static constexpr bool holds_queries = Head * RowBlocks == 128;
    using query_tile = head_tile<T, query_rows, Head>;
    using key_tile = head_tile<T, KeyRows, Head>;
    static constexpr word queries_at = 0, keys_at = query_tile::bytes, values_at = keys_at + 2 * key_tile::bytes,
                          here_at = values_at + key_tile::bytes, shared_bytes = here_at + sizeof(attention_block);

    head_vectors<const T> q, k, v;
    head_vectors<T> o;
    global_span<float> logsumexp;  // (batch, heads, queries, 2), or empty
    attention_problem problem;

    grid_shape grid() const { return problem.grid(attention_side::queries, query_rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const attention_block here = problem.block(simt, attention_side::queries, query_rows);
        if (here.first >= here.queries) return;
        keep_block(simt, here_at, here);
        const int group = here.head / problem.members;
        const int end = here.keys_seen(here.first + query_rows), all_see = here.keys_seen(here.first + 1);
        const query_tile query{{queries_at}}, my_query = query.from_row(simt.warp() * warp_rows);
        const key_tile value{{values_at}};

        const int width = problem.head_size;
        tile_source<T, query_tile, threads>::of(simt, q.from(here.sequence, here.query_begin, here.head), q.time_stride,
                                                here.first, here.queries)
            .fetch(simt, query, width);
        using source = tile_source<T, key_tile, threads>;
        source keys = source::of(simt, k.from(here.sequence, here.key_begin, group), k.time_stride, 0, here.keys);
        source values = source::of(simt, v.from(here.sequence, here.key_begin, group), v.time_stride, 0, here.keys);
        keys.fetch(simt, key_tile{{keys_at}}, width);
        simt.async_commit();
        simt.async_wait(constant<0>{});
        simt.barrier();
        const lane_place place = key_tile::place_of(simt);
        vec<word, 4> held[RowBlocks][holds_queries ? Head / columns : 1];
        if constexpr (holds_queries) {
            HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                HALFTONE_UNROLL for (int d = 0; d < Head; d += columns) {
                    held[m][d / columns] = my_query.read(simt, place, 16 * m, d);
                }
            }
        }

        row_state state[RowBlocks][2];
        block_sums sums[RowBlocks][Head / 8] = {};
        word keys_now = keys_at, keys_next = keys_at + key_tile::bytes;
        for (int j = 0; j < end; j += KeyRows) {
            values.fetch(simt, value, width);
            values.next_tile();
            simt.async_commit();
            keys.next_tile();
            if (j + KeyRows < end) keys.fetch(simt, key_tile{{keys_next}}, width);
            simt.async_commit();
            block_sums scores[RowBlocks][KeyRows / 8] = {};
            const key_tile key{{keys_now}};
            HALFTONE_UNROLL for (int d = 0; d < Head; d += columns) {
                if (!problem.template has_columns<T, Head>(d)) continue;
                vec<word, 4> left[RowBlocks];
                HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                    if constexpr (holds_queries) {
                        left[m] = held[m][d / columns];
                    } else {
                        left[m] = my_query.read(simt, place, 16 * m, d);
                    }
                }
                HALFTONE_UNROLL for (int n = 0; n < KeyRows; n += 16) {
                    const vec<word, 4> right = key.read(simt, place, n, d);
                    HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                        multiply_block<T>(simt, scores[m][n / 8], left[m], rows_as_columns(right, 0));
                        multiply_block<T>(simt, scores[m][n / 8 + 1], left[m], rows_as_columns(right, 1));
                    }
                }
            }
            if (j + KeyRows > all_see) mask_scores(simt, j, scores);
            to_weights(simt, scores, state, sums);

            simt.async_wait(constant<1>{});
            simt.barrier();  // the values have arrived
            HALFTONE_UNROLL for (int n = 0; n < KeyRows; n += 16) {
                left_operand<T> left[RowBlocks];
                HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                    left[m] = as_left<T>(simt, scores[m][n / 8], scores[m][n / 8 + 1]);
                }
                row_window window{0, 0, 16, 0};
                bool careful = false;
                if (j + KeyRows > all_see) {
                    window = window_of(simt, j + n);
                    if (window.end + warp_rows <= 1) continue;  // none of the warp's queries sees one of these keys
                    careful = window.end < 16 && any_not_finite<T>(simt, problem, value, place, n);
                }
                add_rows_of_all_columns<T>(simt, problem, value, place, n, left, sums, careful, window);
            }
            simt.async_wait(constant<0>{});
            simt.barrier();  // the next keys have arrived, and all warps have finished these keys and values
            const word free = keys_now;
            keys_now = keys_next, keys_next = free;
        }
        finish(simt, state, sums, query);
    }

  private:
    /// The running softmax of a query; `total` is the lane's partial sum.
    struct row_state {
        float highest = detail::attention_masked_score, total = 0;
    };

    /// Which of 16 keys the warp's queries see. Values of keys beyond the end are zeros.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE row_window window_of(Simt simt, int first_key) const {
        const attention_block here = kept_block(simt, here_at);
        return {0, 0, here.first + simt.warp() * warp_rows + here.offset + 1 - first_key, 1};
    }
    /// Masks the scores of keys that a query does not see.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void mask_scores(Simt simt, int first, block_sums (&scores)[RowBlocks][KeyRows / 8]) const {
        // Indices are relative to the lane's first key, and for its first query.
        const attention_block here = kept_block(simt, here_at);
        const int mine = here.first + simt.warp() * warp_rows;
        const int key = first + simt.lane() % 4 * 2, left = here.keys - key,
                  visible = mine + simt.lane() / 4 + here.offset - key;
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int n = 0; n < KeyRows / 8; ++n) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    const int down = 16 * m + 8 * (e / 2), across = 8 * n + e % 2;
                    if (across >= left || across - down > visible) scores[m][n][e] = detail::attention_masked_score;
                }
            }
        }
    }

    /// What is subtracted from exponents of two, for a highest score. If all scores so far are masked, it is 0: their
    /// weights are then 0.
    HALFTONE_HD HALFTONE_INLINE float exponent_of(float highest) const {
        return highest == detail::attention_masked_score ? 0.0f : highest * (problem.scale * detail::log2_of_e);
    }

    /// Updates the running softmax by a tile's scores (Milakov and Gimelshein 2018): turns scores into weights, and
    /// rescales the sums to the new maxima. Each step is done for all rows before the next, so that latencies overlap.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void to_weights(Simt simt, block_sums (&scores)[RowBlocks][KeyRows / 8],
                                           row_state (&state)[RowBlocks][2],
                                           block_sums (&sums)[RowBlocks][Head / 8]) const {
        const float scale = problem.scale * detail::log2_of_e;
        float highest[RowBlocks][2];
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                float even = state[m][half].highest, odd = scores[m][0][2 * half + 1];
                HALFTONE_UNROLL for (int n = 0; n < KeyRows / 8; ++n) {
                    even = std::fmax(even, scores[m][n][2 * half]);
                    odd = std::fmax(odd, scores[m][n][2 * half + 1]);
                }
                highest[m][half] = std::fmax(even, odd);
            }
        }
        HALFTONE_UNROLL for (int mask = 2; mask > 0; mask /= 2) {
            HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                    highest[m][half] = std::fmax(highest[m][half], simt.shuffle_xor(highest[m][half], mask));
                }
            }
        }
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                const float top = exponent_of(highest[m][half]);
                const bool is_higher = highest[m][half] != state[m][half].highest;
                float even = 0, odd = 0;
                HALFTONE_UNROLL for (int n = 0; n < KeyRows / 8; ++n) {
                    float &x = scores[m][n][2 * half], &y = scores[m][n][2 * half + 1];
                    x = power_of_two(std::fma(x, scale, -top));
                    y = power_of_two(std::fma(y, scale, -top));
                    even += x, odd += y;
                }
                float total = state[m][half].total;
                if (is_higher) {  // rare after the first tiles
                    const bool is_first = state[m][half].highest == detail::attention_masked_score;
                    const float factor = is_first ? 0 : power_of_two(exponent_of(state[m][half].highest) - top);
                    total *= factor;
                    HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
                        HALFTONE_UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) sums[m][n][e] *= factor;
                    }
                }
                state[m][half] = {highest[m][half], total + (even + odd)};
            }
        }
    }

    /// For a query without visible keys, whose weights are all 0, o is 0.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, const row_state (&state)[RowBlocks][2],
                                            block_sums (&sums)[RowBlocks][Head / 8], const query_tile& tile) const {
        const attention_block here = kept_block(simt, here_at);
        const int mine = here.first + simt.warp() * warp_rows;
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                float total = state[m][half].total;
                total += simt.shuffle_xor(total, 2);
                total += simt.shuffle_xor(total, 1);
                const float inverse = 1 / total;
                const int query = mine + 16 * m + 8 * half + simt.lane() / 4;
                const bool saw = here.sees(query, 0);
                HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
                    HALFTONE_UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) {
                        sums[m][n][e] = saw ? sums[m][n][e] * inverse : 0.0f;
                    }
                }
                if (logsumexp.is_there() && query < here.queries && simt.lane() % 4 == 0) {
                    // Corrects for the rounding of the highest score's exponent, which all weights share.
                    const float highest = state[m][half].highest;
                    const float more = std::fma(highest, problem.scale * detail::log2_of_e, -exponent_of(highest)),
                                log = std::log(total) - more / detail::log2_of_e;
                    simt.store(logsumexp, 2 * problem.row_sum(here, query), highest);
                    simt.store(logsumexp, 2 * problem.row_sum(here, query) + 1, saw ? log : 0.0f);
                }
            }
        }
        tile.template write<RowBlocks>(simt, simt.warp() * warp_rows, sums,
                                       o.from(here.sequence, here.query_begin, here.head), o.time_stride, mine,
                                       here.queries, problem.head_size);
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
