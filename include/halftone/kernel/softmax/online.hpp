// SPDX-License-Identifier: MIT
/// \file
/// The sum of exponentials of a row, less the largest of which nothing overflows, found in one reading (Milakov and
/// Gimelshein 2018): what is summed so far is scaled whenever something larger is met.
///
///     on_device::exponential_sum<float> sum;
///     for (...) sum.add(load_floats<n>(simt, row, i));
///     const auto [largest, total] = sum.over<team>(simt);             // of the whole row: log(total) + largest
///
/// Numeric contract: exact where all elements are equal, NaN for a row of nothing but -infinity, or with a NaN or
/// +infinity in it. Each scaling costs an exponential and two roundings.
#pragma once

#include <cmath>
#include <limits>

#include <halftone/kernel/exponential.hpp>
#include <halftone/kernel/rows/device.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

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

/// Of exponentials for numbers of T (exponential.hpp).
template <class T>
struct exponential_sum {
    float largest = minus_infinity, sum = 0;

    template <int N>
    HALFTONE_HD HALFTONE_INLINE void add(const vec<float, N>& v) {
        const float now = largest_of(largest, v);
        const float below = now == minus_infinity ? 0.0f : now;  // infinity less infinity is no number
        float some = 0;
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) some += exponential<T>(v[e] - below);
        sum = sum * exponential<T>(largest - below) + some;
        largest = now;
    }
    /// Uses both slots of the team.
    HALFTONE_KERNEL template <class Team, class Simt>
    HALFTONE_HD HALFTONE_INLINE exponential_sum over(Simt simt) const {
        exponential_sum whole;
        whole.largest = Team::max(simt, largest, constant<0>{});
        whole.sum = Team::sum(simt, sum * exponential<T>(largest - whole.largest), constant<1>{});
        return whole;
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
