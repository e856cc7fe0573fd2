// SPDX-License-Identifier: MIT
/// \file
/// A block of logits: stored as (classes, rows) where rows are summed, so that a vector holds consecutive rows and each
/// row's sum stays in its lane; stored as (rows, classes), or as they were kept, where they become gradients.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>

#include <halftone/kernel/common/rows/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Computes, of logits (classes, rows), each row's largest logit, and its sum of exponentials relative to that. There
/// are few enough classes for the block to stay in the L1 cache.
template <class X>
void sum_exponentials(extent classes, extent rows, const X* x, extent stride, float* largest, float* sums) {
    const auto of_rows = [&](extent i, int, auto n) __attribute__((always_inline)) {
        const X* const from = x + i;
        // Not minus infinity, so that logits of minus infinity add zeros, and not NaNs.
        four_vectors most = broadcast_four(-__FLT_MAX__), terms = broadcast_four(0.0f);
        const auto compare = [&](extent j, int k) __attribute__((always_inline)) {
            most.v[k] = max(load(from + j * stride, n), most.v[k]);
        };
        extent j = 0;
        for (; j + 4 <= classes; j += 4) compare(j, 0), compare(j + 1, 1), compare(j + 2, 2), compare(j + 3, 3);
        for (; j < classes; ++j) compare(j, 0);
        const f32 subtracted = max(max(most.v[0], most.v[1]), max(most.v[2], most.v[3]));

        const auto add = [&](extent j, int k) __attribute__((always_inline)) {
            terms.v[k] = terms.v[k] + exp(load(from + j * stride, n) - subtracted);
        };
        for (j = 0; j + 4 <= classes; j += 4) add(j, 0), add(j + 1, 1), add(j + 2, 2), add(j + 3, 3);
        for (; j < classes; ++j) add(j, 0);
        store(largest + i, subtracted, n);
        store(sums + i, (terms.v[0] + terms.v[1]) + (terms.v[2] + terms.v[3]), n);
    };
    for_vectors(rows, of_rows);
}

/// Merges parts of classes, `stride` floats apart, into the rows' results so far; if `begins`, there are none.
inline void merge_exponentials(extent parts, extent rows, const float* part_largest, const float* part_sums,
                               extent stride, bool begins, float* largest, float* sums) {
    const auto of_rows = [&](extent i, int, auto n) __attribute__((always_inline)) {
        f32 most = begins ? splat(-__FLT_MAX__) : load(largest + i, n);
        f32 total = begins ? splat(0.0f) : load(sums + i, n);
        const f32 before = most;
        for (extent p = 0; p < parts; ++p) most = max(load(part_largest + p * stride + i, n), most);
        total = total * exp(before - most);
        for (extent p = 0; p < parts; ++p)
            total = fma(load(part_sums + p * stride + i, n), exp(load(part_largest + p * stride + i, n) - most), total);
        store(largest + i, most, n);
        store(sums + i, total, n);
    };
    for_vectors(rows, of_rows);
}

/// The losses of rows whose parts have all been merged and whose targets' logits are known; also computed for ignored
/// rows.
inline void losses_of_rows(extent rows, float* largest, float* sums, const float* of_target,
                           const std::int32_t* targets, std::int32_t ignored, float* losses) {
    for (extent i = 0; i < rows; ++i) {
        if (targets[i] == ignored) {
            losses[i] = largest[i] = 0.0f, sums[i] = 1.0f;
            continue;
        }
        // The target's logit is subtracted from the maximum before the logarithm is added: exact if it is the maximum.
        losses[i] = first_lane(log(splat(sums[i])) + (splat(largest[i]) - of_target[i]));
    }
}

/// Turns logits (rows, classes), the first class of which is number `first`, into (softmax(x) - onehot(target)) factor,
/// using the forward pass's results for their rows: (exp(x - largest) - onehot(target) sum) (factor / sum). Targets in
/// other blocks are skipped.
template <class X>
void logits_to_gradients(extent rows, extent classes, X* x, extent stride, extent first, const std::int32_t* targets,
                         std::int32_t ignored, const float* largest, const float* sums, float factor) {
    for (extent i = 0; i < rows; ++i, x += stride) {
        if (targets[i] == ignored) {
            fill(x, classes, 0.0f);
            continue;
        }
        const f32 top = splat(largest[i]), times = splat(factor / sums[i]);
        const extent target = targets[i] - first;
        const bool is_here = target >= 0 && target < classes;
        f32 of_target = times;
        if (is_here) of_target = (exp(load(x + target, 1) - top) - sums[i]) * times;
        const auto probabilities = [&](extent j, int, auto n) __attribute__((always_inline)) {
            store(x + j, exp(load(x + j, n) - top) * times, n);
        };
        for_vectors(classes, probabilities);
        if (is_here) store(x + target, of_target, 1);
    }
}

