// SPDX-License-Identifier: MIT
/// \file
/// A GPU's memory as a memory_resource of stores, arenas and tensors; its transfers are in the order of one stream.
///
/// While the program captures the stream, allocation throws, because the block would belong to the graph. Frees during
/// a capture are deferred to the next allocation or free outside of one. If the resource is destroyed during a capture,
/// blocks freed since its beginning stay allocated until their pool is destroyed, because the graph may use them.
#pragma once

#include <memory>

#include <halftone/exec/capture.hpp>
#include <halftone/exec/cuda/pages.cuh>
#include <halftone/exec/cuda/pool.cuh>
#include <halftone/exec/cuda/stream_state.cuh>
#include <halftone/memory/resource.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The memory of a GPU, allocated and freed in a stream's order (cudaMallocAsync).
class cuda_memory final : public memory_resource {
  public:
    /// Allocates at most `limit` bytes at a time, so that a memory budget can be tested. The stream, one of the
    /// device's, must outlive the resource, and so must a pool that is given.
    explicit cuda_memory(int device, cudaStream_t stream, std::size_t limit = static_cast<std::size_t>(-1),
                         cudaMemPool_t pool = nullptr)
        : device_(device), stream_(stream), limit_(limit), pool_(pool) {}
    ~cuda_memory() override {
        if (captured_by_others() == nullptr) free_deferred();
    }
    /// From now on allocates from a new pool, which is created at the first allocation and keeps up to `keeps` free
    /// bytes.
    void use_own_pool(std::size_t keeps) {
        has_own_pool_ = true;
        keeps_ = keeps;
    }
    /// The size of a page of the ranges of addresses for growable arenas: CUDA's granularity. The GPU is asked at first
    /// use.
    std::size_t page_bytes() const override { return pages().granularity(); }
    std::size_t limit() const override { return limit_; }
    /// The pool of allocations; nullptr: the device's current pool, as for cudaMallocAsync.
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
        // From pageable memory the call returns once the bytes are staged; from pinned memory it returns at once.
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
            cudaGetLastError();  // resets the error, so that a later call does not report it
            return nullptr;
        }
        detail::cuda_check(code, pool_ == nullptr ? "cudaMallocAsync" : "cudaMallocFromPoolAsync");
        return static_cast<std::byte*>(block);
    }
    // Freed in the stream's order: kernels launched before may still use the block.
    void release(std::byte* block, std::size_t) noexcept override {
        const detail::current_device here(device_);
        cudaFreeAsync(block, stream_);
    }
    // Memory that was freed is in the pool until the stream has reached the free.
    void trim() override {
        const detail::current_device here(device_);
        detail::cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        if (pool_ != nullptr) detail::cuda_check(cudaMemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo");
    }
    address_range obtain_range() override { return pages().reserve(); }
    bool commit(std::byte* at, std::size_t bytes) override {
        return bytes <= limit_ - usage().held() && pages().commit(at, bytes);
    }
    // Kernels launched before may still use the pages, and unmapping is in no stream's order.
    void uncommit(std::byte* at, std::size_t) override {
        const detail::current_device here(device_);
        detail::cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        pages().decommit(at);
    }
    void release_range(const address_range& range) noexcept override {
        const detail::current_device here(device_);
        cudaStreamSynchronize(stream_);
        pages().release(range);
    }
    detail::device_pages& pages() const {
        if (pages_ == nullptr) pages_ = std::make_unique<detail::device_pages>(device_);
        return *pages_;
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
    mutable std::unique_ptr<detail::device_pages> pages_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
