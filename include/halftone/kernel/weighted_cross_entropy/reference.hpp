// SPDX-License-Identifier: MIT
/// \file
/// The definition of cross-entropy with label smoothing, class weights and a z-loss, and of its gradient, in double:
/// weighted_cross_entropy.hpp has the formula.
///
///     double mean = reference::weighted_cross_entropy(logits, targets, -100, {.label_smoothing = 0.1}, losses);
#pragma once

#include <halftone/kernel/cross_entropy/reference.hpp>
#include <halftone/kernel/weighted_cross_entropy/weighted_cross_entropy.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The weight of a class; 1 without class weights.
inline double class_weight(const kernel::cross_entropy_terms<double>& terms, extent j) {
    return terms.weight.data() == nullptr ? 1.0 : terms.weight(j);
}

/// Returns the mean over the rows that are not ignored: the sum of their losses divided by the sum of their targets'
/// weights.
template <class X, class I>
double weighted_cross_entropy(const view<X, 2>& logits,                                  // (rows, classes)
                              const view<I, 1>& targets,                                 // (rows)
                              std::int32_t ignored, const kernel::cross_entropy_terms<double>& terms,
                              const view<double, 1>& losses) {                           // (rows)
    const extent classes = logits.extent_of(1);
    const double e = terms.label_smoothing;
    double sum = 0, weights = 0;
    for (extent i = 0; i < logits.extent_of(0); ++i) {
        losses(i) = 0;
        if (targets(i) == ignored) continue;
        const exponential_sum all = sum_of_exponentials(classes, read_row(logits, i), 1.0);
        const double w = class_weight(terms, targets(i)), log_sum_exp = all.subtracted + std::log(all.sum);
        losses(i) = (1 - e) * w * cross_entropy_of(all, static_cast<double>(logits(i, targets(i))));
        for (extent j = 0; e != 0 && j < classes; ++j)
            losses(i) += e / static_cast<double>(classes) * class_weight(terms, j) *
                         cross_entropy_of(all, static_cast<double>(logits(i, j)));
        losses(i) += terms.z_loss * w * log_sum_exp * log_sum_exp;
        sum += losses(i), weights += w;
    }
    return sum / weights;
}

/// The gradient of the sum over i of gradient[i] loss[i]:
///
///     dx[i][k] = gradient[i] ((1 - e) w[t] (p[k] - [k == t]) + e / classes (sum of w[j] p[k] - w[k])
///                             + 2 z w[t] logsumexp p[k])
template <class X, class I, class D>
void weighted_cross_entropy_backward(const view<X, 2>& logits, const view<I, 1>& targets, std::int32_t ignored,
                                     const kernel::cross_entropy_terms<double>& terms, const const_view<double, 1>& gradient,
                                     const view<D, 2>& dlogits) {
    const extent classes = logits.extent_of(1);
    const double e = terms.label_smoothing, each = e / static_cast<double>(classes);
    double weights = 0;
    for (extent j = 0; j < classes; ++j) weights += class_weight(terms, j);
    for (extent i = 0; i < logits.extent_of(0); ++i) {
        const bool counts = targets(i) != ignored;
        const exponential_sum all = sum_of_exponentials(classes, read_row(logits, i), 1.0);
        const double w = counts ? class_weight(terms, targets(i)) : 0;
        const double log_sum_exp = all.subtracted + std::log(all.sum);
        for (extent k = 0; k < classes; ++k) {
            const double x = static_cast<double>(logits(i, k)), p = cross_entropy_slope(all, x, false);
            const double slope = (1 - e) * w * cross_entropy_slope(all, x, k == targets(i)) +
                                 each * (weights * p - class_weight(terms, k)) + 2 * terms.z_loss * w * log_sum_exp * p;
            dlogits(i, k) = static_cast<D>(counts ? gradient(i) * slope : 0.0);
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
