// SPDX-License-Identifier: MIT
/// \file
/// Pinned host memory through which small inputs are uploaded to a GPU without waiting for it.
///
///     staging.send(to, tokens.data(), bytes, stream);        // `tokens` may be changed on return
///     const ht::pinned_memory rows = device.pinned(bytes);   // device.copy(to, rows.data(), bytes) does not wait
#pragma once

#include <cstring>
#include <utility>

#include <halftone/exec/cuda/stream_state.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A block of pinned host memory, from and to which a GPU copies without the host's waiting. May be made and destroyed
/// by any thread; it must outlive the copies.
class pinned_memory {
  public:
    /// Throws cuda_error.
    pinned_memory(int device, std::size_t bytes) : bytes_(bytes) {
        const detail::current_device here(device);
        const detail::beside_captures unrelated;
        if (bytes != 0) detail::cuda_check(cudaMallocHost(&data_, bytes), "cudaMallocHost");
    }
    pinned_memory(pinned_memory&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    pinned_memory& operator=(pinned_memory&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~pinned_memory() {
        if (data_ == nullptr) return;
        const detail::beside_captures unrelated;
        cudaFreeHost(data_);
    }

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

  private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// A ring of pinned buffers, each with an event that is passed when its transfer has finished. Buffers grow to the
/// largest transfer so far, so that a steady program allocates nothing.
class pinned_staging {
  public:
    pinned_staging() = default;
    pinned_staging(const pinned_staging&) = delete;
    pinned_staging& operator=(const pinned_staging&) = delete;
    ~pinned_staging() {
        for (slot& s : slots_) s.clear();
    }

    /// Copies host memory to a pinned buffer, and from there to the device in the stream's order; `from` may be changed
    /// on return. Waits for an earlier transfer only if all buffers are still in use. Throws cuda_error.
    void send(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
        if (bytes == 0) return;
        slot& s = slots_[next_];
        next_ = (next_ + 1) % slots;
        s.prepare(bytes);
        std::memcpy(s.data, from, bytes);
        detail::cuda_check(cudaMemcpyAsync(to, s.data, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
        detail::cuda_check(cudaEventRecord(s.sent, stream), "cudaEventRecord");
    }

  private:
    static constexpr std::size_t slots = 8;

    struct slot {
        void* data = nullptr;
        std::size_t bytes = 0;
        cudaEvent_t sent = nullptr;

        /// Waits until the last transfer from this buffer has finished, and grows it if needed.
        void prepare(std::size_t wanted) {
            if (sent == nullptr) {
                detail::cuda_check(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming), "cudaEventCreateWithFlags");
            } else {
                detail::cuda_check(cudaEventSynchronize(sent), "cudaEventSynchronize");
            }
            if (bytes >= wanted) return;
            const detail::beside_captures here;  // other streams may be captured; this one is not
            if (data != nullptr) cudaFreeHost(std::exchange(data, nullptr));
            bytes = 0;
            detail::cuda_check(cudaMallocHost(&data, wanted), "cudaMallocHost");
            bytes = wanted;
        }
        void clear() noexcept {
            if (sent == nullptr) return;
            const detail::beside_captures here;
            cudaEventSynchronize(sent);
            cudaEventDestroy(sent);
            if (data != nullptr) cudaFreeHost(data);
        }
    };

    slot slots_[slots];
    std::size_t next_ = 0;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
