// SPDX-License-Identifier: MIT
/// \file
/// statistics_of by Thrust's algorithms and a histogram of bytes, for a GPU (device/histogram.cuh), and in tests for
/// the host.
#pragma once

#include <cstdint>

#include <thrust/iterator/transform_iterator.h>
#include <thrust/transform_reduce.h>

#include <halftone/kernel/exponent_counts/exponent_counts.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The histogram's bin of a value: by its exponent bits as a float; where these are the least or the greatest, by its
/// class. A histogram of 256 bins fits into a GPU's shared memory; one of all classes would not.
// Function objects take a T by value: Thrust passes references of its own type for elements on a GPU.
template <class T>
struct histogram_bin {
    static constexpr int exponents = 256;
    static constexpr int infinity = magnitude_class::first + 23, nan = infinity + 1, others = nan + 1;
    bool is_by_kind;

    HALFTONE_HD std::uint8_t operator()(T x) const {
        const std::uint32_t exponent = magnitude_class::magnitude(x) >> 23;
        if (!is_by_kind) return static_cast<std::uint8_t>(exponent);
        if (exponent != 0 && exponent != 255) return others;
        const int c = magnitude_class::of(x);  // zero, a subnormal exponent, infinity or NaN
        return static_cast<std::uint8_t>(c < infinity ? c : c - magnitude_class::infinity + infinity);
    }
};
/// The bits of a finite magnitude, 0 for a value that is not finite; as integers they have the order of the magnitudes.
template <class T>
struct finite_magnitude {
    HALFTONE_HD std::uint32_t operator()(T x) const {
        const std::uint32_t bits = magnitude_class::magnitude(x);
        return bits < 0x7f800000 ? bits : 0;
    }
};
struct larger {
    HALFTONE_HD std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a < b ? b : a; }
};

/// Adds the number of values of each class to counts, in host memory. histogram(bins, count, n, to) counts how many
/// of `count` bins are 0 to n - 1, into n numbers on the host. Returns the bits of the largest finite magnitude.
template <class T, class Policy, class Histogram>
std::uint32_t count_classes(const Policy& policy, const Histogram& histogram, const T* values, extent count,
                            extent (&counts)[magnitude_class::count]) {
    using bin = histogram_bin<T>;
    std::uint32_t by_exponent[bin::exponents] = {}, by_kind[bin::others] = {};
    histogram(thrust::make_transform_iterator(values, bin{false}), count, bin::exponents, by_exponent);
    histogram(thrust::make_transform_iterator(values, bin{true}), count, bin::others, by_kind);
    for (int c = 0; c < bin::infinity; ++c) counts[c] += by_kind[c];
    for (int e = 1; e < 255; ++e) counts[bin::infinity + e - 1] += by_exponent[e];
    counts[magnitude_class::infinity] += by_kind[bin::infinity];
    counts[magnitude_class::nan] += by_kind[bin::nan];
    return thrust::transform_reduce(policy, values, values + count, finite_magnitude<T>{}, std::uint32_t{0}, larger{});
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
