// SPDX-License-Identifier: MIT
/// \file
/// Attention forward for sm_90a. A block is a warpgroup whose first thread fetches (the producer) and two or three
/// warpgroups that compute, each 64 queries of a tile (the consumers). The producer runs ahead of them through rings of
/// stages of keys and values, from tile to tile.
#pragma once

#include "hopper.cuh"

namespace study {

struct forward_arguments {
    float* logsumexp;                                            ///< (batch * heads, length)
    int length, heads, all_heads, blocks, heads_at_once, tiles;  ///< all_heads: batch * heads; blocks: of queries
    int is_causal, is_by_counter;  ///< by counter: a block takes the next tile that is left
    float scale;                   ///< log2(e) / sqrt(head size)
    unsigned* counter;             ///< two words, zero before and after a launch
    unsigned* hang;                ///< the host's memory
};

/// \tparam Keys        of a block of keys
/// \tparam Warpgroups  that compute
/// \tparam TakeTurns   warpgroups pass around who may issue products: one's softmax overlaps with the other's products
/// \tparam OutputApart the output has separate shared memory: the next tile's queries may be loaded before it is written
/// \tparam LazyMaximum the maximum that is subtracted stays until a score exceeds it by more than 8 (as powers of two);
///                     sums are rescaled then alone
template <int HeadSize, int Keys, int Warpgroups, int Stages, bool TakeTurns, bool OutputApart, bool LazyMaximum>
struct forward_config {
    static constexpr int head_size = HeadSize, keys = Keys, warpgroups = Warpgroups, stages = Stages;
    static constexpr int queries = 64 * Warpgroups;
    static constexpr bool take_turns = TakeTurns, output_apart = OutputApart, lazy_maximum = LazyMaximum;
    static constexpr int query_bytes = 64 * HeadSize * 2, stage_bytes = Keys * HeadSize * 2;  // of a warpgroup; of keys
    static constexpr int keys_at = query_bytes * Warpgroups, values_at = keys_at + stage_bytes * Stages,
                         output_at = values_at + stage_bytes * Stages,
                         barriers_at = output_at + (OutputApart ? query_bytes * Warpgroups : 0);
    static constexpr int shared_bytes = barriers_at + 256 + 1024;  // 1024: to align
    static constexpr int threads = 128 * (Warpgroups + 1);
};

/// Every tile: scores of block i + 1 are multiplied while block i's values are; the softmax of i + 1 overlaps with the
/// latter.
template <class C>
__global__ void __launch_bounds__(C::threads, 1)
    forward(const __grid_constant__ CUtensorMap query_map, const __grid_constant__ CUtensorMap key_map,
            const __grid_constant__ CUtensorMap value_map, const __grid_constant__ CUtensorMap output_map,
            const __grid_constant__ forward_arguments p) {
    constexpr int head_size = C::head_size, keys = C::keys, warpgroups = C::warpgroups, stages = C::stages;
    extern __shared__ unsigned char raw[];
    const std::uint32_t base = (shared_address(raw) + 1023) & ~1023u;
    // Barriers: queries full, free (each warpgroup), keys full, free, values full, free (each stage); then the tile
    // that each warpgroup's queries are of, or -1 at the end.
    const std::uint32_t queries_full = base + C::barriers_at, queries_free = queries_full + 8 * warpgroups,
                        keys_full = queries_free + 8 * warpgroups, keys_free = keys_full + 8 * stages,
                        values_full = keys_free + 8 * stages, values_free = values_full + 8 * stages,
                        tile_slot = values_free + 8 * stages;
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < warpgroups; ++i)
            barrier_init(queries_full + 8 * i, 1), barrier_init(queries_free + 8 * i, 4);
        for (int i = 0; i < stages; ++i) {
            barrier_init(keys_full + 8 * i, 1), barrier_init(keys_free + 8 * i, 4 * warpgroups);
            barrier_init(values_full + 8 * i, 1), barrier_init(values_free + 8 * i, 4 * warpgroups);
        }
        barrier_fence_of_init();
    }
    __syncthreads();
    if (warpgroup == 0) {
        // The producer.
        fewer_registers<warpgroups == 2 ? 24 : 32>();
        if (threadIdx.x == 0) {
            int key_stage = 0, value_stage = 0;
            std::uint32_t key_parity = 1, value_parity = 1, query_parity = 1;
            int tile = blockIdx.x;
            while (true) {
                const bool is_more = tile < p.tiles;
                int next = tile + gridDim.x, batch = 0, head = 0, blocks = 0, first_query = 0;
                const auto copy_keys = [&](int i, unsigned code) {
                    barrier_wait_watched(keys_free + 8 * key_stage, key_parity, p.hang, code);
                    barrier_expect(keys_full + 8 * key_stage, C::stage_bytes);
                    copy_tile(base + C::keys_at + key_stage * C::stage_bytes, &key_map, i * keys, head, batch,
                              keys_full + 8 * key_stage);
                    if (++key_stage == stages) key_stage = 0, key_parity ^= 1;
                };
                if (is_more) {
                    if (p.is_by_counter) next = static_cast<int>(atomicAdd(p.counter, 1u)) + gridDim.x;
                    const tile_place place = place_of(tile, p.heads_at_once, p.all_heads, p.blocks, p.is_causal);
                    batch = place.head / p.heads, head = place.head - batch * p.heads;
                    first_query = place.block * C::queries;
                    blocks = ((p.is_causal ? min(p.length, first_query + C::queries) : p.length) + keys - 1) / keys;
                    copy_keys(0, 1);
                }
                for (int w = 0; w < warpgroups; ++w) {
                    barrier_wait_watched(queries_free + 8 * w, query_parity, p.hang, 2);
                    store_shared(tile_slot + 4 * w, is_more ? tile : -1);
                    if (is_more) {
                        barrier_expect(queries_full + 8 * w, C::query_bytes);
                        copy_tile(base + w * C::query_bytes, &query_map, first_query + 64 * w, head, batch,
                                  queries_full + 8 * w);
                    } else {
                        barrier_arrive(queries_full + 8 * w);
                    }
                }
                if (!is_more) break;
                query_parity ^= 1;
                for (int i = 1; i <= blocks; ++i) {
                    if (i < blocks) copy_keys(i, 3);
                    barrier_wait_watched(values_free + 8 * value_stage, value_parity, p.hang, 4);
                    barrier_expect(values_full + 8 * value_stage, C::stage_bytes);
                    copy_tile(base + C::values_at + value_stage * C::stage_bytes, &value_map, (i - 1) * keys, head,
                              batch, values_full + 8 * value_stage);
                    if (++value_stage == stages) value_stage = 0, value_parity ^= 1;
                }
                tile = next;
            }
            // The last block clears the counters for the next launch.
            if (p.is_by_counter && atomicAdd(p.counter + 1, 1u) == gridDim.x - 1) {
                p.counter[0] = 0;
                p.counter[1] = 0;
            }
        }
    } else {
        // A consumer. Of 64 x N sums a thread has those of rows 16 warp + group and 8 below, columns 2 pair + 8 j, and
        // one to the right.
        more_registers<warpgroups == 2 ? 240 : 160>();
        const int w = warpgroup - 1, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32, group = lane / 4,
                  pair = lane % 4;
        const int my_turn = 1 + w, next_turn = 1 + (w + 1 == warpgroups ? 0 : w + 1);  // named barriers
        const int whole_warpgroup = 5 + w;                                             // another
        if (C::take_turns && w == warpgroups - 1) named_barrier_arrive(1, 256);
        int key_stage = 0, value_stage = 0;
        std::uint32_t key_parity = 0, value_parity = 0, query_parity = 0;
        float o[head_size / 2], s[keys / 2];  // sums of values; scores and then probabilities
        std::uint32_t probabilities[keys / 4];
#pragma unroll
        for (int i = 0; i < keys / 2; ++i) s[i] = 0.f;
        const std::uint64_t query_operand = descriptor(base + w * C::query_bytes, 1),
                            key_operand = descriptor(base + C::keys_at, 1),
                            value_operand = descriptor(base + C::values_at, keys * 8);
        const auto issue_scores = [&](int stage) {
            const std::uint64_t b = key_operand + static_cast<std::uint64_t>(stage * (C::stage_bytes >> 4));
#pragma unroll
            for (int k = 0; k < head_size / 16; ++k) {
                const std::uint64_t at_a = query_operand + ((k / 4) * (64 * 128 >> 4) + (k % 4) * 2),
                                    at_b = b + ((k / 4) * (keys * 128 >> 4) + (k % 4) * 2);
                if (k == 0) {
                    multiply<true>(s, at_a, at_b);
                } else {
                    multiply<false>(s, at_a, at_b);
                }
            }
            wgmma_commit();
        };
        const auto issue_output = [&](int stage) {
            const std::uint64_t b = value_operand + static_cast<std::uint64_t>(stage * (C::stage_bytes >> 4));
#pragma unroll
            for (int k = 0; k < keys / 16; ++k) {
                add_product(o, probabilities[4 * k], probabilities[4 * k + 1], probabilities[4 * k + 2],
                            probabilities[4 * k + 3], b + k * (16 * 128 >> 4));
            }
            wgmma_commit();
        };
        while (true) {
            barrier_wait(queries_full + 8 * w, query_parity);
            query_parity ^= 1;
            const int tile = load_shared(tile_slot + 4 * w);
            if (tile < 0) break;
            const tile_place place = place_of(tile, p.heads_at_once, p.all_heads, p.blocks, p.is_causal);
            const int first_query = place.block * C::queries + 64 * w, row = first_query + 16 * warp + group;
            const int keys_of_tile = p.is_causal ? min(p.length, place.block * C::queries + C::queries) : p.length,
                      blocks_of_tile = (keys_of_tile + keys - 1) / keys;
            // Those that this warpgroup needs; the tile's others are for the warpgroups below.
            const int blocks = p.is_causal ? (min(p.length, first_query + 64) + keys - 1) / keys : blocks_of_tile;
            // Keys below this are open to all rows of this warpgroup; the last that rows `row` and `row + 8` see.
            const int open_keys = p.is_causal ? min(p.length, first_query + 1) : p.length;
            const int last0 = p.is_causal ? min(p.length - 1, row) : p.length - 1,
                      last1 = p.is_causal ? min(p.length - 1, row + 8) : p.length - 1;
            float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f}, factor[2];
#pragma unroll
            for (int i = 0; i < head_size / 2; ++i) o[i] = 0.f;
            // Scores of the keys from first_key become probabilities, relative to the maximum; `factor` is by what the
            // earlier ones shrink.
            const auto softmax = [&](int first_key) {
                if (first_key + keys > open_keys) {
                    const int end0 = last0 - first_key - 2 * pair, end1 = last1 - first_key - 2 * pair;
#pragma unroll
                    for (int j = 0; j < keys / 8; ++j) {
                        if (8 * j > end0) s[4 * j] = -INFINITY;
                        if (8 * j + 1 > end0) s[4 * j + 1] = -INFINITY;
                        if (8 * j > end1) s[4 * j + 2] = -INFINITY;
                        if (8 * j + 1 > end1) s[4 * j + 3] = -INFINITY;
                    }
                }
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float x0 = s[2 * e], x1 = s[2 * e + 1];
#pragma unroll
                    for (int j = 1; j < keys / 8; ++j) {
                        x0 = fmaxf(x0, s[4 * j + 2 * e]), x1 = fmaxf(x1, s[4 * j + 2 * e + 1]);
                    }
                    x0 = fmaxf(x0, x1);
                    x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 1));
                    x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 2));
                    float now = fmaxf(maximum[e], x0);  // finite: key 0 is open to every row and comes first
                    if (C::lazy_maximum) now = (now - maximum[e]) * p.scale > 8.f ? now : maximum[e];
                    factor[e] = exp2_approximate((maximum[e] - now) * p.scale);
                    maximum[e] = now;
                    const float scaled = now * p.scale;
                    float sum0 = 0.f, sum1 = 0.f;
