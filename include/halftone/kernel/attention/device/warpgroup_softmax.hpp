// SPDX-License-Identifier: MIT
/// \file
/// The running softmax of attention's kernel for warpgroups, and rows that it computes once more. A lane has two of a
/// warp's 16 rows, lane / 4 and 8 below it, as matrix instructions leave their sums.
#pragma once

#include <halftone/kernel/attention/device/fragments.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// The running softmax of a lane's two rows (Milakov and Gimelshein 2018). `total` is the lane's partial sum; four lanes
/// share a row.
struct lane_softmax {
    float highest[2] = {detail::attention_masked_score, detail::attention_masked_score}, total[2] = {0, 0};

    /// What is subtracted from exponents of two, for a highest score. If all scores so far are masked, it is 0: their
    /// weights are then 0.
    HALFTONE_HD HALFTONE_INLINE static float exponent_of(float highest, float scale) {
        return highest == detail::attention_masked_score ? 0.0f : highest * scale;
    }
    /// Takes the lane's highest new scores, and gives what is subtracted from exponents from now on (`top`), and the
    /// factor by which earlier weights shrink. scale: of exponents of two.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void raise(Simt simt, const vec<float, 2>& of_lane, float scale, vec<float, 2>& top,
                                           vec<float, 2>& factor) {
        HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
            float now = std::fmax(highest[half], of_lane[half]);
            now = std::fmax(now, simt.shuffle_xor(now, 2));
            now = std::fmax(now, simt.shuffle_xor(now, 1));
            top[half] = exponent_of(now, scale);
            factor[half] = power_of_two(exponent_of(highest[half], scale) - top[half]);
            if (now == highest[half]) factor[half] = 1;
            if (highest[half] == detail::attention_masked_score) factor[half] = now == highest[half] ? 1.0f : 0.0f;
            highest[half] = now;
        }
    }
    HALFTONE_HD HALFTONE_INLINE static float weight(float score, float scale, float top) {
        return power_of_two(std::fma(score, scale, -top));
    }
};

/// Computes 16 rows of o once more, for rows whose sums are not finite because a value that a mask hides is not, and
/// zero times it is NaN. It uses matrix instructions of one warp (mma_16816), which on Hopper add 16 products at a time
/// as wgmma does (Xie et al. 2025, "MMA-Sim"), so that rows keep their bits. Operands come from global memory; hidden
/// values are replaced by zeros for each row by itself. Rare, so the code is small, not fast.
template <class T, int Head>
struct rows_once_more {
    static constexpr int key_rows = 128;  // the kernel's: rows get the same bits
    using sums_of_lane = block_sums[Head / 8];

    head_vectors<const T> q, k, v;
    const attention_problem& problem;
    const attention_block& here;
    int first;  ///< the warp's first row
    int end;    ///< of the keys whose values the kernel multiplied

