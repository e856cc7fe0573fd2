// SPDX-License-Identifier: MIT
/// \file
/// The present device of a thread, which many of CUDA's calls refer to without naming it.
///
///     const detail::current_device here(device);      // until the end of the scope, then the user's again
#pragma once

#include <halftone/exec/cuda/error.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Costs some ten nanoseconds where the device is the present one already. Throws nothing: where a device cannot be
/// had, the calls that follow say so.
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

/// One of the streams that every device has, which CUDA knows by number: the legacy one, or the thread's.
inline bool is_default_stream(cudaStream_t stream) {
    return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

inline int present_device() {
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

/// The device that a stream belongs to, or -1 where no call tells: of a default stream, which all devices have, while the
/// stream is captured, when CUDA refuses the question, and before CUDA 12.8, in the toolkit or the driver.
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
    cudaGetLastError();  // the next call must not find it
#else
    static_cast<void>(stream);
#endif
    return -1;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
