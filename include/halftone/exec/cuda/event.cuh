// SPDX-License-Identifier: MIT
/// \file
/// A point in a stream's work, for which other streams can wait and between two of which time can be measured.
///
///     const ht::cuda_event loaded = copies.record();       // after all work of `copies` so far
///     compute.wait_for(loaded);                            // later work of `compute` starts after it
///     loaded.is_over(), loaded.wait();                     // queries; waits on the host
///     const double s = ht::seconds_between(begin, end);    // both are over
#pragma once

#include <utility>

#include <halftone/exec/cuda/current_device.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Made by ht::cuda's record(). May be used by any thread.
class cuda_event {
  public:
    /// An event after all work of the stream so far; the stream is one of the device's.
    cuda_event(int device, cudaStream_t stream) {
        const detail::current_device here(device);
        detail::cuda_check(cudaEventCreate(&event_), "cudaEventCreate");
        const cudaError_t code = cudaEventRecord(event_, stream);
        if (code != cudaSuccess) cudaEventDestroy(std::exchange(event_, nullptr));
        detail::cuda_check(code, "cudaEventRecord");
    }
    cuda_event(cuda_event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    cuda_event& operator=(cuda_event&& other) noexcept {
        std::swap(event_, other.event_);
        return *this;
    }
    ~cuda_event() {
        if (event_ != nullptr) cudaEventDestroy(event_);
    }

    cudaEvent_t get() const { return event_; }

    /// Whether the stream has passed the event; does not wait. Throws cuda_error.
    bool is_over() const {
        const cudaError_t code = cudaEventQuery(event_);
        if (code != cudaErrorNotReady) detail::cuda_check(code, "cudaEventQuery");
        return code == cudaSuccess;
    }
    /// Waits until the stream has passed the event. Throws cuda_error.
    void wait() const { detail::cuda_check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

  private:
    cudaEvent_t event_ = nullptr;
};

/// The seconds from one event to a later one of the same device, to about half a microsecond. Waits for the later
/// event.
inline double seconds_between(const cuda_event& begin, const cuda_event& end) {
    float milliseconds = 0;
    end.wait();
    detail::cuda_check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
