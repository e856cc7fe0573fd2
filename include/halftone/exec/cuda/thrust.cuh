// SPDX-License-Identifier: MIT
/// \file
/// Thrust over halftone's memory, for what is done between steps: sorting, counting, permuting, histograms.
///
///     const auto policy = ht::thrust_policy(device);                  // in order with the device's other work
///     thrust::sort_by_key(policy, ht::begin(lengths), ht::end(lengths), ht::begin(sequences));
///     const auto zeros = thrust::count_if(policy, ht::begin(x), ht::end(x), is_zero{});
///
/// Temporary memory is the context's and counts as its workspace; since it comes and goes, no captured step may hold
/// such a call. Calls that give the host a result wait for it, others do not. As everywhere in Thrust, the context's
/// GPU has to be the present one. Threads of a GPU call HALFTONE_HD function objects; numbers of all types are read and
/// written as they are.
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

/// A context's memory as Thrust asks for it. It is given back in order with the stream, so that kernels may be at work
/// on it.
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

/// The elements of a contiguous view on a GPU, in row-major order. Both throw shape_error for a view with holes.
template <class T, int Rank>
thrust::device_ptr<T> begin(const view<T, Rank>& v) {
    return thrust::device_pointer_cast(flatten(v).data());
}
/// The end of these elements.
template <class T, int Rank>
thrust::device_ptr<T> end(const view<T, Rank>& v) {
    return begin(v) + v.size();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
