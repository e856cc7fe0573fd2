// SPDX-License-Identifier: MIT
/// \file
/// The parts of attention between its products, on tiles of float scores. `Format` is the form in which the products
/// read their operands: `float_operands` here, `pair_operands` in cpu/pairs.hpp. A panel is two vectors wide, as for
/// every product unit.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/attention/cpu/scores.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/number/constants.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// The operands of multiply-add products: floats, rounded to Compute.
template <class Compute>
struct float_operands {
    using element = float;

    /// Stores two vectors of one row of an a block.
    static HALFTONE_INLINE void store_row(float* to, const f32* x) {
        store(to, round_as<Compute>(x[0]));
        store(to + f32::lanes, round_as<Compute>(x[1]));
    }
    /// Stores rows k and k + 1, for even k, of a panel of b.
    static HALFTONE_INLINE void store_rows(float* panel, extent k, const f32* x, const f32* y) {
        store_row(panel + k * 2 * f32::lanes, x);
        store_row(panel + (k + 1) * 2 * f32::lanes, y);
    }
    /// Whether one of the elements is an infinity or a NaN.
    static HALFTONE_INLINE bool any_not_finite(const float* x, extent count) {
        mask found = not_finite(splat(0.0f));
        extent i = 0;
        for (; i + f32::lanes <= count; i += f32::lanes) found = either(found, not_finite(load(x + i)));
        if (i < count) found = either(found, not_finite(load(x + i, static_cast<int>(count - i))));
        return any(found);
    }
};

/// Whether one of `rows` rows of packed operands, `stride` elements apart, holds an infinity or a NaN.
template <class Compute, class Format = float_operands<Compute>>
bool attention_any_not_finite(const void* operands, extent rows, extent width, extent stride) {
    const auto* row = static_cast<const typename Format::element*>(operands);
    for (extent i = 0; i < rows; ++i, row += stride) {
        if (Format::any_not_finite(row, width)) return true;
    }
    return false;
}

struct attention_math {
    /// Replaces x[0] to x[N - 1], all < 127, by 2^x, with a relative error of 4 2^-24; below -126 the result is 0,
    /// because subnormal numbers take a hundred times as long. Each step is done for all N vectors before the next, so
    /// that latencies overlap.
    template <int N = 4>
    static HALFTONE_INLINE void powers(f32* x) {
        i32 n[N];
        f32 r[N], p[N];
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) n[i] = nearest_integer(x[i]);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) r[i] = x[i] - to_float(n[i]);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) p[i] = fma(splat(0x1.5bda8cp-10f), r[i], 0x1.3ce8b2p-7f);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) p[i] = fma(p[i], r[i], 0x1.c6b6d8p-5f);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) p[i] = fma(p[i], r[i], 0x1.ebf9c2p-3f);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) p[i] = fma(p[i], r[i], 0x1.62e42ap-1f);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) p[i] = fma(p[i], r[i], 1.0f);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) x[i] = scale_or_clear(p[i], n[i], x[i], -126.0f);
    }
};

/// Sets x[from] to x[to - 1].
inline void attention_fill(float* x, extent from, extent to, float value) {
    for (extent i = from; i < to; ++i) x[i] = value;
}

/// Masks the scores from `visible` to `whole`, a multiple of the vector's lanes, with minus infinity, so that their
/// weights are 0 whatever the visible scores are.
HALFTONE_INLINE void attention_mask_scores(float* scores, extent visible, extent whole) {
    const f32 hidden = splat(halftone::bit_cast<float>(0xff800000u));
    for (extent j = visible / f32::lanes * f32::lanes; j < whole; j += f32::lanes) {
        const mask seen = less(load(detail::attention_lanes), splat(static_cast<float>(visible - j)));
        store(scores + j, select(seen, load(scores + j), hidden));
    }
}

