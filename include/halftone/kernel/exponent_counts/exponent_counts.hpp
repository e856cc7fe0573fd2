// SPDX-License-Identifier: MIT
/// \file
/// Counts of a tensor's values by exponent, from which follows which formats can hold them.
///
///     const ht::tensor_statistics s = ht::statistics_of(device, gradient);      // for ht::cuda include device/histogram.cuh
///     std::cout << s.underflow<ht::float16>() << " of the gradient would be zeros in float16, without a loss scale\n";
///
/// Numeric contract: exact counts, decided by the values' bits. The host waits for them, so this is for use between
/// steps.
#pragma once

#include <cstdint>
#include <vector>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/traits.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Counts of a tensor's values by exponent.
struct tensor_statistics {
    static constexpr int least_exponent = -149, most_exponent = 127;  ///< of float's numbers, subnormal ones included
    static constexpr int exponents = most_exponent - least_exponent + 1;

    extent zeros = 0, infinities = 0, nans = 0;
    float largest = 0;                   ///< largest magnitude of a finite value; 0 if there is none
    extent by_exponent[exponents] = {};  ///< [e - least_exponent]: magnitudes in [2^e, 2^(e + 1))

    /// The number of finite nonzero values with magnitudes in [2^first, 2^(last + 1)).
    extent count(int first, int last) const {
        extent sum = 0;
        for (int e = first < least_exponent ? least_exponent : first; e <= last && e <= most_exponent; ++e)
            sum += by_exponent[e - least_exponent];
        return sum;
    }
    /// Adds the counts of another tensor.
    void add(const tensor_statistics& other) {
        zeros += other.zeros, infinities += other.infinities, nans += other.nans;
        largest = largest < other.largest ? other.largest : largest;
        for (int e = 0; e < exponents; ++e) by_exponent[e] += other.by_exponent[e];
    }
    extent finite() const { return zeros + count(least_exponent, most_exponent); }
    extent elements() const { return finite() + infinities + nans; }

    /// The fraction of finite nonzero values with magnitudes in [2^first, 2^(last + 1)). 0 if there are no such values, as
    /// in the next three functions.
    double share(int first, int last) const {
        const extent all = count(least_exponent, most_exponent);
        return all == 0 ? 0 : static_cast<double>(count(first, last)) / static_cast<double>(all);
    }
    /// The fraction of finite nonzero values that T would round to zero, because they are less than half its least
    /// subnormal number.
    template <number T>
    double underflow() const {
        return share(least_exponent, number_traits<T>::min_exponent - number_traits<T>::significand_bits - 2);
    }
    /// The fraction of finite nonzero values below T's least normal number, which T rounds with a larger relative error
    /// or to zero.
    template <number T>
    double subnormal() const {
        return share(least_exponent, number_traits<T>::min_exponent - 2);
    }
    /// The fraction of finite nonzero values of at least 2^max_exponent, which T cannot hold.
    template <number T>
    double overflow() const {
        return share(number_traits<T>::max_exponent, most_exponent);
    }
};

namespace detail {

/// The classes that values are counted by: zero, each exponent in ascending order, infinity, NaN.
struct magnitude_class {
    static constexpr int zero = 0, first = 1, infinity = first + tensor_statistics::exponents, nan = infinity + 1;
    static constexpr int count = nan + 1;

    /// The bits of |x| as a float.
    template <class T>
    HALFTONE_HD static constexpr std::uint32_t magnitude(T x) {
        static_assert(number_traits<T>::significand_bits <= 24 && number_traits<T>::min_exponent >= -125 &&
                          number_traits<T>::max_exponent <= 128,
                      "halftone: statistics_of takes numbers that float can hold");
        return bit_cast<std::uint32_t>(static_cast<float>(x)) & 0x7fffffff;
    }
    template <class T>
    HALFTONE_HD static constexpr std::uint16_t of(T x) {
        const std::uint32_t bits = magnitude(x);
        if (bits > 0x7f800000) return nan;
        if (bits == 0x7f800000) return infinity;
        if (bits == 0) return zero;
        // A subnormal number is a multiple of 2^-149; converted to float, exactly, that integer's exponent is the
        // position of its first bit.
        const std::uint32_t normal = bits >= 0x00800000 ? bits : bit_cast<std::uint32_t>(static_cast<float>(bits));
        const int exponent = static_cast<int>(normal >> 23) - 127 - (bits >= 0x00800000 ? 0 : 149);
        return static_cast<std::uint16_t>(first + exponent - tensor_statistics::least_exponent);
    }
};

/// The statistics, from counts[c], the number of values of class c.
inline tensor_statistics statistics_from(const extent* counts, std::uint32_t largest) {
    tensor_statistics s;
    s.zeros = counts[magnitude_class::zero];
    s.infinities = counts[magnitude_class::infinity];
    s.nans = counts[magnitude_class::nan];
    s.largest = bit_cast<float>(largest);
    for (int e = 0; e < s.exponents; ++e) s.by_exponent[e] = counts[magnitude_class::first + e];
    return s;
}

template <class T, int Rank>
tensor_statistics statistics_on_host(const view<T, Rank>& values) {
    const auto all = flatten(values);
    extent counts[magnitude_class::count] = {};
    std::uint32_t largest = 0;
    for (extent i = 0; i < all.size(); ++i) {
        const auto magnitude = magnitude_class::magnitude(all(i));
        ++counts[magnitude_class::of(all(i))];
        if (magnitude > largest && magnitude < 0x7f800000) largest = magnitude;
    }
    return statistics_from(counts, largest);
}

}  // namespace detail

/// The counts of a contiguous view on the host. Throws shape_error for a view that is not contiguous.
template <class T, int Rank>
tensor_statistics statistics_of(cpu&, const view<T, Rank>& values) {
    return detail::statistics_on_host(values);
}
/// The counts of a contiguous view in the memory of any other device: copies the values to the host.
/// device/histogram.cuh has a faster version.
template <class Device, class T, int Rank>
    requires(Device::runs_simt_kernels)
tensor_statistics statistics_of(Device& device, const view<T, Rank>& values) {
    const auto all = flatten(values);
    std::vector<std::remove_const_t<T>> host(static_cast<std::size_t>(all.size()));
    device.memory().read(host.data(), all.data(), host.size() * sizeof(T));
    return detail::statistics_on_host(view<const T, 1>(host.data(), {all.size()}));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
