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

/// One problem, as kernels are told of it.
struct attention_problem {
    extent batch, queries, keys, heads, groups;
    extent members;  ///< query heads that share a key head
    extent offset;   ///< query i sees the keys up to i + offset; with no mask that is beyond the last one
    int head_size;
    float scale;

    HALFTONE_HD bool sees(extent query, extent key) const { return key < keys && key <= query + offset; }
    /// The end of the keys that some of the queries before `end` see.
    HALFTONE_HD extent keys_seen(extent end) const {
        const extent seen = (end < queries ? end : queries) + offset;
        return seen < keys ? seen : keys;
    }
    /// The first query that sees the key.
    HALFTONE_HD extent first_query(extent key) const { return key > offset ? key - offset : 0; }
};

inline attention_problem describe_attention(const detail::attention_extents& e, const attention_options& options) {
    return {e.batch,     e.queries,   e.keys,
            e.heads,     e.groups,    e.members(),
            options.mask == attention_mask::causal ? e.keys - e.queries : e.keys,
            static_cast<int>(e.head_size), detail::attention_scale(options, e.head_size)};
}

/// The vectors of an operand, (batch, time, heads, head_size).
template <class T>
struct head_vectors {
    global_span<T> all;
    extent batch_stride, time_stride, head_stride;

    /// From the vector of one head at one time on.
    HALFTONE_HD global_span<T> from(extent batch, extent time, extent head) const {
        return all.from(batch * batch_stride + time * time_stride + head * head_stride);
    }
};

template <class T>
head_vectors<T> vectors_of(const view<T, 4>& v) {
    return {simt::hull_of(v), v.stride_of(0), v.stride_of(1), v.stride_of(2)};
}

/// Which part of a problem a block works on: some rows (queries or keys) of one head of one batch entry.
struct attention_part {
    extent batch, head, first;
};

/// Blocks for all parts. Under a causal mask the last queries see most keys and the first keys are seen by most queries:
/// these parts of a head come first.
struct attention_grid {
    extent batch, heads, rows;
    int rows_in_part;

    HALFTONE_HD extent parts() const { return (rows + rows_in_part - 1) / rows_in_part; }
    grid_shape shape() const { return {static_cast<int>(batch * heads * parts()), 1, 1}; }
    HALFTONE_HD attention_part part(extent block) const {
        const extent n = parts(), head = block / n;
        return {head / heads, head % heads, block % n * rows_in_part};
    }
    HALFTONE_HD attention_part part_from_last(extent block) const {
        const extent n = parts(), head = block / n;
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

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