/// Turns logits (classes, rows), with at most 64 rows, into (softmax(x) - onehot(target)) factor for each row.
template <class X>
void logits_to_gradients_across(extent rows, extent classes, X* x, extent stride, extent first,
                                const std::int32_t* targets, std::int32_t ignored, const float* largest,
                                const float* sums, float factor) {
    float counts[64], of_target[64];
    const f32 nothing = splat(0.0f);
    const auto is_here = [&](extent i) {
        return targets[i] != ignored && targets[i] >= first && targets[i] < first + classes;
    };
    const auto target_of = [&](extent i) { return x + (targets[i] - first) * stride + i; };
    for (extent i = 0; i < rows; ++i) {
        counts[i] = targets[i] == ignored ? 0.0f : 1.0f;
        if (!is_here(i)) continue;
        const f32 power = exp(load(target_of(i), 1) - splat(largest[i]));
        of_target[i] = first_lane((power - sums[i]) * splat(factor / sums[i]));
    }
    const auto of_rows = [&](extent i, int, auto n) __attribute__((always_inline)) {
        const f32 top = load(largest + i, n), times = splat(factor) / load(sums + i, n);
        const mask count = less(nothing, load(counts + i, n));
        X* at = x + i;
        for (extent j = 0; j < classes; ++j, at += stride)
            store(at, select(count, exp(load(at, n) - top) * times, nothing), n);
    };
    for_vectors(rows, of_rows);
    for (extent i = 0; i < rows; ++i) {
        if (is_here(i)) store(target_of(i), splat(of_target[i]), 1);
    }
}

/// Turns logits (classes, rows), the first class of which is number `first`, into exp(x - largest), and each row's target into 0.
template <class X>
void exponentials_across(extent rows, extent classes, X* x, extent stride, extent first, const std::int32_t* targets,
                         const float* largest) {
    const auto of_rows = [&](extent i, int, auto n) __attribute__((always_inline)) {
        const f32 top = load(largest + i, n);
        X* at = x + i;
        for (extent j = 0; j < classes; ++j, at += stride) store(at, exp(load(at, n) - top), n);
    };
    for_vectors(rows, of_rows);
    for (extent i = 0; i < rows; ++i) {
        if (targets[i] >= first && targets[i] < first + classes)
            store(x + (targets[i] - first) * stride + i, splat(0.0f), 1);
    }
}

/// to = (or +=) sums times of_sums minus target times of_target, rounded once, for a row.
template <class W, class X>
void gradient_of_row(extent width, const float* sums, float of_sums, const W* target, float of_target, X* to,
                     write_mode mode) {
    const f32 a = splat(of_sums), b = splat(-of_target);
    const auto combine = [&](extent j, int, auto n) __attribute__((always_inline)) {
        const f32 all = fma(load(target + j, n), b, load(sums + j, n) * a);
        store(to + j, mode == write_mode::add ? load(to + j, n) + all : all, n);
    };
    for_vectors(width, combine);
}
/// Multiplies a row of floats by a factor.
inline void scale_row(extent width, float* row, float factor) {
    const f32 by = splat(factor);
    const auto scale = [&](extent j, int, auto n) __attribute__((always_inline)) {
        store(row + j, load(row + j, n) * by, n);
    };
    for_vectors(width, scale);
}

/// to = (or +=) sums, rounded once.
template <class X>
void round_sums(extent rows, extent width, const float* sums, X* to, extent stride, write_mode mode) {
    for (extent i = 0; i < rows; ++i, sums += width, to += stride) {
        const auto round = [&](extent j, int, auto n) __attribute__((always_inline)) {
            const f32 all = load(sums + j, n);
            store(to + j, mode == write_mode::add ? load(to + j, n) + all : all, n);
        };
        for_vectors(width, round);
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
