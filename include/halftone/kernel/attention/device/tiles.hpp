// SPDX-License-Identifier: MIT
/// \file
/// What attention's GPU kernels share: which queries see which keys, the addresses of a head's vectors, and powers of
/// two.
///
/// Numeric contract: attention.hpp's. Tiles depend on shapes alone.
#pragma once

#include <cmath>

#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/exponential.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

HALFTONE_HD HALFTONE_INLINE constexpr int smaller(int a, int b) { return a < b ? a : b; }

/// The side whose rows a block keeps; it streams the other side's.
enum class attention_side { queries, keys };

/// The part of the problem that a block computes: some rows of one head of one sequence. Times count from the
/// sequence's first.
struct alignas(16) attention_block {
    int sequence, head, first;   ///< `first`: its first row; `head`: a head of q, or one of k and v
    int offset;                  ///< query i sees the keys up to i + offset; without a mask, a number beyond all keys
    int queries, keys;           ///< numbers in the sequence
    int query_begin, key_begin;  ///< where the sequence begins in its tensors

    HALFTONE_HD bool sees(int query, int key) const { return key < keys && key <= query + offset; }
    /// One past the last key that some query before `end` sees.
    HALFTONE_HD int keys_seen(int end) const {
        const int seen = (end < queries ? end : queries) + offset;
        return seen < keys ? seen : keys;
    }
    /// The first query that sees the key.
    HALFTONE_HD int first_query(int key) const { return key > offset ? key - offset : 0; }
};

/// A copy of the block's part of the problem in shared memory, so that loops need no registers for what they rarely
/// read. The block's first barrier makes it visible.
HALFTONE_KERNEL template <class Simt>
HALFTONE_HD HALFTONE_INLINE void keep_block(Simt simt, word at, const attention_block& here) {
    if (simt.thread() == 0) simt.store(shared_span<attention_block>{at, 1}, 0, here);
}
HALFTONE_KERNEL template <class Simt>
HALFTONE_HD HALFTONE_INLINE attention_block kept_block(Simt simt, word at) {
    return simt.load(shared_span<attention_block>{at, 1}, 0);
}

/// A problem as kernels get it, in 32-bit integers, since registers are scarce.
struct attention_problem {
    int sequences;              ///< entries of the batch, or packed sequences in one entry
    int queries, keys;          ///< upper bounds for one sequence
    int all_queries, all_keys;  ///< of the whole tensors
    int heads, groups;
    int members;  ///< query heads that share a key head
    int head_size;
    int padded;  ///< query terms of one head, padded
    float scale;
    attention_mask mask;
    global_span<const std::int32_t> query_offsets{}, key_offsets{};  ///< of packed sequences; otherwise empty

    HALFTONE_HD bool is_packed() const { return query_offsets.is_there(); }

