// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention on a GPU with matrix instructions, for 16-bit types (Dao 2023, "FlashAttention-2").
///
/// A block keeps some queries, 16 RowBlocks of them to a warp, and walks the keys and values that they see, tile by tile.
/// Scores, weights and the sums of o stay in registers: the scores' blocks are, rounded, the left operand of the product
/// with the values. While a tile's scores are computed its values are copied, and the next tile's keys meanwhile and on.
#pragma once

#include <halftone/kernel/attention/device_fragments.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

/// o and logsumexp; head_size is at most Head. Chunks of all operands lie on multiples of 16 bytes.
template <class T, int Head, int RowBlocks>
struct flash_attention_kernel {
    static constexpr int warps = 4, threads = 32 * warps, warp_rows = 16 * RowBlocks, query_rows = warps * warp_rows;
    static constexpr int key_rows = Head * RowBlocks > 192 ? 48 : 64;  // as registers allow
    static constexpr bool holds_queries = Head * RowBlocks <= 128;  // in registers, else they are read again for each tile
    using query_tile = head_tile<T, query_rows, Head>;
    using key_tile = head_tile<T, key_rows, Head>;
    static constexpr word queries_at = 0, keys_at = query_tile::bytes, values_at = keys_at + 2 * key_tile::bytes,
                          shared_bytes = values_at + key_tile::bytes;

    head_vectors<const T> q, k, v;
    head_vectors<T> o;
    global_span<float> logsumexp;  // (batch, heads, queries), or none
    attention_problem problem;

    HALFTONE_HD attention_grid parts() const { return {problem.batch, problem.heads, problem.queries, query_rows}; }
    grid_shape grid() const { return parts().shape(); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const attention_part part = parts().part_from_last(simt.block().x);
        const int group = part.head / problem.members, mine = part.first + simt.warp() * warp_rows;
        const int end = problem.keys_seen(part.first + query_rows);
        // Of these keys the warp's queries see some; none where there are no such queries.
        const int seen = mine < problem.queries ? problem.keys_seen(mine + warp_rows) : 0;
        const query_tile query{{queries_at}};
        const key_tile value{{values_at}};

        tile_source<T, query_tile, threads>::of(simt, q.from(part.batch, 0, part.head), q.time_stride, part.first, problem.queries,
                                                problem.head_size).fetch(simt, query);
        using source = tile_source<T, key_tile, threads>;
        source keys = source::of(simt, k.from(part.batch, 0, group), k.time_stride, 0, problem.keys, problem.head_size);
        source values = source::of(simt, v.from(part.batch, 0, group), v.time_stride, 0, problem.keys, problem.head_size);
        keys.fetch(simt, key_tile{{keys_at}});
        simt.async_commit();
        simt.async_wait(constant<0>{});
        simt.barrier();
        const auto query_blocks = query.blocks(simt);
        vec<word, 4> held[RowBlocks][holds_queries ? Head / 16 : 1];
        if constexpr (holds_queries) {
            HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                HALFTONE_UNROLL for (int d = 0; d < Head; d += 16) {
                    held[m][d / 16] = simt.ldmatrix_x4(query_blocks.at(simt.warp() * warp_rows + 16 * m, d));
                }
            }
        }

