// SPDX-License-Identifier: MIT
/// \file
/// Adds label smoothing, class weights and z-loss to the cross-entropy of some rows, which has been computed.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>

#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/weighted_cross_entropy/weighted_cross_entropy.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// The sum over classes of weight (largest - x); without class weights each weight is 1.
template <class X>
HALFTONE_INLINE float weighted_distance(extent classes, const X* x, float largest, const float* weight) {
    return sum_of_segments(classes, [&](extent first, extent count) __attribute__((always_inline)) {
        four_vectors sums = broadcast_four(0.0f);
        for_vectors_unrolled(count, [&](extent j, int k, auto n) __attribute__((always_inline)) {
            f32 below = splat(largest) - load(x + first + j, n);
            if (weight != nullptr) below = below * load(weight + first + j, n);
            sums.v[k] = sums.v[k] + keep(below, n, splat(0.0f));
        });
        return sum(sums);
    });
}

/// losses: contains the cross-entropies of the rows, which become the losses with all terms. row_weights may be null.
template <class X>
void weighted_cross_entropy_rows(extent rows, extent classes, const X* x, extent stride, const std::int32_t* targets,
                                 std::int32_t ignored, const kernel::cross_entropy_terms<float>& terms, float* losses,
                                 const float* row_maxima, const float* row_sums, float* row_weights) {
    const float* const weight = terms.weight.data();
    const float all = weight == nullptr ? static_cast<float>(classes) : terms.weight_sum(0);
    for (extent i = 0; i < rows; ++i, x += stride) {
        const bool counts = targets[i] != ignored;
        const float w = !counts ? 0.0f : weight == nullptr ? 1.0f : weight[targets[i]];
        if (row_weights != nullptr) row_weights[i] = w;
        if (!counts) continue;
        const float log_sum = first_lane(log(splat(row_sums[i])));
        const auto c = kernel::weighted_row<float>::of(terms.label_smoothing, terms.z_loss, w, all, classes,
                                                       row_maxima[i] + log_sum);
        float loss = c.of_target * losses[i] + c.extra;
        if (terms.label_smoothing != 0)
            loss += c.of_each * (weighted_distance(classes, x, row_maxima[i], weight) + all * log_sum);
        losses[i] = loss;
    }
}

/// dlogits = (of_target (p - onehot(target)) + of_sum p - of_each weight) gradient / count. The gradients of
/// consecutive rows are `step` floats apart.
template <class X, class D>
void weighted_cross_entropy_backward_rows(extent rows, extent classes, const X* x, extent stride, const std::int32_t* targets,
                                          std::int32_t ignored, const kernel::cross_entropy_terms<float>& terms,
                                          const float* row_maxima, const float* row_sums, const float* gradient, extent step,
                                          float count, D* dx, extent dx_stride) {
    const float* const weight = terms.label_smoothing == 0 ? nullptr : terms.weight.data();
    const float all = terms.weight.data() == nullptr ? static_cast<float>(classes) : terms.weight_sum(0);
    for (extent i = 0; i < rows; ++i, x += stride, dx += dx_stride) {
        const std::int32_t target = targets[i];
        if (target == ignored) {
            fill(dx, classes, 0.0f);
            continue;
        }
        const float w = terms.weight.data() == nullptr ? 1.0f : terms.weight(target);
        const float log_sum = first_lane(log(splat(row_sums[i])));
        const auto c = kernel::weighted_row<float>::of(terms.label_smoothing, terms.z_loss, w, all, classes,
                                                       row_maxima[i] + log_sum);
        const float slope = kernel::over_count(gradient[i * step], count);
        const float of_target = slope * c.of_target / row_sums[i], of_sum = slope * c.of_sum / row_sums[i];
        const f32 largest = splat(row_maxima[i]), factor = splat(of_target + of_sum), each = splat(slope * c.of_each);
        // The target's logit is read before the loop, which may overwrite it. Its exponential minus the sum is exact if
        // the sum has no other term.
        const f32 power = exp_below_zero(load(x + target, 1) - largest);
        const f32 at_target = (power - row_sums[i]) * of_target + power * of_sum - each * w;
        for_vectors(classes, [&](extent j, int, auto n) __attribute__((always_inline)) {
            const f32 weights = weight == nullptr ? splat(1.0f) : load(weight + j, n);
            store(dx + j, exp_below_zero(load(x + j, n) - largest) * factor - each * weights, n);
        });
        store(dx + target, at_target, 1);
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