    HALFTONE_HD int parts(attention_side side, int rows) const {
        return detail::ceil_div(side == attention_side::queries ? queries : keys, rows);
    }
    /// The grid whose blocks take `rows` rows each.
    grid_shape grid(attention_side side, int rows) const {
        const int heads_here = side == attention_side::queries ? heads : groups;
        const extent blocks = static_cast<extent>(sequences) * heads_here * parts(side, rows), most = 2147483647;
        if (blocks > most) {
            fail<shape_error>("attention: ", sequences, " sequences of ", heads_here, " heads in ", parts(side, rows),
                              " parts; a GPU's kernels count to ", most);
        }
        return {static_cast<int>(blocks), 1, 1};
    }
    /// The block's part. Under a causal mask the last queries see the most keys, and the first keys are seen by the
    /// most queries: these parts of a head come first, for load balance. Parts beyond the end of a short sequence have
    /// no rows.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE attention_block block(Simt simt, attention_side side, int rows) const {
        const bool keeps_queries = side == attention_side::queries;
        const int n = parts(side, rows), part = simt.block().x % n, head = simt.block().x / n;
        const int heads_here = keeps_queries ? heads : groups;
        attention_block b{
            head / heads_here, head % heads_here, (keeps_queries ? n - 1 - part : part) * rows, 0, queries, keys, 0, 0};
        if (is_packed()) {
            place(simt, query_offsets, b.sequence, all_queries, b.query_begin, b.queries);
            place(simt, key_offsets, b.sequence, all_keys, b.key_begin, b.keys);
        }
        b.offset = mask == attention_mask::causal ? b.keys - b.queries : b.keys;
        return b;
    }

    /// The index of a query among (batch, heads, queries) rows.
    HALFTONE_HD extent row_sum(const attention_block& b, int query) const {
        return static_cast<extent>(entry(b) * heads + b.head) * all_queries + b.query_begin + query;
    }
    /// The index of the term of a sequence's first query, for `head`.
    HALFTONE_HD extent first_term(const attention_block& b, int head) const {
        const int begin = is_packed() ? padded_queries(b.query_begin) + 64 * b.sequence : 0;
        return static_cast<extent>(entry(b) * heads + head) * padded + begin;
    }
    /// Whether the head may have columns from d on, a constant: kernels for head sizes up to Head skip the last part of
    /// the columns if it is a large one and beyond head_size.
    template <class T, int Head>
    HALFTONE_HD HALFTONE_INLINE bool has_columns(int d) const {
        constexpr int all_have = Head > 128 ? Head / 4 * 3 : sizeof(T) == 2 ? Head : Head > 64 ? 96 : Head / 2;
        return d < all_have || head_size > all_have;
    }
    HALFTONE_HD int entry(const attention_block& b) const { return is_packed() ? 0 : b.sequence; }

    /// Padded so that tiles of query terms may be read to their ends.
    HALFTONE_HD static constexpr int padded_queries(int queries) { return round_up(queries, 64); }

  private:
    /// Clamped, so that no memory outside of the tensors is accessed whatever the offsets are.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void place(Simt simt, const global_span<const std::int32_t>& offsets,
                                                  int sequence, int all, int& begin, int& count) {
        const int longest = count;
        begin = clamped(simt.load(offsets, sequence), 0, all);
        count = clamped(simt.load(offsets, sequence + 1), begin, all) - begin;
        if (count > longest) count = longest;
    }
    HALFTONE_HD HALFTONE_INLINE static int clamped(int x, int least, int most) {
        return x < least ? least : x > most ? most : x;
    }
};

inline attention_problem describe_attention(const detail::attention_extents& e, const attention_options& options,
                                            const packed_sequences& sequences) {
    constexpr extent most = 1 << 30;
    if (e.queries > most || e.keys > most || e.batch > most) {
        fail<shape_error>("attention: ", e.queries, " queries and ", e.keys, " keys in a batch of ", e.batch,
                          "; a GPU's kernels count to ", most);
    }
    const auto small = [](extent n) { return static_cast<int>(n); };
    attention_problem p{.sequences = small(e.batch),
                        .queries = small(e.queries),
                        .keys = small(e.keys),
                        .all_queries = small(e.queries),
                        .all_keys = small(e.keys),
                        .heads = small(e.heads),
                        .groups = small(e.groups),
                        .members = small(e.members()),
                        .head_size = small(e.head_size),
                        .padded = attention_problem::padded_queries(small(e.queries)),
                        .scale = detail::attention_scale(options, e.head_size),
                        .mask = options.mask};
    if (sequences.are_there()) {
        const extent count = sequences.count();
        if (count > most / 64 - e.queries / 64 - 1) {
            fail<shape_error>("attention: ", count, " sequences of ", e.queries,
                              " queries in all; a GPU's kernels count to ", most);
        }
        p.sequences = small(count);
        p.queries = small(sequences.longest_queries < e.queries ? sequences.longest_queries : e.queries);
        p.keys = small(sequences.longest_keys < e.keys ? sequences.longest_keys : e.keys);
        p.padded += 64 * p.sequences;
        p.query_offsets = simt::span_of(sequences.query_offsets);
        p.key_offsets = simt::span_of(sequences.key_offsets);
    }
    return p;
}

/// The number of query terms in the backward pass's scratch memory.
inline extent query_term_count(const attention_problem& p) {
    return static_cast<extent>(p.is_packed() ? 1 : p.sequences) * p.heads * p.padded;
}

