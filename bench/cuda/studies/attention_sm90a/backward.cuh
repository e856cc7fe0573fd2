// SPDX-License-Identifier: MIT
/// \file
/// Attention backward for sm_90a in two kernels without atomic additions, so that results are the same every time:
/// by_keys keeps 64 keys and values a warpgroup (dk, dv) and goes over queries, by_queries keeps 64 queries a warpgroup
/// (dq) and goes over keys. Both recompute the probabilities from the logsumexp that the forward pass left. A block is
/// a warpgroup whose first thread fetches and two that compute.
#pragma once

#include "hopper.cuh"

namespace study {

/// "Output" is the forward pass's; its gradient is the one that is given.
struct backward_arguments {
    const float* logsumexp2;  ///< (batch * heads, padded): logsumexp * log2(e); +inf beyond the end
    const float* delta;       ///< (batch * heads, padded): sum of output * its gradient; 0 beyond the end
    int length, padded, heads, all_heads, blocks, heads_at_once, tiles, is_causal;
    float scale, scale2;  ///< 1 / sqrt(head size), and that * log2(e)
    unsigned* hang;       ///< the host's memory
};

/// \tparam Rows           of a block of what is gone over
/// \tparam ShareRegisters probabilities and gradients of scores take turns in the same registers
template <int HeadSize, int Rows, int Stages, bool ShareRegisters = false>
struct backward_config {
    static constexpr int head_size = HeadSize, rows = Rows, stages = Stages, warpgroups = 2,
                         kept_rows = 64 * warpgroups;
    static constexpr bool share_registers = ShareRegisters;
    static constexpr int kept_bytes = 64 * HeadSize * 2, stage_bytes = Rows * HeadSize * 2;  // of one tensor of two
    static constexpr int second_kept_at = kept_bytes * warpgroups, stages_at = 2 * kept_bytes * warpgroups,
                         vectors_at = stages_at + 2 * stage_bytes * Stages,
                         barriers_at = vectors_at + Stages * Rows * 8;
    static constexpr int shared_bytes = barriers_at + 256 + 1024, threads = 128 * (warpgroups + 1);
};

/// d = a b^T over K channels, issued.
template <int N, int K>
STUDY_INLINE void issue_scores(float (&d)[N / 2], std::uint64_t a, std::uint64_t b) {
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
        const std::uint64_t at_a = a + ((k / 4) * (64 * 128 >> 4) + (k % 4) * 2),
                            at_b = b + ((k / 4) * (N * 128 >> 4) + (k % 4) * 2);
        if (k == 0) {
            multiply<true>(d, at_a, at_b);
        } else {
            multiply<false>(d, at_a, at_b);
        }
    }
    wgmma_commit();
}
/// d += a b over K rows of b, issued.
template <int N, int K>
STUDY_INLINE void issue_gradient(float (&d)[N / 2], const std::uint32_t (&a)[K / 4], std::uint64_t b) {
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
        add_product(d, a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3], b + k * (16 * 128 >> 4));
    }
    wgmma_commit();
}
/// 64 rows of sums times \p by to a swizzled tile of shared memory.
template <int HeadSize>
STUDY_INLINE void put_tile(const float (&sums)[HeadSize / 2], float by, std::uint32_t to, int warp, int group,
                           int pair) {
    const std::uint32_t at = to + (16 * warp + group) * 128 + 4 * pair;
#pragma unroll
    for (int j = 0; j < HeadSize / 8; ++j) {
        const std::uint32_t a = at + (j / 8) * 8192 + (((j % 8) ^ group) << 4);
        store_shared(a, pack(sums[4 * j] * by, sums[4 * j + 1] * by));
        store_shared(a + 1024, pack(sums[4 * j + 2] * by, sums[4 * j + 3] * by));
    }
}

