// SPDX-License-Identifier: MIT
/// \file
/// A GPU's memory, as a resource of stores, arenas and tensors; its transfers are in order with one stream.
///
/// While the program captures that stream no memory is handed out, for it would be the graph's; what is given back
/// meanwhile goes back when next a block is asked for or given back without a capture. Where the resource itself ends
/// amid one, what was given back since the capture began is left to the end of its pool: the graph may use it.
#pragma once

#include <halftone/exec/capture.hpp>
#include <halftone/exec/cuda/pool.cuh>
#include <halftone/exec/cuda/stream_state.cuh>
#include <halftone/memory/resource.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The memory of a GPU, taken and given back in the order of a stream (cudaMallocAsync).
class cuda_memory final : public memory_resource {
  public:
    /// `limit` bytes at most are out at a time, so that a budget can be tried. The stream, one of the device's, must
    /// outlive the resource, and so must a pool that is given.
    explicit cuda_memory(int device, cudaStream_t stream, std::size_t limit = static_cast<std::size_t>(-1),
                         cudaMemPool_t pool = nullptr)
        : device_(device), stream_(stream), limit_(limit), pool_(pool) {}
    ~cuda_memory() override {
        if (captured_by_others() == nullptr) give_back_left();
    }
    /// From now on memory is that of a pool of its own, which is made when first a block is asked for and keeps so many
    /// bytes that are free.
    void use_own_pool(std::size_t keeps) {
        has_own_pool_ = true;
        keeps_ = keeps;
    }
    /// Where blocks come from; nullptr: the device's present pool, as cudaMallocAsync has it.
    cudaMemPool_t pool() const { return pool_; }

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
        if (pool_ == nullptr && has_own_pool_) {
            own_pool_ = cuda_pool(device_, keeps_);
            pool_ = own_pool_.get();
        }
        void* block = nullptr;
        const cudaError_t code = pool_ == nullptr ? cudaMallocAsync(&block, bytes, stream_)
                                                  : cudaMallocFromPoolAsync(&block, bytes, pool_, stream_);
        if (code == cudaErrorMemoryAllocation) {
            cudaGetLastError();  // the next call must not find it
            return nullptr;
        }
        detail::cuda_check(code, pool_ == nullptr ? "cudaMallocAsync" : "cudaMallocFromPoolAsync");
        return static_cast<std::byte*>(block);
    }
    // In order with the stream: kernels that were launched before may still use the block.
    void release(std::byte* block, std::size_t) noexcept override {
        const detail::current_device here(device_);
        cudaFreeAsync(block, stream_);
    }
    const char* captured_by_others() const noexcept override {
        const detail::current_device here(device_);
        return detail::capture_of(stream_);
    }

    int device_;
    cudaStream_t stream_;
    std::size_t limit_;
    cudaMemPool_t pool_;
    cuda_pool own_pool_;
    bool has_own_pool_ = false;
    std::size_t keeps_ = cuda_pool::everything;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
