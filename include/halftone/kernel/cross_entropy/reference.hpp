// SPDX-License-Identifier: MIT
/// \file
/// The definition of cross-entropy and of its gradient, in double.
///
///     loss[i] = log(sum over j of exp(x[i][j])) - x[i][target[i]]
///
///     double mean = reference::cross_entropy(logits, targets, -100, losses);
///
/// The functions of one number are also used by the kernels in double (fp64.hpp).
#pragma once

#include <cstdint>

#include <halftone/kernel/softmax/reference.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The loss of a row with this sum of exponentials (softmax/reference.hpp), where x is the target's logit.
HALFTONE_HD inline double cross_entropy_of(const exponential_sum& all, double x) {
    return (all.subtracted - x) + std::log(all.sum);
}
/// The derivative of the loss by logit x: softmax(x), minus 1 if x is the target's.
HALFTONE_HD inline double cross_entropy_slope(const exponential_sum& all, double x, bool is_target) {
    const double probability = std::exp(x - all.subtracted) / all.sum;
    return is_target ? probability - 1 : probability;
}

/// The number of rows whose target is not `ignored`.
template <class I>
extent counted_rows(const view<I, 1>& targets, std::int32_t ignored) {
    extent count = 0;
    for (extent i = 0; i < targets.extent_of(0); ++i) count += targets(i) == ignored ? 0 : 1;
    return count;
}

/// Returns the mean over the rows that count.
template <class X, class I, class S>
double cross_entropy(const view<X, 2>& logits,                          // (rows, classes)
                     const view<I, 1>& targets,                         // (rows)
                     std::int32_t ignored, const view<S, 1>& losses) {  // (rows)
    double sum = 0;
    for (extent i = 0; i < logits.extent_of(0); ++i) {
        const bool counts = targets(i) != ignored;
        const exponential_sum all = sum_of_exponentials(logits.extent_of(1), read_row(logits, i), 1.0);
        const double loss = counts ? cross_entropy_of(all, static_cast<double>(logits(i, targets(i)))) : 0.0;
        losses(i) = static_cast<S>(loss);
        sum += loss;
    }
    return sum / static_cast<double>(counted_rows(targets, ignored));
}

/// The gradient of the sum over i of gradient[i] loss[i]:
///
///     dx[i][j] = gradient[i] (softmax(x[i])[j] - [j is the target])
template <class X, class I, class S, class D>
void cross_entropy_backward(const view<X, 2>& logits, const view<I, 1>& targets, std::int32_t ignored,
                            const view<S, 1>& gradient, const view<D, 2>& dlogits) {
    for (extent i = 0; i < logits.extent_of(0); ++i) {
        const exponential_sum all = sum_of_exponentials(logits.extent_of(1), read_row(logits, i), 1.0);
        for (extent j = 0; j < logits.extent_of(1); ++j) {
            const double slope = cross_entropy_slope(all, static_cast<double>(logits(i, j)), j == targets(i));
            dlogits(i, j) = static_cast<D>(targets(i) == ignored ? 0.0 : static_cast<double>(gradient(i)) * slope);
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