/// The producer. IsByKeys: keys and values are kept; queries, output gradients and the two vectors are gone over in
/// blocks [from, to). Else queries and output gradients are kept; keys and values are gone over.
template <class C, bool IsByKeys>
STUDY_INLINE void produce(const CUtensorMap* kept0, const CUtensorMap* kept1, const CUtensorMap* streamed0,
                          const CUtensorMap* streamed1, const backward_arguments& p, std::uint32_t base,
                          std::uint32_t kept, std::uint32_t full, std::uint32_t free, int head_of_all, int first_row,
                          int from, int to) {
    const int batch = head_of_all / p.heads, head = head_of_all - batch * p.heads;
    barrier_expect(kept, 2 * C::kept_bytes * C::warpgroups);
    for (int w = 0; w < C::warpgroups; ++w) {
        copy_tile(base + w * C::kept_bytes, kept0, first_row + 64 * w, head, batch, kept);
        copy_tile(base + C::second_kept_at + w * C::kept_bytes, kept1, first_row + 64 * w, head, batch, kept);
    }
    int s = 0;
    std::uint32_t parity = 1;
    for (int i = from; i < to; ++i) {
        barrier_wait_watched(free + 8 * s, parity, p.hang, IsByKeys ? 21 : 22);
        barrier_expect(full + 8 * s, 2 * C::stage_bytes + (IsByKeys ? C::rows * 8 : 0));
        copy_tile(base + C::stages_at + s * 2 * C::stage_bytes, streamed0, i * C::rows, head, batch, full + 8 * s);
        copy_tile(base + C::stages_at + s * 2 * C::stage_bytes + C::stage_bytes, streamed1, i * C::rows, head, batch,
                  full + 8 * s);
        if (IsByKeys) {
            const std::size_t at = static_cast<std::size_t>(head_of_all) * p.padded + i * C::rows;
            copy_bytes(base + C::vectors_at + s * C::rows * 8, p.logsumexp2 + at, C::rows * 4, full + 8 * s);
            copy_bytes(base + C::vectors_at + s * C::rows * 8 + C::rows * 4, p.delta + at, C::rows * 4, full + 8 * s);
        }
        if (++s == C::stages) s = 0, parity ^= 1;
    }
    // The watchdog waits with the consumers until every stage is handed back.
    for (int i = 0; i < C::stages; ++i) {
        barrier_wait_watched(free + 8 * s, parity, p.hang, IsByKeys ? 23 : 24);
        if (++s == C::stages) s = 0, parity ^= 1;
    }
}
template <class C>
STUDY_INLINE void init_barriers(std::uint32_t kept, std::uint32_t full, std::uint32_t free) {
    if (threadIdx.x == 0) {
        barrier_init(kept, 1);
        for (int i = 0; i < C::stages; ++i)
            barrier_init(full + 8 * i, 1), barrier_init(free + 8 * i, 4 * C::warpgroups);
        barrier_fence_of_init();
    }
    __syncthreads();
}

