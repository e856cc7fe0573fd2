// SPDX-License-Identifier: MIT
/// \file
/// A GPU's memory, as a resource of stores, arenas and tensors; its transfers are in order with one stream.
#pragma once

#include <halftone/exec/capture.hpp>
#include <halftone/exec/cuda/current_device.cuh>
#include <halftone/memory/resource.hpp>

namespace halftone::inline HALFTONE_ABI {

class cuda_memory final : public memory_resource {
  public:
    /// `limit` bytes at most are out at a time, so that a budget can be tried. The stream, one of the device's, must outlive
    /// the resource.
    explicit cuda_memory(int device, cudaStream_t stream, std::size_t limit = static_cast<std::size_t>(-1))
        : device_(device), stream_(stream), limit_(limit) {}

    void write(void* to, const void* from, std::size_t bytes) override {
        expect_no_capture(detail::write_in_capture);
        copy_and_wait(to, from, bytes);
    }
    void read(void* to, const void* from, std::size_t bytes) override {
        expect_no_capture(detail::read_in_capture);
        copy_and_wait(to, from, bytes);
    }
    void clear(void* to, std::size_t bytes) override {
        const detail::current_device here(device_);
        if (bytes != 0) detail::cuda_check(cudaMemsetAsync(to, 0, bytes, stream_), "cudaMemsetAsync");
    }

  private:
    void copy_and_wait(void* to, const void* from, std::size_t bytes) {
        if (bytes == 0) return;
        const detail::current_device here(device_);
        // From pageable memory this returns once the bytes are staged; from pinned memory it would return at once.
        detail::cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
        detail::cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    }
    std::byte* obtain(std::size_t bytes) override {
        if (bytes > limit_ - usage().held()) return nullptr;
        const detail::current_device here(device_);
        void* block = nullptr;
        const cudaError_t code = cudaMallocAsync(&block, bytes, stream_);
        if (code == cudaErrorMemoryAllocation) {
            cudaGetLastError();  // the next call must not find it
            return nullptr;
        }
        detail::cuda_check(code, "cudaMallocAsync");
        return static_cast<std::byte*>(block);
    }
    // In order with the stream: kernels that were launched before may still use the block.
    void release(std::byte* block, std::size_t) noexcept override {
        const detail::current_device here(device_);
        cudaFreeAsync(block, stream_);
    }

    int device_;
    cudaStream_t stream_;
    std::size_t limit_;
};

}  // namespace halftone::inline HALFTONE_ABI