#pragma unroll
                    for (int j = 0; j < keys / 8; ++j) {
                        float y0 = fmaf(s[4 * j + 2 * e], p.scale, -scaled),
                              y1 = fmaf(s[4 * j + 2 * e + 1], p.scale, -scaled);
                        y0 = exp2_approximate(y0);
                        y1 = exp2_approximate(y1);
                        sum0 += y0, sum1 += y1;
                        s[4 * j + 2 * e] = y0, s[4 * j + 2 * e + 1] = y1;
                    }
                    sum[e] = fmaf(sum[e], factor[e], sum0 + sum1);
                }
            };
            const auto rescale = [&] {
                if (!C::lazy_maximum || __any_sync(~0u, factor[0] != 1.f || factor[1] != 1.f)) {
#pragma unroll
                    for (int i = 0; i < head_size / 2; ++i) o[i] *= factor[i / 2 % 2];
                }
            };
            const auto convert = [&] {
#pragma unroll
                for (int i = 0; i < keys / 4; ++i) probabilities[i] = pack(s[2 * i], s[2 * i + 1]);
            };
            barrier_wait(keys_full + 8 * key_stage, key_parity);
            if (C::take_turns) named_barrier_sync(my_turn, 256);
            pin(s);
            wgmma_fence();
            issue_scores(key_stage);
            if (C::take_turns) named_barrier_arrive(next_turn, 256);
            wgmma_wait<0>();
            pin(s);
            if (lane == 0) barrier_arrive(keys_free + 8 * key_stage);
            if (++key_stage == stages) key_stage = 0, key_parity ^= 1;
            softmax(0);
            convert();
            if (blocks > 1) barrier_wait(keys_full + 8 * key_stage, key_parity);
            for (int i = 1; i < blocks; ++i) {
                if (C::take_turns) named_barrier_sync(my_turn, 256);
                pin(s), pin(probabilities), pin(o);
                wgmma_fence();
                issue_scores(key_stage);
                barrier_wait(values_full + 8 * value_stage, value_parity);
                wgmma_fence();
                issue_output(value_stage);
                if (C::take_turns) named_barrier_arrive(next_turn, 256);
                wgmma_wait<1>();
                pin(s);
                if (lane == 0) barrier_arrive(keys_free + 8 * key_stage);
                if (++key_stage == stages) key_stage = 0, key_parity ^= 1;
                softmax(i * keys);
                pin(s);
                // Here, since ptxas moves the wait below up to the begin of the softmax unless a branch parts them.
                if (i + 1 < blocks) barrier_wait(keys_full + 8 * key_stage, key_parity);
                wgmma_wait<0>();
                pin(o), pin(probabilities), pin(s);
                if (lane == 0) barrier_arrive(values_free + 8 * value_stage);
                if (++value_stage == stages) value_stage = 0, value_parity ^= 1;
                rescale();
                convert();
            }
            if (C::output_apart && lane == 0) barrier_arrive(queries_free + 8 * w);
            barrier_wait(values_full + 8 * value_stage, value_parity);
            pin(probabilities), pin(o);
            wgmma_fence();
            issue_output(value_stage);
            wgmma_wait<0>();
            pin(o);
            if (lane == 0) barrier_arrive(values_free + 8 * value_stage);
            if (++value_stage == stages) value_stage = 0, value_parity ^= 1;
            for (int i = blocks; i < blocks_of_tile; ++i) {
                barrier_wait(keys_full + 8 * key_stage, key_parity);
                if (C::take_turns) named_barrier_sync(my_turn, 256), named_barrier_arrive(next_turn, 256);
                if (lane == 0) barrier_arrive(keys_free + 8 * key_stage);
                if (++key_stage == stages) key_stage = 0, key_parity ^= 1;
                barrier_wait(values_full + 8 * value_stage, value_parity);
                if (lane == 0) barrier_arrive(values_free + 8 * value_stage);
                if (++value_stage == stages) value_stage = 0, value_parity ^= 1;
            }
            // The output goes through shared memory, from where the copy engine writes it.
            const int batch = place.head / p.heads, head = place.head - batch * p.heads;
            float inverse[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float x = sum[e];
                x += __shfl_xor_sync(~0u, x, 1);
                x += __shfl_xor_sync(~0u, x, 2);
                inverse[e] = 1.f / x;
                if (pair == 0 && row + 8 * e < p.length) {
                    p.logsumexp[static_cast<std::size_t>(place.head) * p.length + row + 8 * e] =
                        (maximum[e] * p.scale + log2f(x)) * 0.69314718056f;
                }
            }
            const std::uint32_t to = base + (C::output_apart ? C::output_at : 0) + w * C::query_bytes,
                                at = to + (16 * warp + group) * 128 + 4 * pair;
            if (C::output_apart && threadIdx.x % 128 == 0) wait_for_stores();
            named_barrier_sync(whole_warpgroup, 128);
#pragma unroll
            for (int j = 0; j < head_size / 8; ++j) {
                const std::uint32_t a = at + (j / 8) * 8192 + (((j % 8) ^ group) << 4);
                store_shared(a, pack(o[4 * j] * inverse[0], o[4 * j + 1] * inverse[0]));
                store_shared(a + 1024, pack(o[4 * j + 2] * inverse[1], o[4 * j + 3] * inverse[1]));
            }
            proxy_fence();
            named_barrier_sync(whole_warpgroup, 128);
            if (threadIdx.x % 128 == 0) {
                store_tile(&output_map, first_query, head, batch, to);
                commit_stores();
                if (!C::output_apart) wait_for_stores();
            }
            if (!C::output_apart && lane == 0) barrier_arrive(queries_free + 8 * w);
        }
        if (C::take_turns && w == 0) named_barrier_sync(1, 256);  // the last turn, which was handed to the first
        if (threadIdx.x % 128 == 0) wait_for_stores();
    }
}

}  // namespace study