/// The vectors of an operand (batch, time, heads, head_size).
template <class T>
struct head_vectors {
    global_span<T> all;
    extent sequence_stride, time_stride, head_stride;

    /// The memory from the vector of one head at one time on. Packed sequences are in one entry of the batch.
    HALFTONE_HD global_span<T> from(int sequence, int time, int head) const {
        return all.from(sequence * sequence_stride + time * time_stride + head * head_stride);
    }
};

template <class T>
head_vectors<T> vectors_of(const view<T, 4>& v, const packed_sequences& sequences) {
    return {simt::bounding_span_of(v), sequences.are_there() ? 0 : v.stride_of(0), v.stride_of(1), v.stride_of(2)};
}

/// Elements of a row in a tile of heads: a power of two of whole panels.
constexpr int padded_head(int head_size) { return head_size <= 64 ? head_size : head_size <= 128 ? 128 : 256; }

/// A value as products read it: rounded to Compute.
template <class Compute>
HALFTONE_HD HALFTONE_INLINE float operand_of(float x) {
    return static_cast<float>(Compute(x));
}

/// What the backward pass needs of each query: the largest score times its factor, in base 2; the logarithm to base 2
/// of its softmax's sum; both as forward kernels subtract them; and the dot product of o and its gradient, which the
/// gradients of all its scores contain. Terms of queries beyond the end, or without visible keys, give zero weights.
using query_term = vec<float, 4>;

/// The exponent (base 2) of a score's weight. The first rounding is of the largest score alone, and the logarithm
/// corrects for it, so that what both scores have in common costs no accuracy.
HALFTONE_HD HALFTONE_INLINE float weight_exponent(float score, float scale, const query_term& term) {
    return std::fma(score, scale, -term[0]) - term[1];
}
HALFTONE_HD HALFTONE_INLINE float score_gradient(float weight, float product, const query_term& term) {
    return weight * (product - term[2]);
}

/// Computes the terms: a group of lanes for each row, N consecutive elements a lane at a time.
template <class T, int N>
struct query_terms_kernel {
    static constexpr int lanes = N == 1 ? 32 : 8, threads = 256, at_once = threads / lanes, rows = 64;
    static constexpr word shared_bytes = 0;

    head_vectors<const T> o, d_o;
    global_span<const float> logsumexp;  // (batch, heads, queries, 2)
    global_span<query_term> terms;       // (batch, heads, padded)
    attention_problem problem;

    grid_shape grid() const { return problem.grid(attention_side::queries, rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const attention_block here = problem.block(simt, attention_side::queries, rows);
        if (here.first >= here.queries) return;
        for (int i = simt.thread() / lanes; i < rows; i += at_once) {
            const int query = here.first + i;
            float sum = 0;
            if (query < here.queries) {
                const auto x = o.from(here.sequence, here.query_begin + query, here.head);
                const auto y = d_o.from(here.sequence, here.query_begin + query, here.head);
                for (int c = simt.thread() % lanes; c < problem.head_size / N; c += lanes) {
                    const vec<float, N> a = load_floats<N>(simt, x, c), b = load_floats<N>(simt, y, c);
                    HALFTONE_UNROLL for (int e = 0; e < N; ++e) sum = std::fma(a[e], b[e], sum);
                }
            }
            HALFTONE_UNROLL for (int mask = lanes / 2; mask > 0; mask /= 2) sum += simt.shuffle_xor(sum, mask);
            if (simt.thread() % lanes != 0) continue;
            query_term term{-detail::attention_masked_score, 0, 0, 0};
            if (query < here.queries && here.sees(query, 0)) {
                const extent at = 2 * problem.row_sum(here, query);
                const float largest = simt.load(logsumexp, at), scale = problem.scale * detail::log2_of_e,
                            rounded = largest * scale;
                const float log =
                    std::fma(simt.load(logsumexp, at + 1), detail::log2_of_e, std::fma(largest, scale, -rounded));
                term = {rounded, log, sum, 0};
            }
            simt.store(terms, problem.first_term(here, here.head) + query, term);
        }
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