/// dk and dv. Scores are transposed: a row of sums is a key's, a column a query's. Each step multiplies scores and the
/// gradients of the probabilities; the probabilities are computed during the latter, dv is added while the gradients of
/// the scores are computed (if they have separate registers), and dk during the beginning of the next step.
template <class C>
__global__ void __launch_bounds__(C::threads, 1)
    by_keys(const __grid_constant__ CUtensorMap key_map, const __grid_constant__ CUtensorMap value_map,
            const __grid_constant__ CUtensorMap query_map, const __grid_constant__ CUtensorMap output_gradient_map,
            const __grid_constant__ CUtensorMap dk_map, const __grid_constant__ CUtensorMap dv_map,
            const __grid_constant__ backward_arguments p) {
    constexpr int head_size = C::head_size, rows = C::rows;
    extern __shared__ unsigned char raw[];
    const std::uint32_t base = (shared_address(raw) + 1023) & ~1023u, kept = base + C::barriers_at, full = kept + 8,
                        free = full + 8 * C::stages;
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    init_barriers<C>(kept, full, free);
    // Under a causal mask the first keys are seen by most queries: the longest tiles come first.
    const tile_place place = place_of(blockIdx.x, p.heads_at_once, p.all_heads, p.blocks, false);
    const int first_key = place.block * C::kept_rows, from = p.is_causal ? first_key / rows : 0,
              to = (p.length + rows - 1) / rows;
    if (warpgroup == 0) {
        fewer_registers<24>();
        if (threadIdx.x == 0) {
            produce<C, true>(&key_map, &value_map, &query_map, &output_gradient_map, p, base, kept, full, free,
                             place.head, first_key, from, to);
        }
    } else {
        more_registers<240>();
        const int w = warpgroup - 1, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32, group = lane / 4,
                  pair = lane % 4;
        const int first_row = first_key + 64 * w, key = first_row + 16 * warp + group;
        const std::uint64_t key_operand = descriptor(base + w * C::kept_bytes, 1),
                            value_operand = descriptor(base + C::second_kept_at + w * C::kept_bytes, 1);
        float dk[head_size / 2], dv[head_size / 2];
        float s[rows / 2], dp[rows / 2];  // scores and then probabilities; gradients of the probabilities
        std::uint32_t probabilities[rows / 4], own_registers[rows / 4];
        std::uint32_t(&ds)[rows / 4] = C::share_registers ? probabilities : own_registers;  // gradients of the scores
#pragma unroll
        for (int i = 0; i < head_size / 2; ++i) dk[i] = dv[i] = 0.f;
#pragma unroll
        for (int i = 0; i < rows / 2; ++i) s[i] = dp[i] = 0.f;
        barrier_wait(kept, 0);
        int stage = 0, last_stage = 0;
        std::uint32_t parity = 0;
        for (int i = from; i < to; ++i) {
            barrier_wait(full + 8 * stage, parity);
            const std::uint32_t queries_at = base + C::stages_at + stage * 2 * C::stage_bytes,
                                gradients_at = queries_at + C::stage_bytes,
                                vectors_at = base + C::vectors_at + stage * rows * 8 + 8 * pair;
            pin(s), pin(dp);
            wgmma_fence();
            issue_scores<rows, head_size>(s, key_operand, descriptor(queries_at, 1));
            issue_scores<rows, head_size>(dp, value_operand, descriptor(gradients_at, 1));
            wgmma_wait<1>();  // for the scores, and dk of the step before
            pin(s), pin(dk), pin(dv), pin(probabilities), pin(ds);
            if (i > from && lane == 0) barrier_arrive(free + 8 * last_stage);
            const int first_query = i * rows;
#pragma unroll
            for (int j = 0; j < rows / 8; ++j) {
                const float2 l = load_shared_pair(vectors_at + 32 * j);
                s[4 * j] = exp2_approximate(fmaf(s[4 * j], p.scale2, -l.x));
                s[4 * j + 1] = exp2_approximate(fmaf(s[4 * j + 1], p.scale2, -l.y));
                s[4 * j + 2] = exp2_approximate(fmaf(s[4 * j + 2], p.scale2, -l.x));
                s[4 * j + 3] = exp2_approximate(fmaf(s[4 * j + 3], p.scale2, -l.y));
            }
            if (p.is_causal && first_query < first_row + 64) {
                // Open where the query's number is the key's or more.
                const int begin0 = key - first_query - 2 * pair, begin1 = begin0 + 8;
#pragma unroll
                for (int j = 0; j < rows / 8; ++j) {
                    if (8 * j < begin0) s[4 * j] = 0.f;
                    if (8 * j + 1 < begin0) s[4 * j + 1] = 0.f;
                    if (8 * j < begin1) s[4 * j + 2] = 0.f;
                    if (8 * j + 1 < begin1) s[4 * j + 3] = 0.f;
                }
            }
#pragma unroll
            for (int j = 0; j < rows / 4; ++j) probabilities[j] = pack(s[2 * j], s[2 * j + 1]);
            pin(probabilities), pin(dv);
            wgmma_fence();
            issue_gradient<head_size, rows>(dv, probabilities, descriptor(gradients_at, rows * 8));
            wgmma_wait<C::share_registers ? 0 : 1>();
            pin(dp), pin(s);
            if (C::share_registers) pin(probabilities), pin(dv);
#pragma unroll
            for (int j = 0; j < rows / 8; ++j) {
                const float2 d = load_shared_pair(vectors_at + rows * 4 + 32 * j);
                ds[2 * j] = pack(s[4 * j] * (dp[4 * j] - d.x), s[4 * j + 1] * (dp[4 * j + 1] - d.y));
                ds[2 * j + 1] = pack(s[4 * j + 2] * (dp[4 * j + 2] - d.x), s[4 * j + 3] * (dp[4 * j + 3] - d.y));
            }
            pin(ds), pin(dk);
            wgmma_fence();
            issue_gradient<head_size, rows>(dk, ds, descriptor(queries_at, rows * 8));
            last_stage = stage;
            if (++stage == C::stages) stage = 0, parity ^= 1;
        }
        wgmma_wait<0>();
        pin(dk), pin(dv);
        if (lane == 0) barrier_arrive(free + 8 * last_stage);
        // The results take the place of the warpgroup's keys and values.
        named_barrier_sync(5 + w, 128);
        put_tile<head_size>(dk, p.scale, base + w * C::kept_bytes, warp, group, pair);
        put_tile<head_size>(dv, 1.f, base + C::second_kept_at + w * C::kept_bytes, warp, group, pair);
        proxy_fence();
        named_barrier_sync(5 + w, 128);
        if (threadIdx.x % 128 == 0) {
            const int batch = place.head / p.heads, head = place.head - batch * p.heads;
            store_tile(&dk_map, first_row, head, batch, base + w * C::kept_bytes);
            store_tile(&dv_map, first_row, head, batch, base + C::second_kept_at + w * C::kept_bytes);
            commit_stores();
            wait_for_stores();
        }
    }
}

