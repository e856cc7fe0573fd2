// SPDX-License-Identifier: MIT
/// \file
/// A point in the work of a stream: what other streams wait for, and what times are measured between.
///
///     const ht::cuda_event loaded = copies.record();       // behind all that `copies` was given so far
///     compute.wait_for(loaded);                            // what compute gets from now on begins after it
///     loaded.is_over(), loaded.wait();                     // asks; waits, on the host
///     const double s = ht::seconds_between(begin, end);    // both are over
#pragma once

#include <utility>

#include <halftone/exec/cuda/current_device.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Made by ht::cuda's record(). Any thread may ask it.
class cuda_event {
  public:
    /// Behind all that the stream, one of the device's, was given so far.
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

    /// Whether the stream has come past the place where the event was recorded; does not wait. Throws cuda_error.
    bool is_over() const {
        const cudaError_t code = cudaEventQuery(event_);
        if (code != cudaErrorNotReady) detail::cuda_check(code, "cudaEventQuery");
        return code == cudaSuccess;
    }
    /// Waits until it has. Throws cuda_error.
    void wait() const { detail::cuda_check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

  private:
    cudaEvent_t event_ = nullptr;
};

/// From one event to a later one of the same device, to about half a microsecond. Waits for the later one.
inline double seconds_between(const cuda_event& begin, const cuda_event& end) {
    float milliseconds = 0;
    end.wait();
    detail::cuda_check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