/// Updates the running softmax by one tile of scores (Milakov and Gimelshein 2018): the weights 2^(scale (score -
/// maximum)) go to an a block, their sums and the new maxima to the rows' state, and the partial sums of o are rescaled
/// to the new maximum.
template <class Compute, class Format = float_operands<Compute>>
void attention_softmax(const detail::attention_score_tile& t) {
    constexpr extent step = 2 * f32::lanes, most = detail::attention_group_rows;
    auto* const weights = static_cast<typename Format::element*>(t.weights);
    detail::attention_row_state& state = *t.state;
    float maxima[most], sums[most];
    attention_fill(maxima, t.rows, most, detail::attention_masked_score);
    attention_fill(sums, t.rows, most, 0.0f);
    const bool has_masked = t.visible < t.columns;  // some rows do not see all keys
    const extent whole_columns = round_up(t.columns, step);

    // All maxima before all weights, so that work on the next row overlaps with the reduction of one row's maximum.
    for (extent i = 0; i < t.rows; ++i) {
        float* const scores = t.scores + i * t.stride;
        extent whole = whole_columns;
        if (has_masked) {
            // Rows are weighed in pairs, so the first row's scores end where the second's do.
            whole = round_up(t.visible_columns(i | 1), step);
            attention_mask_scores(scores, t.visible_columns(i), whole);
        } else if (whole > t.columns) {
            attention_mask_scores(scores, t.columns, whole);
        }
        f32 high[2] = {splat(t.first ? detail::attention_masked_score : state.maxima[i]),
                       splat(detail::attention_masked_score)};
        for (extent j = 0; j < whole; j += step) {
            high[0] = max(load(scores + j), high[0]);
            high[1] = max(load(scores + j + f32::lanes), high[1]);
        }
        maxima[i] = maximum(max(high[0], high[1]));
    }
    const f32 scale = splat(t.scale);
    for (extent i = 0; i < t.rows; i += 2) {
        const extent whole = has_masked ? round_up(t.visible_columns(i | 1), step) : whole_columns;
        const extent next = i + 1 < t.rows ? i + 1 : i;
        const float *const first = t.scores + i * t.stride, *const second = t.scores + next * t.stride;
        auto *const first_row = weights + i * panel_stride, *const second_row = weights + next * panel_stride;
        const f32 first_high = splat(maxima[i]), second_high = splat(maxima[next]);
        f32 sum_of[4] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
        for (extent j = 0; j < whole; j += step) {
            f32 w[4] = {(load(first + j) - first_high) * scale, (load(first + j + f32::lanes) - first_high) * scale,
                        (load(second + j) - second_high) * scale,
                        (load(second + j + f32::lanes) - second_high) * scale};
            attention_math::powers(w);
#pragma GCC unroll 4
            for (int l = 0; l < 4; ++l) sum_of[l] = sum_of[l] + w[l];
            Format::store_row(first_row + j, w);
            Format::store_row(second_row + j, w + 2);
        }
        sums[i] = sum(sum_of[0] + sum_of[1]);
        sums[next] = sum(sum_of[2] + sum_of[3]);
        const f32 zero[2] = {splat(0.0f), splat(0.0f)};
        for (extent j = whole; j < t.padded_columns; j += step) {
            Format::store_row(first_row + j, zero);
            Format::store_row(second_row + j, zero);
        }
    }

    if (t.first) {
        for (extent i = 0; i < most; i += f32::lanes) {
            store(state.maxima + i, load(maxima + i));
            store(state.sums + i, load(sums + i));
        }
        return;
    }
    float factors[most];
    for (extent i = 0; i < t.rows; i += step) {
        f32 factor[2];
#pragma GCC unroll 2
        for (int l = 0; l < 2; ++l) {
            const extent at = i + l * f32::lanes;
            factor[l] = (load(state.maxima + at) - load(maxima + at)) * scale;
            store(state.maxima + at, load(maxima + at));
        }
        attention_math::powers<2>(factor);
#pragma GCC unroll 2
        for (int l = 0; l < 2; ++l) {
            const extent at = i + l * f32::lanes;
            store(factors + at, factor[l]);
            store(state.sums + at, fma(load(state.sums + at), factor[l], load(sums + at)));
        }
    }
    for (extent i = 0; i < t.rows; ++i) {
        if (factors[i] == 1.0f) continue;
        float* const row = t.outputs + i * t.output_stride;
        for (extent d = 0; d < t.output_stride; d += f32::lanes) store(row + d, load(row + d) * factors[i]);
    }
}