/// dq. A row of sums is a query's, a column a key's.
template <class C>
__global__ void __launch_bounds__(C::threads, 1)
    by_queries(const __grid_constant__ CUtensorMap query_map, const __grid_constant__ CUtensorMap output_gradient_map,
               const __grid_constant__ CUtensorMap key_map, const __grid_constant__ CUtensorMap value_map,
               const __grid_constant__ CUtensorMap dq_map, const __grid_constant__ backward_arguments p) {
    constexpr int head_size = C::head_size, rows = C::rows;
    extern __shared__ unsigned char raw[];
    const std::uint32_t base = (shared_address(raw) + 1023) & ~1023u, kept = base + C::barriers_at, full = kept + 8,
                        free = full + 8 * C::stages;
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    init_barriers<C>(kept, full, free);
    const tile_place place = place_of(blockIdx.x, p.heads_at_once, p.all_heads, p.blocks, p.is_causal);
    const int first_query = place.block * C::kept_rows,
              to = ((p.is_causal ? min(p.length, first_query + C::kept_rows) : p.length) + rows - 1) / rows;
    if (warpgroup == 0) {
        fewer_registers<24>();
        if (threadIdx.x == 0) {
            produce<C, false>(&query_map, &output_gradient_map, &key_map, &value_map, p, base, kept, full, free,
                              place.head, first_query, 0, to);
        }
    } else {
        more_registers<240>();
        const int w = warpgroup - 1, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32, group = lane / 4,
                  pair = lane % 4;
        const int first_row = first_query + 64 * w, row = first_row + 16 * warp + group;
        const std::uint64_t query_operand = descriptor(base + w * C::kept_bytes, 1),
                            gradient_operand = descriptor(base + C::second_kept_at + w * C::kept_bytes, 1);
        float dq[head_size / 2], s[rows / 2], dp[rows / 2], logsumexp2[2], delta[2];
        std::uint32_t ds[rows / 4];
#pragma unroll
        for (int i = 0; i < head_size / 2; ++i) dq[i] = 0.f;
#pragma unroll
        for (int i = 0; i < rows / 2; ++i) s[i] = dp[i] = 0.f;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const std::size_t at = static_cast<std::size_t>(place.head) * p.padded + row + 8 * e;
            logsumexp2[e] = p.logsumexp2[at], delta[e] = p.delta[at];
        }
        // Keys below this are open to all rows of this warpgroup; the last that rows `row` and `row + 8` see.
        const int open_keys = p.is_causal ? min(p.length, first_row + 1) : p.length;
        const int last0 = p.is_causal ? min(p.length - 1, row) : p.length - 1,
                  last1 = p.is_causal ? min(p.length - 1, row + 8) : p.length - 1;
        barrier_wait(kept, 0);
        int stage = 0, last_stage = 0;
        std::uint32_t parity = 0;
        barrier_wait(full, 0);
        for (int i = 0; i < to; ++i) {
            const std::uint32_t keys_at = base + C::stages_at + stage * 2 * C::stage_bytes,
                                values_at = keys_at + C::stage_bytes;
            pin(s), pin(dp);
            wgmma_fence();
            issue_scores<rows, head_size>(s, query_operand, descriptor(keys_at, 1));
            issue_scores<rows, head_size>(dp, gradient_operand, descriptor(values_at, 1));
            wgmma_wait<1>();  // for the scores, and dq of the step before
            pin(s), pin(dq), pin(ds);
            if (i > 0 && lane == 0) barrier_arrive(free + 8 * last_stage);
            const int first_key = i * rows;
            if (first_key + rows > open_keys) {
                const int end0 = last0 - first_key - 2 * pair, end1 = last1 - first_key - 2 * pair;
#pragma unroll
                for (int j = 0; j < rows / 8; ++j) {
                    if (8 * j > end0) s[4 * j] = -INFINITY;
                    if (8 * j + 1 > end0) s[4 * j + 1] = -INFINITY;
                    if (8 * j > end1) s[4 * j + 2] = -INFINITY;
                    if (8 * j + 1 > end1) s[4 * j + 3] = -INFINITY;
                }
            }
#pragma unroll
            for (int j = 0; j < rows / 2; ++j) s[j] = exp2_approximate(fmaf(s[j], p.scale2, -logsumexp2[j / 2 % 2]));
            pin(s);
            const int next_stage = stage + 1 == C::stages ? 0 : stage + 1;
            const std::uint32_t next_parity = stage + 1 == C::stages ? parity ^ 1 : parity;
            // Here, since the wait below is moved up to before the exponentials unless a branch parts them.
            if (i + 1 < to) barrier_wait(full + 8 * next_stage, next_parity);
            wgmma_wait<0>();
            pin(dp), pin(s);
#pragma unroll
            for (int j = 0; j < rows / 4; ++j) {
                ds[j] = pack(s[2 * j] * (dp[2 * j] - delta[j % 2]), s[2 * j + 1] * (dp[2 * j + 1] - delta[j % 2]));
            }
            pin(ds), pin(dq);
            wgmma_fence();
            issue_gradient<head_size, rows>(dq, ds, descriptor(keys_at, rows * 8));
            last_stage = stage;
            stage = next_stage, parity = next_parity;
        }
        wgmma_wait<0>();
        pin(dq);
        if (lane == 0) barrier_arrive(free + 8 * last_stage);
        named_barrier_sync(5 + w, 128);
        put_tile<head_size>(dq, p.scale, base + w * C::kept_bytes, warp, group, pair);
        proxy_fence();
        named_barrier_sync(5 + w, 128);
        if (threadIdx.x % 128 == 0) {
            const int batch = place.head / p.heads, head = place.head - batch * p.heads;
            store_tile(&dq_map, first_row, head, batch, base + w * C::kept_bytes);
            commit_stores();
            wait_for_stores();
        }
    }
}

/// The two vectors of backward_arguments, a warp a row.
__global__ void prepare_backward(const __nv_bfloat16* output, const __nv_bfloat16* output_gradient,
                                 const float* logsumexp, float* logsumexp2, float* delta, int length, int padded,
                                 int heads, int all_heads, int head_size) {
    const int id = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (id >= all_heads * padded) return;
    const int head_of_all = id / padded, row = id - head_of_all * padded, batch = head_of_all / heads,
              head = head_of_all - batch * heads;
    float x = 0;
    if (row < length) {
        const std::size_t at = ((static_cast<std::size_t>(batch) * length + row) * heads + head) * head_size;
        for (int d = 2 * lane; d < head_size; d += 64) {
            const float2 u = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(output + at + d)),
                         v = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(output_gradient + at + d));
            x += u.x * v.x + u.y * v.y;
        }
    }
    for (int k = 16; k > 0; k /= 2) x += __shfl_xor_sync(~0u, x, k);
    if (lane == 0) {
        logsumexp2[id] =
            row < length ? logsumexp[static_cast<std::size_t>(head_of_all) * length + row] * 1.44269504089f : INFINITY;
        delta[id] = x;
    }
}

}  // namespace study
