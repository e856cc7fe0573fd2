// SPDX-License-Identifier: MIT
/// \file
/// The definition of normalisation by channels or groups of channels, and of its gradients, in double: one set at a time.
///
///     reference::channel_norm(sets, x, gain, bias, 1e-5, y, mean, rstd);
///
/// x and y are (images, channels, area).
#pragma once

#include <cmath>

#include <halftone/kernel/channel_norm/channel_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Calls element(n, c, i) for each element of a set.
template <class F>
void for_each_in_set(const kernel::channel_sets& sets, extent set, const F& element) {
    for (extent n = 0; n < sets.images; ++n) {
        for (extent c = 0; c < sets.channels; ++c) {
            const bool is_in = sets.groups == 0 ? c == set : n * sets.groups + c / (sets.channels / sets.groups) == set;
            for (extent i = 0; is_in && i < sets.area; ++i) element(n, c, i);
        }
    }
}

/// The mean, and 1 / sqrt(variance + epsilon), of each set. The variance is divided by the number of elements; it is
/// not the unbiased estimate.
template <class X>
void channel_statistics(const kernel::channel_sets& sets, const view<X, 3>& x, double epsilon, double* mean,
                        double* var, double* rstd) {
    const auto count = static_cast<double>(sets.set_size());
    for (extent s = 0; s < sets.sets(); ++s) {
        double sum = 0, squares = 0;
        for_each_in_set(sets, s, [&](extent n, extent c, extent i) { sum += static_cast<double>(x(n, c, i)); });
        mean[s] = sum / count;
        for_each_in_set(sets, s, [&](extent n, extent c, extent i) {
            const double d = static_cast<double>(x(n, c, i)) - mean[s];
            squares += d * d;
        });
        var[s] = squares / count;
        rstd[s] = 1 / std::sqrt(var[s] + epsilon);
    }
}

/// y = (x - mean) rstd gain + bias.
template <class X, class W, class Y>
void channel_norm(const kernel::channel_sets& sets, const view<X, 3>& x, const double* mean, const double* rstd,
                  const W* gain, const W* bias, const view<Y, 3>& y) {
    for (extent s = 0; s < sets.sets(); ++s) {
        for_each_in_set(sets, s, [&](extent n, extent c, extent i) {
            const double normal = (static_cast<double>(x(n, c, i)) - mean[s]) * rstd[s];
            y(n, c, i) = static_cast<Y>(normal * static_cast<double>(gain[c]) + static_cast<double>(bias[c]));
        });
    }
}

/// With n the normalised x and h = dy gain: dx = rstd (h - mean of h - n (mean of h n)), where means are over a set. If
/// the statistics are given constants, dx = rstd h. Adds to dx, dgain and dbias.
template <class X, class W, class Y>
void channel_norm_backward(const kernel::channel_sets& sets, const view<X, 3>& x, const double* mean,
                           const double* rstd, const W* gain, const view<Y, 3>& dy, bool are_given,
                           const view<double, 3>& dx, double* dgain, double* dbias) {
    const auto count = static_cast<double>(sets.set_size());
    for (extent s = 0; s < sets.sets(); ++s) {
        double sum_h = 0, sum_hn = 0;
        for_each_in_set(sets, s, [&](extent n, extent c, extent i) {
            const double d = static_cast<double>(dy(n, c, i)), h = d * static_cast<double>(gain[c]);
            const double normal = (static_cast<double>(x(n, c, i)) - mean[s]) * rstd[s];
            sum_h += h;
            sum_hn += h * normal;
            dgain[c] += d * normal;
            dbias[c] += d;
        });
        if (are_given) sum_h = sum_hn = 0;
        for_each_in_set(sets, s, [&](extent n, extent c, extent i) {
            const double h = static_cast<double>(dy(n, c, i)) * static_cast<double>(gain[c]);
            const double normal = (static_cast<double>(x(n, c, i)) - mean[s]) * rstd[s];
            dx(n, c, i) += rstd[s] * (h - sum_h / count - normal * sum_hn / count);
        });
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
