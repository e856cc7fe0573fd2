// SPDX-License-Identifier: MIT
/// \file
/// exponent_counts.hpp's counts for tensors on a GPU, by CUB's histogram.
///
///     const ht::tensor_statistics s = ht::statistics_of(gpu, gradient);         // waits for the counts
#pragma once

#include <algorithm>
#include <type_traits>

#include <cub/device/device_histogram.cuh>

#include <halftone/exec/cuda/thrust.cuh>
#include <halftone/kernel/exponent_counts/exponent_counts.hpp>
#include <halftone/kernel/exponent_counts/histogram_bin.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Counts how many of `count` bytes are 0, 1, ..., n - 1.
template <class Bytes>
void histogram_of_bytes(cuda& device, const Bytes& bytes, extent count, int n, std::uint32_t* to) {
    const std::size_t size = static_cast<std::size_t>(n) * sizeof(std::uint32_t);
    const workspace::lease counts(device.scratch(), size);
    std::size_t wanted = 0;
    const auto run = [&](void* memory) {
        cuda_check(cub::DeviceHistogram::HistogramEven(memory, wanted, bytes, counts.as<std::uint32_t>(), n + 1, 0, n,
                                                       static_cast<int>(count), device.stream()),
                   "cub::DeviceHistogram::HistogramEven");
    };
    run(nullptr);
    const workspace::lease memory(device.scratch(), wanted);
    run(memory.data());
    device.memory().read(to, counts.data(), size);
}

}  // namespace detail

/// The counts of a contiguous view on the GPU. Throws shape_error for a view that is not contiguous.
template <class T, int Rank>
tensor_statistics statistics_of(cuda& device, const view<T, Rank>& values) {
    constexpr extent at_once = extent{1} << 30;  // so that 32 bits hold the counts
    const auto all = flatten(values);
    const detail::current_device here(device.device());
    const auto histogram = [&](const auto& bytes, extent count, int n, std::uint32_t* to) {
        detail::histogram_of_bytes(device, bytes, count, n, to);
    };
    extent counts[detail::magnitude_class::count] = {};
    std::uint32_t largest = 0;
    for (extent first = 0; first < all.size(); first += at_once) {
        const std::remove_const_t<T>* const from = all.data() + first;
        largest = std::max(largest, detail::count_classes(thrust_policy(device), histogram, from,
                                                          std::min(at_once, all.size() - first), counts));
    }
    return detail::statistics_from(counts, largest);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
