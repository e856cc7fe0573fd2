// SPDX-License-Identifier: MIT
/// \file
/// Pinned host memory by way of which small things go to a GPU without waiting for it.
///
///     staging.send(to, tokens.data(), bytes, stream);        // tokens may change at once
#pragma once

#include <cstring>
#include <utility>

#include <halftone/exec/cuda/stream_state.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A ring of pinned buffers, each guarded by an event that tells when its transfer is through. It grows to the largest
/// transfers it has seen, so that a steady program allocates nothing.
class pinned_staging {
  public:
    pinned_staging() = default;
    pinned_staging(const pinned_staging&) = delete;
    pinned_staging& operator=(const pinned_staging&) = delete;
    ~pinned_staging() {
        for (slot& s : slots_) s.clear();
    }

    /// Copies host memory to a pinned buffer and from there, in the stream's order, to the device: `from` is the
    /// caller's again on return. It waits for an earlier transfer only where all buffers are under way. Throws
    /// cuda_error.
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

        /// Waits until the last transfer out of here is through, and makes room.
        void prepare(std::size_t wanted) {
            if (sent == nullptr) {
                detail::cuda_check(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming), "cudaEventCreateWithFlags");
            } else {
                detail::cuda_check(cudaEventSynchronize(sent), "cudaEventSynchronize");
            }
            if (bytes >= wanted) return;
            const detail::beside_captures here;  // of other streams: this one is not captured, or send() was not called
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