        row_state state[RowBlocks][2];
        block_sums sums[RowBlocks][Head / 8] = {};
        word keys_now = keys_at, keys_next = keys_at + key_tile::bytes;
        for (int j = 0; j < end; j += key_rows) {
            values.fetch(simt, value);
            values.next_tile();
            simt.async_commit();
            keys.next_tile();
            if (j + key_rows < end) keys.fetch(simt, key_tile{{keys_next}});
            simt.async_commit();
            block_sums scores[RowBlocks][key_rows / 8] = {};
            if (j < seen) {
                const auto key_blocks = key_tile{{keys_now}}.rows_as_columns(simt);
                HALFTONE_UNROLL for (int d = 0; d < Head; d += 16) {
                    vec<word, 4> left[RowBlocks];
                    HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                        if constexpr (holds_queries) {
                            left[m] = held[m][d / 16];
                        } else {
                            left[m] = simt.ldmatrix_x4(query_blocks.at(simt.warp() * warp_rows + 16 * m, d));
                        }
                    }
                    HALFTONE_UNROLL for (int n = 0; n < key_rows; n += 16) {
                        const vec<word, 4> right = simt.ldmatrix_x4(key_blocks.at(n, d));
                        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                            simt.mma_16816(simt::element<T>{}, scores[m][n / 8], left[m], first_half(right));
                            simt.mma_16816(simt::element<T>{}, scores[m][n / 8 + 1], left[m], second_half(right));
                        }
                    }
                }
            }
            simt.async_wait(constant<1>{});
            simt.barrier();  // the values are there
            if (j < seen) {
                if (j + key_rows > problem.keys_seen(mine + 1)) hide(simt, mine, j, scores);
                HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                    HALFTONE_UNROLL for (int half = 0; half < 2; ++half) weigh(simt, half, scores[m], state[m][half], sums[m]);
                }
                const auto value_blocks = value.blocks(simt);
                HALFTONE_UNROLL for (int n = 0; n < key_rows; n += 16) {
                    vec<word, 4> left[RowBlocks];
                    HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) left[m] = as_left<T>(scores[m][n / 8], scores[m][n / 8 + 1]);
                    HALFTONE_UNROLL for (int d = 0; d < Head; d += 16) {
                        const vec<word, 4> right = simt.ldmatrix_x4_trans(value_blocks.at(n, d));
                        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                            simt.mma_16816(simt::element<T>{}, sums[m][d / 8], left[m], first_half(right));
                            simt.mma_16816(simt::element<T>{}, sums[m][d / 8 + 1], left[m], second_half(right));
                        }
                    }
                }
            }
            simt.async_wait(constant<0>{});
            simt.barrier();  // the next keys are there, and all warps are done with these and with the values
            const word free = keys_now;
            keys_now = keys_next, keys_next = free;
        }
        finish(simt, part, mine, state, sums, query);
    }

  private:
    /// Of a query's softmax so far; `total` is the lane's share.
    struct row_state {
        float highest = detail::attention_hidden, total = 0;
    };

    /// Hides the keys that a query does not see.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void hide(Simt simt, int mine, int first, block_sums (&scores)[RowBlocks][key_rows / 8]) const {
        // Relative to the lane's first key, and for its first query.
        const int key = first + simt.lane() % 4 * 2, left = problem.keys - key, visible = mine + simt.lane() / 4 + problem.offset - key;
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int n = 0; n < key_rows / 8; ++n) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    const int down = 16 * m + 8 * (e / 2), across = 8 * n + e % 2;
                    if (across >= left || across - down > visible) scores[m][n][e] = detail::attention_hidden;
                }
            }
        }
    }

    /// Takes a tile's scores of one row into its softmax: they become weights, the row's sums are brought to the new
    /// maximum.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void weigh(Simt simt, int half, block_sums (&scores)[key_rows / 8], row_state& state,
                                           block_sums (&sums)[Head / 8]) const {
        const float scale = problem.scale * detail::log2_of_e;
        float highest = state.highest;
        HALFTONE_UNROLL for (int n = 0; n < key_rows / 8; ++n) {
            HALFTONE_UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) highest = simt::maximum{}(highest, scores[n][e]);
        }
        highest = simt::maximum{}(highest, simt.shuffle_xor(highest, 2));
        highest = simt::maximum{}(highest, simt.shuffle_xor(highest, 1));
        const float factor = power_of_two((state.highest - highest) * scale);
        state.highest = highest;
        state.total *= factor;
        HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
            HALFTONE_UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) sums[n][e] *= factor;
        }
        HALFTONE_UNROLL for (int n = 0; n < key_rows / 8; ++n) {
            HALFTONE_UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) {
                scores[n][e] = power_of_two((scores[n][e] - highest) * scale);
                state.total += scores[n][e];
            }
        }
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, const attention_part& part, int mine, const row_state (&state)[RowBlocks][2],
                                            block_sums (&sums)[RowBlocks][Head / 8], const query_tile& tile) const {
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                float total = state[m][half].total;
                total += simt.shuffle_xor(total, 2);
                total += simt.shuffle_xor(total, 1);
                const float inverse = 1 / total;
                HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
                    HALFTONE_UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) sums[m][n][e] *= inverse;
                }
                const int query = mine + 16 * m + 8 * half + simt.lane() / 4;
                if (logsumexp.is_there() && query < problem.queries && simt.lane() % 4 == 0) {
                    simt.store(logsumexp, static_cast<extent>(part.batch * problem.heads + part.head) * problem.queries + query,
                               std::fma(state[m][half].highest, problem.scale, std::log(total)));
                }
            }
        }
        tile.template write<RowBlocks>(simt, simt.warp() * warp_rows, sums, o.from(part.batch, 0, part.head), o.time_stride, mine,
                                       problem.queries, problem.head_size);
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
