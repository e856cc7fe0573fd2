// SPDX-License-Identifier: MIT
/// \file
/// The sum of exponentials of a row, relative to the largest element so that nothing overflows, in one pass (online
/// softmax: Milakov and Gimelshein 2018): the sum so far is rescaled whenever a larger element is found.
///
///     on_device::exponential_sum<float> sum;
///     for (...) sum.add(load_floats<n>(simt, row, i));
///     const auto [largest, total] = sum.over<team>(simt);             // of the whole row: log(total) + largest
///
/// Optionally with a factor of at least 0: then exp(factor (x - largest)) is summed.
///
/// Numeric contract: exact if all elements are equal; NaN for a row of only -infinity, or with a NaN or +infinity. Each
/// rescaling costs an exponential and two roundings. A thread sums at most 2^23 elements of a row of fewer than 2^31,
/// so that its float sum does not stagnate.
#pragma once

#include <cmath>
#include <limits>

#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/exponential.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

template <int N>
HALFTONE_HD HALFTONE_INLINE float largest_of(float so_far, const vec<float, N>& v) {
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) so_far = std::fmax(so_far, v[e]);
    return so_far;
}
template <int N>
HALFTONE_HD HALFTONE_INLINE vec<float, N> scaled(const vec<float, N>& v, float factor) {
    vec<float, N> s;
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) s[e] = v[e] * factor;
    return s;
}

/// The exponential that numbers of T require (exponential.hpp).
template <class T>
struct exponential_sum {
    float largest = minus_infinity, sum = 0;

    template <int N>
    HALFTONE_HD HALFTONE_INLINE void add(const vec<float, N>& v, float factor = 1.0f) {
        const float now = largest_of(largest, v);
        const float below = now == minus_infinity ? 0.0f : now;  // infinity - infinity would be NaN
        float some = 0;
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) some += exponential<T>((v[e] - below) * factor);
        sum = sum * moved(below, factor) + some;
        largest = now;
    }
    /// Reduces over the team; uses both of its slots.
    HALFTONE_KERNEL template <class Team, class Simt>
    HALFTONE_HD HALFTONE_INLINE exponential_sum over(Simt simt, float factor = 1.0f) const {
        exponential_sum whole;
        whole.largest = Team::max(simt, largest, constant<0>{});
        whole.sum = Team::sum(simt, sum * moved(whole.largest, factor), constant<1>{});
        return whole;
    }

  private:
    /// The factor that rescales the sum to a new largest element `to`. While the largest is -infinity the sum is 0, and
    /// the difference would be infinite or NaN: the factor is then 0.
    HALFTONE_HD HALFTONE_INLINE float moved(float to, float factor) const {
        return largest == minus_infinity && to != minus_infinity ? 0.0f : exponential<T>((largest - to) * factor);
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
