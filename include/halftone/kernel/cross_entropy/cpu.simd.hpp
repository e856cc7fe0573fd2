// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy of some rows.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>

#include <halftone/kernel/common/rows/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Classes in a block: the maximum of one block is computed while the block before it is summed, which is still in the
/// L1 cache.
inline constexpr extent class_block = 2048;

/// Rows with finished sums, collected until their logarithms fill a vector.
struct summed_rows {
    float totals[16], largest[16], hits[16];
    extent rows[16];
    int count = 0;

    HALFTONE_INLINE void add(extent row, float total, float top, float hit, float* losses) {
        totals[count] = total, largest[count] = top, hits[count] = hit, rows[count] = row;
        if (++count == 16) finish(losses);
    }
    void finish(float* losses) {
        for (int i = count; i < 16; ++i) totals[i] = 1.0f, largest[i] = hits[i] = 0.0f;
        for (int i = 0; i < 16; i += f32::lanes) {
            // The target's logit is subtracted from the maximum before the logarithm is added: exact if it is the
            // maximum.
            store(hits + i, log(load(totals + i)) + (load(largest + i) - load(hits + i)));
        }
        for (int i = 0; i < count; ++i) losses[rows[i]] = hits[i];
        count = 0;
    }
};

/// Adds the exponentials of logits minus the largest.
template <class X, class V, class N>
HALFTONE_INLINE void add_exponentials(four_vectors& sums, const V& below, N n) {
    const auto e = keep(exp_below_zero_for<X>(below), n, splat(0.0f));
    if constexpr (is_short<X>) {
        // With short exponentials the sum is computed by fused multiply-adds with 1, which balances the adders' and
        // multipliers' load.
        add_product(sums, e, broadcast(splat(1.0f), &e), n);
    } else {
        add(sums, e, n);
    }
}

/// Rows of few classes, four at a time as for_row_groups passes them; ignored rows among them are computed, too.
template <class X>
HALFTONE_INLINE void short_cross_entropy_rows(extent rows, extent classes, bool distinct, const X* x, extent stride,
                                              const std::int32_t* targets, std::int32_t ignored, float* losses,
                                              float* row_maxima, float* row_sums) {
    constexpr extent lag = pipeline_lag<4>(0), quarter = f32::lanes / 4;
    row_numbers<4> maxima, totals;
    const auto group = [&](extent i) __attribute__((always_inline)) {
        return rows_from<4>(x + i * stride, distinct ? stride : 0);
    };
    for (extent i = 0; i < rows && i <= lag; i += 4) {
        largest_of<4, X> largest(1.0f);
        for_vectors_of_rows<4>(
            classes, [&](extent j, auto n) __attribute__((always_inline)) { largest.take(group(i) + j, n); });
        maxima.put(i, largest.numbers());
    }
    const auto exponentiate = [&](extent i) __attribute__((always_inline)) {
        const extent sought = i + 4 + lag;
        const bool is_there = sought < rows;
        const auto from = group(i), next = group(is_there ? sought : i);
        const auto top = maxima[i];
        largest_of<4, X> largest(1.0f);
        four_vectors sums = broadcast_four(0.0f);
        for_vectors_of_rows<4>(classes, [&](extent j, auto n) __attribute__((always_inline)) {
            if (is_there) largest.take(next + j, n);
            prefetch_ahead(next, (4 + lag) * stride, j, n);
            add_exponentials<X>(sums, load(from + j, n) - top, n);
        });
        totals.put(i, sum_of<4>(sums));
        maxima.put(sought, largest.numbers());
    };
    const auto finish = [&](extent i) __attribute__((always_inline)) {
        float excess[f32::lanes], sums[f32::lanes], tops[f32::lanes];
        store(excess, log(totals.at(i)));
        store(sums, totals.at(i));
        store(tops, maxima.at(i));
        for (extent k = 0; k < (distinct ? 4 : 1); ++k) {
            const extent row = i + k;
            const bool counts = targets[row] != ignored;
            const float hit = counts ? first_lane(load(x + row * stride + targets[row], 1)) : 0.0f;
            const float top = tops[k * quarter];
            losses[row] = counts ? excess[k * quarter] + (top - hit) : 0.0f;
            row_maxima[row] = counts ? top : 0.0f;
            row_sums[row] = counts ? sums[k * quarter] : 1.0f;
        }
    };
    for_rows_pipelined<4>(rows, lag, exponentiate, finish);
}

