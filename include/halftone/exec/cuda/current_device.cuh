// SPDX-License-Identifier: MIT
/// \file
/// The current device of a thread, on which many CUDA calls depend implicitly.
///
///     const detail::current_device here(device);      // sets it until the end of the scope, then restores the user's
#pragma once

#include <halftone/exec/cuda/error.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Takes about ten nanoseconds if the device is the current one already. Throws nothing: if the device cannot be set,
/// the CUDA calls that follow report it.
class current_device {
  public:
    explicit current_device(int device) noexcept {
        int present = device;
        if (cudaGetDevice(&present) == cudaSuccess && present != device && cudaSetDevice(device) == cudaSuccess)
            before_ = present;
    }
    current_device(const current_device&) = delete;
    current_device& operator=(const current_device&) = delete;
    ~current_device() {
        if (before_ >= 0) cudaSetDevice(before_);
    }

  private:
    int before_ = -1;
};

/// Whether it is a default stream, of which every device has one: the legacy or the per-thread one.
inline bool is_default_stream(cudaStream_t stream) {
    return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

inline int current_device_number() {
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

/// The device of a stream, or -1 if it cannot be determined: for a default stream, which every device has; while the
/// stream is captured, when CUDA refuses the query; and before CUDA 12.8, of the toolkit or the driver.
inline int device_of(cudaStream_t stream) {
#if CUDART_VERSION >= 12080
    int device = -1;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (is_default_stream(stream)) return device;
    cuda_check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    if (status != cudaStreamCaptureStatusNone) return device;
    const cudaError_t code = cudaStreamGetDevice(stream, &device);
    if (code == cudaSuccess) return device;
    if (code != cudaErrorCallRequiresNewerDriver && code != cudaErrorNotSupported)
        cuda_check(code, "cudaStreamGetDevice");
    cudaGetLastError();  // resets the error, so that a later call does not report it
#else
    static_cast<void>(stream);
#endif
    return -1;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
