// SPDX-License-Identifier: MIT
/// \file
/// Thrust on halftone's memory, for work between steps: sorting, counting, permuting, histograms.
///
///     const auto policy = ht::thrust_policy(device);                  // in order with the device's other work
///     thrust::sort_by_key(policy, ht::begin(lengths), ht::end(lengths), ht::begin(sequences));
///     const auto zeros = thrust::count_if(policy, ht::begin(x), ht::end(x), is_zero{});
///
/// Temporary memory comes from the context and counts as workspace. It is allocated and freed in each call, so these
/// calls cannot be part of a captured step. Calls that return a result to the host wait for it; others do not. As
/// always with Thrust, the context's GPU must be the current device. Function objects must be HALFTONE_HD; elements of
/// all number types are read and written unchanged.
#pragma once

#include <algorithm>
#include <cstddef>

#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>

#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A context's memory with the interface of Thrust's allocators. It is freed in the stream's order, so that kernels may
/// still use it.
class thrust_memory {
  public:
    using value_type = char;

    explicit thrust_memory(cuda_memory& source) : source_(&source) {}

    char* allocate(std::ptrdiff_t bytes) {
        return reinterpret_cast<char*>(source_->allocate(static_cast<std::size_t>(bytes), memory_kind::workspace));
    }
    void deallocate(char* block, std::size_t bytes) {
        source_->deallocate(reinterpret_cast<std::byte*>(block), bytes, memory_kind::workspace);
    }

  private:
    cuda_memory* source_;
};

}  // namespace detail

/// The execution policy of a context: its stream, its memory. The context must outlive it.
inline auto thrust_policy(cuda& device) {
    const detail::thrust_memory memory(device.memory());
    return thrust::cuda::par_nosync(memory).on(device.stream());
}

/// The beginning of a contiguous view's elements on a GPU, in row-major order. begin and end throw shape_error for a
/// view that is not contiguous.
template <class T, int Rank>
thrust::device_ptr<T> begin(const view<T, Rank>& v) {
    return thrust::device_pointer_cast(flatten(v).data());
}
/// The end of a contiguous view's elements.
template <class T, int Rank>
thrust::device_ptr<T> end(const view<T, Rank>& v) {
    return begin(v) + v.size();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