/// Divides the sums of o by those of the weights, and stores the maximum and log(sum) of each row.
template <class T>
void attention_finish(extent rows, extent width, const float* outputs, extent stride,
                      const detail::attention_row_state& state, T* o, extent o_stride, float* logsumexp) {
    float inverses[detail::attention_group_rows], logs[detail::attention_group_rows];
    for (extent i = 0; i < rows; i += f32::lanes) {
        const f32 total = load(state.sums + i);
        store(inverses + i, 1.0f / total);
        store(logs + i, log(total));
    }
    for (extent i = 0; i < rows && logsumexp != nullptr; ++i) {
        logsumexp[2 * i] = state.maxima[i];
        logsumexp[2 * i + 1] = logs[i];
    }
    for (extent i = 0; i < rows; ++i) {
        for (extent d = 0; d < width; d += f32::lanes) {
            const f32 value = load(outputs + i * stride + d) * inverses[i];
            if (width - d >= f32::lanes) {
                store(o + i * o_stride + d, value);
            } else {
                store(o + i * o_stride + d, value, static_cast<int>(width - d));
            }
        }
    }
}

/// Computes, for every query, the largest score, the logarithm to base 2 of its softmax's sum, and the dot product of o
/// and its gradient; up to `padded`, zeros.
template <class T>
void attention_query_terms(extent rows, extent padded, extent width, const T* o, extent o_stride, const T* d_o,
                           extent d_o_stride, const float* logsumexp, float* maxima, float* logs, float* dots) {
    for (extent i = 0; i < rows; ++i) {
        f32 total = splat(0.0f);
        for (extent d = 0; d < width; d += f32::lanes) {
            const int n = static_cast<int>(width - d < f32::lanes ? width - d : f32::lanes);
            const T *x = o + i * o_stride + d, *y = d_o + i * d_o_stride + d;
            total = n == f32::lanes ? fma(load(x), load(y), total) : fma(load(x, n), load(y, n), total);
        }
        dots[i] = sum(total);
        maxima[i] = logsumexp[2 * i];
        logs[i] = logsumexp[2 * i + 1] * halftone::detail::log2_of_e;
    }
    attention_fill(dots, rows, padded, 0.0f);
    attention_fill(maxima, rows, padded, 0.0f);
    attention_fill(logs, rows, padded, 0.0f);
}

