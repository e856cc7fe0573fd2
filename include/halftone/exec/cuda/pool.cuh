// SPDX-License-Identifier: MIT
/// \file
/// A pool of a GPU's memory, separate from the default pool of cudaMallocAsync: memory that is freed stays in the pool,
/// up to a number of bytes, and the next allocation takes it from there.
///
///     const ht::cuda_pool pool{0, std::size_t{1} << 30};        // of GPU 0; keeps up to 1 GiB of free memory
///     ht::cuda gpu{{.stream = stream, .pool = pool.get()}};     // and any number of other contexts
///
/// CUDA's default pool of a GPU keeps nothing unless the program changes its release threshold: free memory is returned
/// to the system whenever something waits for the GPU, and must be mapped again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <halftone/exec/cuda/current_device.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A pool of a GPU's memory, which keeps up to `keeps` freed bytes instead of returning them to the system. Throws
/// cuda_error.
class cuda_pool {
  public:
    static constexpr std::size_t everything = static_cast<std::size_t>(-1);

    /// No pool.
    cuda_pool() = default;
    explicit cuda_pool(int device, std::size_t keeps = everything) {
        cudaMemPoolProps how{};
        how.allocType = cudaMemAllocationTypePinned;  // as all of a GPU's memory is
        how.location.type = cudaMemLocationTypeDevice;
        how.location.id = device;
        detail::cuda_check(cudaMemPoolCreate(&pool_, &how), "cudaMemPoolCreate");
        auto threshold = static_cast<std::uint64_t>(keeps);
        const cudaError_t code = cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold);
        if (code != cudaSuccess) cudaMemPoolDestroy(std::exchange(pool_, nullptr));
        detail::cuda_check(code, "cudaMemPoolSetAttribute");
    }
    cuda_pool(cuda_pool&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)) {}
    cuda_pool& operator=(cuda_pool&& other) noexcept {
        std::swap(pool_, other.pool_);
        return *this;
    }
    /// CUDA destroys the pool once all its memory has been freed.
    ~cuda_pool() {
        if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
    }

    /// CUDA's handle; nullptr without a pool.
    cudaMemPool_t get() const { return pool_; }

  private:
    cudaMemPool_t pool_ = nullptr;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
