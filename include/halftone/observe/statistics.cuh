// SPDX-License-Identifier: MIT
/// \file
/// statistics.hpp's counts for tensors on a GPU, by Thrust.
///
///     const ht::tensor_statistics s = ht::statistics_of(gpu, gradient);         // waits for them
#pragma once

#include <type_traits>

#include <thrust/binary_search.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>

#include <halftone/exec/cuda/thrust.cuh>
#include <halftone/observe/statistics.hpp>

namespace halftone::inline HALFTONE_ABI {

namespace detail {
#include <halftone/observe/statistics.inc>
}

/// Of a contiguous view on the GPU, with two bytes of its memory for each value meanwhile. Throws shape_error for a
/// view with holes.
template <class T, int Rank>
tensor_statistics statistics_of(cuda& device, const view<T, Rank>& values) {
    constexpr int classes = detail::magnitude_class::count;
    const extent count = values.size();
    const detail::current_device here(device.device());
    const buffer of_values(device.memory(), static_cast<std::size_t>(count) * sizeof(std::uint16_t),
                           memory_kind::workspace);
    const buffer of_classes(device.memory(), classes * sizeof(extent), memory_kind::workspace);
    const std::uint32_t largest =
        detail::count_classes<std::remove_const_t<T>>(thrust_policy(device), begin(values), count,
                              thrust::device_pointer_cast(reinterpret_cast<std::uint16_t*>(of_values.data())),
                              thrust::device_pointer_cast(reinterpret_cast<extent*>(of_classes.data())));
    extent ends[classes];
    device.memory().read(ends, of_classes.data(), sizeof ends);
    return detail::statistics_from(ends, largest);
}

}  // namespace halftone::inline HALFTONE_ABI