/// From one panel of transposed scores and of the weights' gradients (keys x queries), computes the weights p and the
/// scores' gradients p (dp - dot), into a blocks for dv and dk; the latter also into a panel of b for dq.
template <class Compute, class Format = float_operands<Compute>>
void attention_score_gradients(const detail::attention_score_gradient_tile& t) {
    using element = typename Format::element;
    constexpr extent columns = 2 * f32::lanes;
    auto* const weights = static_cast<element*>(t.weights);
    auto* const score_gradients = static_cast<element*>(t.score_gradients);
    auto* const panel = static_cast<element*>(t.panel);
    const f32 high[2] = {load(t.maxima), load(t.maxima + f32::lanes)},
              logs[2] = {load(t.logs), load(t.logs + f32::lanes)}, dot[2] = {load(t.dots), load(t.dots + f32::lanes)};
    const f32 query[2] = {load(detail::attention_lanes), load(detail::attention_lanes + f32::lanes)};
    const f32 scale = splat(t.scale), zero = splat(0.0f), queries = splat(static_cast<float>(t.queries));

    for (extent key = 0; key < t.rows; key += 2) {
        const float* const scores = t.scores + key * columns;
        const float* const dp = t.weight_gradients + key * columns;
        f32 p[4], ds[4];  // two vectors of this key, and two of the next key
#pragma GCC unroll 4
        for (int l = 0; l < 4; ++l) p[l] = fma(load(scores + l * f32::lanes) - high[l % 2], scale, -logs[l % 2]);
        attention_math::powers(p);
#pragma GCC unroll 4
        for (int l = 0; l < 4; ++l) ds[l] = p[l] * (load(dp + l * f32::lanes) - dot[l % 2]);
        // Query `first_visible + key` is the first to see this key.
        if (t.first_visible + key + 1 > 0 || t.queries < columns) {
            for (int l = 0; l < 4; ++l) {
                const mask hidden = less(query[l % 2], splat(static_cast<float>(t.first_visible + key + l / 2))),
                           seen = both(complement(hidden), less(query[l % 2], queries));
                p[l] = select(seen, p[l], zero);
                ds[l] = select(seen, ds[l], zero);
            }
        }
        if (key + 1 == t.rows) p[2] = p[3] = ds[2] = ds[3] = zero;
        Format::store_row(weights + key * panel_stride, p);
        Format::store_row(score_gradients + key * panel_stride, ds);
        Format::store_row(weights + (key + 1) * panel_stride, p + 2);
        Format::store_row(score_gradients + (key + 1) * panel_stride, ds + 2);
        Format::store_rows(panel, key, ds, ds + 2);
    }

    const f32 zeros[2] = {zero, zero};
    const extent written = round_up(t.rows, 2);
    for (extent key = written; key < t.block_rows; ++key) {
        Format::store_row(weights + key * panel_stride, zeros);
        Format::store_row(score_gradients + key * panel_stride, zeros);
    }
    for (extent key = written; key < t.padded_rows; key += 2) Format::store_rows(panel, key, zeros, zeros);
}

/// to = factor times the sums, by rows.
template <class T>
void attention_store(extent rows, extent width, const float* sums, extent stride, float factor, T* to,
                     extent to_stride) {
    for (extent i = 0; i < rows; ++i) {
        for (extent d = 0; d < width; d += f32::lanes) {
            const f32 value = load(sums + i * stride + d) * factor;
            if (width - d >= f32::lanes) {
                store(to + i * to_stride + d, value);
            } else {
                store(to + i * to_stride + d, value, static_cast<int>(width - d));
            }
        }
    }
}

/// to = factor times the sums, transposed, for sums (width x rows) in several parts, `part` floats apart, which are
/// added in order.
template <class T>
void attention_store_transposed(extent rows, extent width, const float* sums, extent stride, extent parts, extent part,
                                float factor, T* to, extent to_stride) {
    for (extent i = 0; i < rows; i += f32::lanes) {
        const extent high = rows - i < f32::lanes ? rows - i : f32::lanes;
        for (extent d = 0; d < width; d += f32::lanes) {
            const extent wide = width - d < f32::lanes ? width - d : f32::lanes;
            f32 square[f32::lanes];
            for (extent r = 0; r < f32::lanes; ++r) square[r] = splat(0.0f);
            for (extent r = 0; r < wide; ++r) square[r] = load(sums + (d + r) * stride + i);
            for (extent p = 1; p < parts; ++p) {
                for (extent r = 0; r < wide; ++r) square[r] = square[r] + load(sums + p * part + (d + r) * stride + i);
            }
            transpose(square);
            if (high == f32::lanes && wide == f32::lanes) {
#pragma GCC unroll 16
                for (extent r = 0; r < f32::lanes; ++r) store(to + (i + r) * to_stride + d, square[r] * factor);
            } else {
                const int n = static_cast<int>(wide);
                for (extent r = 0; r < high; ++r) store(to + (i + r) * to_stride + d, square[r] * factor, n);
            }
        }
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
