// SPDX-License-Identifier: MIT
/// \file
/// The sum of exponentials of a row, less the largest of which nothing overflows, found in one reading (Milakov and
/// Gimelshein 2018): what is summed so far is scaled whenever something larger is met.
///
///     on_device::exponential_sum<float> sum;
///     for (...) sum.add(load_floats<n>(simt, row, i));
///     const auto [largest, total] = sum.over<team>(simt);             // of the whole row: log(total) + largest
///
/// Both may be given a factor of at least 0: then what is summed is exp(factor (x - largest)).
///
/// Numeric contract: exact where all elements are equal, NaN for a row of nothing but -infinity, or with a NaN or
/// +infinity in it. Each scaling costs an exponential and two roundings. At most 2^23 elements of a row are one thread's
/// where a row has fewer than 2^31: sums in float do not stop growing.
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

/// Of exponentials for numbers of T (exponential.hpp).
template <class T>
struct exponential_sum {
    float largest = minus_infinity, sum = 0;

    template <int N>
    HALFTONE_HD HALFTONE_INLINE void add(const vec<float, N>& v, float factor = 1.0f) {
        const float now = largest_of(largest, v);
        const float below = now == minus_infinity ? 0.0f : now;  // infinity less infinity is no number
        float some = 0;
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) some += exponential<T>((v[e] - below) * factor);
        sum = sum * moved(below, factor) + some;
        largest = now;
    }
    /// Uses both slots of the team.
    HALFTONE_KERNEL template <class Team, class Simt>
    HALFTONE_HD HALFTONE_INLINE exponential_sum over(Simt simt, float factor = 1.0f) const {
        exponential_sum whole;
        whole.largest = Team::max(simt, largest, constant<0>{});
        whole.sum = Team::sum(simt, sum * moved(whole.largest, factor), constant<1>{});
        return whole;
    }

  private:
    /// What the sum is multiplied by where `to` is subtracted from now on. Nothing was summed while the largest was
    /// -infinity, of which 0 times the difference would be no number.
    HALFTONE_HD HALFTONE_INLINE float moved(float to, float factor) const {
        return largest == minus_infinity && to != minus_infinity ? 0.0f : exponential<T>((largest - to) * factor);
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
