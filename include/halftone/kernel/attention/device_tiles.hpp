// SPDX-License-Identifier: MIT
/// \file
/// What attention's GPU kernels share: which queries see which keys, where a head's vectors lie, and powers of two.
///
/// Numeric contract: attention.hpp's. Tiles follow from shapes alone.
#pragma once

#include <cmath>

#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/rows/device.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

/// One problem, as kernels are told of it: with small numbers, since registers are scarce.
struct attention_problem {
    int batch, queries, keys, heads, groups;
    int members;  ///< query heads that share a key head
    int offset;   ///< query i sees the keys up to i + offset; with no mask that is beyond the last one
    int head_size;
    float scale;

    HALFTONE_HD bool sees(int query, int key) const { return key < keys && key <= query + offset; }
    /// The end of the keys that some of the queries before `end` see.
    HALFTONE_HD int keys_seen(int end) const {
        const int seen = (end < queries ? end : queries) + offset;
        return seen < keys ? seen : keys;
    }
    /// The first query that sees the key.
    HALFTONE_HD int first_query(int key) const { return key > offset ? key - offset : 0; }
};

inline attention_problem describe_attention(const detail::attention_extents& e, const attention_options& options) {
    constexpr extent most = 1 << 30;
    if (e.queries > most || e.keys > most || e.batch > most) {
        fail<shape_error>("attention: ", e.queries, " queries and ", e.keys, " keys in a batch of ", e.batch,
                          "; a GPU's kernels count to ", most);
    }
    const auto small = [](extent n) { return static_cast<int>(n); };
    return {.batch = small(e.batch),
            .queries = small(e.queries),
            .keys = small(e.keys),
            .heads = small(e.heads),
            .groups = small(e.groups),
            .members = small(e.members()),
            .offset = small(options.mask == attention_mask::causal ? e.keys - e.queries : e.keys),
            .head_size = small(e.head_size),
            .scale = detail::attention_scale(options, e.head_size)};
}

/// The vectors of an operand, (batch, time, heads, head_size).
template <class T>
struct head_vectors {
    global_span<T> all;
    extent batch_stride, time_stride, head_stride;

    /// From the vector of one head at one time on.
    HALFTONE_HD global_span<T> from(int batch, int time, int head) const {
        return all.from(batch * batch_stride + time * time_stride + head * head_stride);
    }
};

template <class T>
head_vectors<T> vectors_of(const view<T, 4>& v) {
    return {simt::hull_of(v), v.stride_of(0), v.stride_of(1), v.stride_of(2)};
}

/// Which part of a problem a block works on: some rows (queries or keys) of one head of one batch entry.
struct attention_part {
    int batch, head, first;
};

/// Blocks for all parts. Under a causal mask the last queries see most keys and the first keys are seen by most
/// queries: these parts of a head come first.
struct attention_grid {
    int batch, heads, rows, rows_in_part;

    HALFTONE_HD int parts() const { return (rows + rows_in_part - 1) / rows_in_part; }
    grid_shape shape() const { return {batch * heads * parts(), 1, 1}; }
    HALFTONE_HD attention_part part(int block) const {
        const int n = parts(), head = block / n;
        return {head / heads, head % heads, block % n * rows_in_part};
    }
    HALFTONE_HD attention_part part_from_last(int block) const {
        const int n = parts(), head = block / n;
        return {head / heads, head % heads, (n - 1 - block % n) * rows_in_part};
    }
};

/// 2^x for x of at most about 1, with a relative error of 4 2^-24; 0 where that lies below 2^-126.
HALFTONE_HD HALFTONE_INLINE float power_of_two(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return x < -126.0f ? 0.0f : std::exp2(x);
#endif
}

/// As products read it: rounded to Compute.
template <class Compute>
HALFTONE_HD HALFTONE_INLINE float operand_of(float x) {
    return static_cast<float>(Compute(x));
}

/// What the backward pass knows of each query: its logsumexp to base 2, and the product of o and its gradient, which
/// the gradients of all its scores contain. (batch, heads, padded_queries); a query that is not there gives zero
/// weights.
using query_term = vec<float, 2>;

HALFTONE_HD constexpr extent padded_queries(extent queries) { return (queries + 63) / 64 * 64; }

/// Fills in the terms: rows by groups of lanes, each lane N neighbours at a time.
template <class T, int N>
struct query_terms_kernel {
    static constexpr int lanes = N == 1 ? 32 : 8, threads = 128, rows_in_block = threads / lanes;
    static constexpr word shared_bytes = 0;

    head_vectors<const T> o, d_o;
    global_span<const float> logsumexp;  // (batch, heads, queries)
    global_span<query_term> terms;
    attention_problem problem;
    extent padded;

    grid_shape grid() const { return simt::blocks_for(terms.count, rows_in_block); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = static_cast<extent>(simt.block().x) * rows_in_block + simt.thread() / lanes;
        const int head = static_cast<int>(row / padded), query = static_cast<int>(row % padded);
        const bool is_there = row < terms.count && query < problem.queries;
        float sum = 0;
        if (is_there) {
            const auto x = o.from(head / problem.heads, query, head % problem.heads);
            const auto y = d_o.from(head / problem.heads, query, head % problem.heads);
            for (int i = simt.thread() % lanes; i < problem.head_size / N; i += lanes) {
                const vec<float, N> a = load_floats<N>(simt, x, i), b = load_floats<N>(simt, y, i);
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) sum = std::fma(a[e], b[e], sum);
            }
        }
        HALFTONE_UNROLL for (int mask = lanes / 2; mask > 0; mask /= 2) sum += simt.shuffle_xor(sum, mask);
        if (row >= terms.count || simt.thread() % lanes != 0) return;
        query_term term{-detail::attention_hidden, 0};
        if (is_there)
            term = {simt.load(logsumexp, static_cast<extent>(head) * problem.queries + query) * detail::log2_of_e, sum};
        simt.store(terms, row, term);
    }
};

/// Whose gradients a kernel computes: it keeps these and streams the others.
enum class attention_side { queries, keys };

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