    /// Whether a value that is hidden from one of the rows, and was multiplied, is not finite.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE bool are_needed(Simt simt) const {
        bool found = false;
        const int last = smaller(end, here.keys);
        for (int key = first + here.offset + 1 + simt.lane(); key < last; key += 32) {
            const global_span<const T> row = values(key);
            for (int column = 0; column < problem.head_size; column += 2)
                found |= is_not_finite<T>(pair_at(simt, row, column));
        }
        return simt.any(found);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void compute(Simt simt, lane_softmax& state, sums_of_lane& sums) const {
        const float scale = problem.scale * detail::log2_of_e;
        state = {};
        HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) sums[n] = {};
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // small code
#endif
        for (int tile = 0; tile < end; tile += key_rows) {
            vec<float, 2> highest{detail::attention_masked_score, detail::attention_masked_score}, top, factor, even{},
                odd{};
            block_sums scores[2];
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // small code
#endif
            for (int key = tile; key < tile + key_rows; key += 16) {
                multiply_keys(simt, key, scores);
                HALFTONE_UNROLL for (int n = 0; n < 2; ++n) {
                    HALFTONE_UNROLL for (int e = 0; e < 4; ++e) highest[e / 2] =
                        std::fmax(highest[e / 2], scores[n][e]);
                }
            }
            state.raise(simt, highest, scale, top, factor);
            HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) sums[n][e] *= factor[e / 2];
            }
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // small code
#endif
            for (int key = tile; key < tile + key_rows; key += 16) {
                multiply_keys(simt, key, scores);
                HALFTONE_UNROLL for (int n = 0; n < 2; ++n) {
                    HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                        scores[n][e] = lane_softmax::weight(scores[n][e], scale, top[e / 2]);
                        (e % 2 == 0 ? even : odd)[e / 2] += scores[n][e];
                    }
                }
                add_values(simt, key, as_left<T>(simt, scores[0], scores[1])[0], sums);
            }
            HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
                state.total[half] = std::fma(state.total[half], factor[half], even[half] + odd[half]);
            }
        }
    }

  private:
    HALFTONE_HD HALFTONE_INLINE global_span<const T> values(int key) const {
        return v.from(here.sequence, key, here.head / problem.members);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static word pair_at(Simt simt, const global_span<const T>& row, int column) {
        const vec<T, 2> two = simt.load(simt::as_vectors<2>(row), column / 2);
        return two[0].bits() | static_cast<word>(two[1].bits()) << 16;
    }
    /// Zero beyond the last row or head_size.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE word pair_or_zero(Simt simt, const head_vectors<const T>& x, int time, int times,
                                                  int head, int column) const {
        if (time >= times || column >= problem.head_size) return 0;
        return pair_at(simt, x.from(here.sequence, time, head), column);
    }
    /// The scores of 16 keys, masked.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void multiply_keys(Simt simt, int key, block_sums (&scores)[2]) const {
        const int row = first + simt.lane() / 4, pair = simt.lane() % 4 * 2;
        scores[0] = scores[1] = {};
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // small code
#endif
        for (int d = 0; d < problem.head_size; d += 16) {
            vec<word, 4> left;
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                left[e] = pair_or_zero(simt, q, row + e % 2 * 8, here.queries, here.head, d + e / 2 * 8 + pair);
            }
            HALFTONE_UNROLL for (int n = 0; n < 2; ++n) {
                vec<word, 2> right;
                HALFTONE_UNROLL for (int e = 0; e < 2; ++e) {
                    right[e] = pair_or_zero(simt, k, key + 8 * n + simt.lane() / 4, here.keys,
                                            here.head / problem.members, d + 8 * e + pair);
                }
                simt.mma_16816(simt::element<T>{}, scores[n], left, right);
            }
        }
        HALFTONE_UNROLL for (int n = 0; n < 2; ++n) {
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                if (!here.sees(row + e / 2 * 8, key + 8 * n + pair + e % 2))
                    scores[n][e] = detail::attention_masked_score;
            }
        }
    }
    /// Adds the product of 16 weights of each row with values: row r of the sums by a product of its own.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_values(Simt simt, int key, const vec<word, 4>& weights,
                                                sums_of_lane& sums) const {
        const int pair = simt.lane() % 4 * 2;
        HALFTONE_UNROLL for (int n = 0; n < Head / 8; ++n) {
            const int column = 8 * n + simt.lane() / 4;
            word value[4];
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                const int time = key + pair + e / 2 * 8 + e % 2;
                value[e] = time < here.keys && column < problem.head_size ? simt.load(values(time), column).bits() : 0;
            }
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // small code
#endif
            for (int r = 0; r < 16; ++r) {
                vec<word, 2> right{};
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    if (here.sees(first + r, key + pair + e / 2 * 8 + e % 2)) right[e / 2] |= value[e] << 16 * (e % 2);
                }
                block_sums next = sums[n];
                simt.mma_16816(simt::element<T>{}, next, weights, right);
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                    if (simt.lane() / 4 + e / 2 * 8 == r) sums[n][e] = next[e];
                }
            }
        }
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