template <class X>
void cross_entropy_rows(extent rows, extent classes, const X* x, extent stride, const std::int32_t* targets,
                        std::int32_t ignored, float* losses, float* row_maxima, float* row_sums) {
    if (side_by_side(classes)) {
        return for_row_groups(rows, [&](extent i, extent count, bool distinct) __attribute__((always_inline)) {
            short_cross_entropy_rows(count, classes, distinct, x + i * stride, stride, targets + i, ignored, losses + i,
                                     row_maxima + i, row_sums + i);
        });
    }
    const auto block_from = [&](extent first) { return classes - first < class_block ? classes - first : class_block; };
    // The first row from i on whose target is not ignore_index.
    const auto counted = [&](extent i) {
        for (; i < rows && targets[i] == ignored; ++i) losses[i] = row_maxima[i] = 0.0f, row_sums[i] = 1.0f;
        return i;
    };
    summed_rows done;
    extent row = counted(0);
    float block_largest = row < rows ? row_maximum(x + row * stride, block_from(0), 1.0f) : 0.0f;
    while (row < rows) {
        const extent next_row = counted(row + 1);
        // Reads memory once (online softmax): the sum so far is rescaled when a block has a larger maximum than all
        // before.
        float largest = -__builtin_inff(), of_stretches = 0.0f;
        four_vectors sums = broadcast_four(0.0f);
        for (extent first = 0; first < classes; first += class_block) {
            if (block_largest > largest) {
                const f32 factor = exp_below_zero(splat(largest) - splat(block_largest));
                if (first != 0) sums = sums * factor, of_stretches *= first_lane(factor);
                largest = block_largest;
            }
            if (first != 0 && first % segment_elements == 0) of_stretches += sum(sums), sums = broadcast_four(0.0f);
            const extent here = block_from(first);
            const X *const block = x + row * stride + first, *next = block + here;
            extent in_next = block_from(first + here);
            if (in_next == 0 && next_row < rows) next = x + next_row * stride, in_next = block_from(0);
            // infinity - infinity would be NaN, but later blocks may hold finite logits.
            const f32 below = splat(largest == -__builtin_inff() && here < classes ? 0.0f : largest);
            largest_of_row<X> sought(1.0f);
            const auto add_from = [&](const X* from, auto n) __attribute__((always_inline)) {
                prefetch_vectors(from + class_block + prefetch_distance, n);
                add_exponentials<X>(sums, load(from, n) - below, n);
            };
            // Only the last blocks of a row have different lengths.
            const extent shorter = here < in_next ? here : in_next;
            const extent both = here == in_next ? here : shorter - shorter % (4 * f32::lanes);
            for_vector_blocks<X>(both, [&](extent j, auto n) __attribute__((always_inline)) {
                sought.take(next + j, n);
                add_from(block + j, n);
            });
            for_vector_blocks<X>(here - both,
                        [&](extent j, auto n) __attribute__((always_inline)) { add_from(block + both + j, n); });
            for_vector_blocks<X>(in_next - both,
                        [&](extent j, auto n) __attribute__((always_inline)) { sought.take(next + both + j, n); });
            block_largest = sought.value();
        }
        row_maxima[row] = largest, row_sums[row] = of_stretches + sum(sums);
        done.add(row, row_sums[row], largest, first_lane(load(x + row * stride + targets[row], 1)), losses);
        row = next_row;
    }
    done.finish(losses);
}

/// dlogits = (softmax(x) - onehot(target)) gradient / count, with a gradient every `step` floats. Rows in non-temporal
/// stores have the target's value inserted before they are stored; an ordinary store afterwards would read its line
/// back from memory.
template <class X, class D>
void cross_entropy_backward_rows(extent rows, extent classes, const X* x, extent stride, const std::int32_t* targets,
                                 std::int32_t ignored, const float* row_maxima, const float* row_sums,
                                 const float* gradient, extent step, float count, D* dx, extent dx_stride, bool non_temporal) {
    constexpr extent of_block = 4 * f32::lanes;
    alignas(64) D with_target[of_block];
    for (extent i = 0; i < rows; ++i, x += stride, dx += dx_stride) {
        if (targets[i] == ignored) {
            fill(dx, classes, 0.0f);
            continue;
        }
        const f32 factor = splat(gradient[i * step] / count / row_sums[i]), largest = splat(row_maxima[i]);
        // Read before the loop, which may overwrite it (dlogits may be the logits).
        const f32 target = (exp_below_zero(load(x + targets[i], 1) - largest) - row_sums[i]) * factor;
        const extent vector_block = targets[i] - targets[i] % of_block,
                     block_end = vector_block + of_block < classes ? vector_block + of_block : classes;
        for (extent first = 0, end; first < classes; first = end) {
            const bool holds_target = non_temporal && first == vector_block;
            end = !non_temporal || first > vector_block ? classes : holds_target ? block_end : vector_block;
            D* const to = holds_target ? with_target : dx + first;
            for_vector_blocks<X, D>(end - first, [&](extent j, auto n) __attribute__((always_inline)) {
                const auto v = exp_below_zero_for<D>(load(x + first + j, n) - largest) * factor;
                store_or_stream(to + j, v, n, non_temporal && !holds_target);
            });
            if (!holds_target) continue;
            store(with_target + (targets[i] - vector_block), target, 1);
            for_vector_blocks<D>(end - first, [&](extent j, auto n) __attribute__((always_inline)) {
                store_or_stream(dx + first + j, load(with_target + j, n), n, true);
            });
        }
        if (!non_temporal) store(dx + targets[i], target, 1);
    }
    if (non_temporal) end_non_temporal();
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
