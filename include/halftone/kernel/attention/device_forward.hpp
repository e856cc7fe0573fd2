// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention on a GPU with matrix instructions, for 16-bit types (Dao 2023, "FlashAttention-2").
///
/// A block keeps some queries, 16 RowBlocks of them to a warp, and walks the keys and values that they see, tile by
/// tile. Scores, weights and the sums of o stay in registers: the scores' blocks are, rounded, the left operand of the
/// product with the values. While a tile's scores are computed its values are copied, and the next tile's keys
/// meanwhile and on.
#pragma once

#include <halftone/kernel/attention/device_fragments.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

/// o and logsumexp; head_size is at most Head. Chunks of all operands lie on multiples of 16 bytes.
template <class T, int Head, int RowBlocks>
struct flash_attention_kernel {
    static constexpr int warps = 4, threads = 32 * warps, warp_rows = 16 * RowBlocks, query_rows = warps * warp_rows;
    static constexpr int key_rows = Head * RowBlocks > 192 ? 32 : 64;  // as registers allow
    // In registers, where there is room that nothing else would fill; elsewhere they are read again for each tile.
    static constexpr bool holds_queries = Head * RowBlocks == 128;
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
        const query_tile query{{queries_at}}, my_query = query.from_row(simt.warp() * warp_rows);
        const key_tile value{{values_at}};

        tile_source<T, query_tile, threads>::of(simt, q.from(part.batch, 0, part.head), q.time_stride, part.first,
                                                problem.queries, problem.head_size)
            .fetch(simt, query);
        using source = tile_source<T, key_tile, threads>;
        source keys = source::of(simt, k.from(part.batch, 0, group), k.time_stride, 0, problem.keys, problem.head_size);
        source values =
            source::of(simt, v.from(part.batch, 0, group), v.time_stride, 0, problem.keys, problem.head_size);
        keys.fetch(simt, key_tile{{keys_at}});
        simt.async_commit();
        simt.async_wait(constant<0>{});
        simt.barrier();
        const word place = key_tile::place_of(simt);
        vec<word, 4> held[RowBlocks][holds_queries ? Head / 16 : 1];
        if constexpr (holds_queries) {
            HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                HALFTONE_UNROLL for (int d = 0; d < Head; d += 16) {
                    held[m][d / 16] = simt.ldmatrix_x4(my_query.block(place, 16 * m, d));
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
            const key_tile key{{keys_now}};
            HALFTONE_UNROLL for (int d = 0; d < Head; d += 16) {
                vec<word, 4> left[RowBlocks];
                HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                    if constexpr (holds_queries) {
                        left[m] = held[m][d / 16];
                    } else {
                        left[m] = simt.ldmatrix_x4(my_query.block(place, 16 * m, d));
                    }
                }
                HALFTONE_UNROLL for (int n = 0; n < key_rows; n += 16) {
                    const vec<word, 4> right = simt.ldmatrix_x4(key.block(place, n, d));
                    HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                        simt.mma_16816(simt::element<T>{}, scores[m][n / 8], left[m], rows_as_columns(right, 0));
                        simt.mma_16816(simt::element<T>{}, scores[m][n / 8 + 1], left[m], rows_as_columns(right, 1));
                    }
                }
            }
            if (j + key_rows > problem.keys_seen(part.first + 1)) hide(simt, mine, j, scores);
            weigh(simt, scores, state, sums);

            simt.async_wait(constant<1>{});
            simt.barrier();  // the values are there
            HALFTONE_UNROLL for (int n = 0; n < key_rows; n += 16) {
                vec<word, 4> left[RowBlocks];
                HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                    left[m] = as_left<T>(scores[m][n / 8], scores[m][n / 8 + 1]);
                }
                HALFTONE_UNROLL for (int d = 0; d < Head; d += 16) {
                    const vec<word, 4> right = simt.ldmatrix_x4_trans(value.block(place, n, d));
                    HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
                        simt.mma_16816(simt::element<T>{}, sums[m][d / 8], left[m], columns(right, 0));
                        simt.mma_16816(simt::element<T>{}, sums[m][d / 8 + 1], left[m], columns(right, 1));
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
    HALFTONE_HD HALFTONE_INLINE void hide(Simt simt, int mine, int first,
                                          block_sums (&scores)[RowBlocks][key_rows / 8]) const {
        // Relative to the lane's first key, and for its first query.
        const int key = first + simt.lane() % 4 * 2, left = problem.keys - key,
                  visible = mine + simt.lane() / 4 + problem.offset - key;
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int n = 0; n < key_rows / 8; ++n) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    const int down = 16 * m + 8 * (e / 2), across = 8 * n + e % 2;
                    if (across >= left || across - down > visible) scores[m][n][e] = detail::attention_hidden;
                }
            }
        }
    }

    /// Takes a tile's scores into the softmax (Milakov and Gimelshein 2018): they become weights, and the sums are
    /// brought to the new maxima. Step by step for all rows, so that one's latency passes behind the others.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void weigh(Simt simt, block_sums (&scores)[RowBlocks][key_rows / 8],
                                           row_state (&state)[RowBlocks][2],
                                           block_sums (&sums)[RowBlocks][Head / 8]) const {
        const float scale = problem.scale * detail::log2_of_e;
        float highest[RowBlocks][2];
        HALFTONE_UNROLL for (int m = 0; m < RowBlocks; ++m) {
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                float even = state[m][half].highest, odd = scores[m][0][2 * half + 1];
                HALFTONE_UNROLL for (int n = 0; n < key_rows / 8; ++n) {
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
                const float factor = power_of_two((state[m][half].highest - highest[m][half]) * scale);
                float even = 0, odd = 0;
                HALFTONE_UNROLL for (int n = 0; n < key_rows / 8; ++n) {
                    float &x = scores[m][n][2 * half], &y = scores[m][n][2 * half + 1];
                    x = power_of_two((x - highest[m][half]) * scale);
                    y = power_of_two((y - highest[m][half]) * scale);
                    even += x, odd += y;
                }
                state[m][half] = {highest[m][half], std::fma(state[m][half].total, factor, even + odd)};
                HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
                    HALFTONE_UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) sums[m][n][e] *= factor;
                }
            }
        }
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, const attention_part& part, int mine,
                                            const row_state (&state)[RowBlocks][2],
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
                    simt.store(logsumexp,
                               static_cast<extent>(part.batch * problem.heads + part.head) * problem.queries + query,
                               std::fma(state[m][half].highest, problem.scale, std::log(total)));
                }
            }
        }
        tile.template write<RowBlocks>(simt, simt.warp() * warp_rows, sums, o.from(part.batch, 0, part.head),
                                       o.time_stride, mine, problem.queries, problem.head_size);
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
