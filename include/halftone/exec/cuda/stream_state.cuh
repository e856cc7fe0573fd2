// SPDX-License-Identifier: MIT
/// \file
/// Whether a stream is being captured into a graph, by halftone or by the program, and how to make calls that are
/// unrelated to that capture.
///
///     if (const char* who = detail::capture_of(stream)) ...       // "the program captures the stream"
///     const detail::beside_captures here;                         // pinned memory may be allocated in this scope
#pragma once

#include <halftone/exec/cuda/current_device.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// nullptr if the stream is not captured. Otherwise the subject of a sentence that says who captures it. The query does
/// not disturb the capture. If CUDA does not answer, after a failed kernel for instance, the following calls report the
/// error.
inline const char* capture_of(cudaStream_t stream) noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t code = cudaStreamIsCapturing(stream, &status);
    if (code != cudaSuccess) cudaGetLastError();  // resets the error, so that a later call does not report it
    if (code == cudaErrorStreamCaptureImplicit)
        return "the program captures a stream that the default stream, which this context was given, waits for";
    return code != cudaSuccess || status == cudaStreamCaptureStatusNone ? nullptr : "the program captures the stream";
}

/// While an object of this class lives, this thread may make calls that CUDA forbids during any capture because they
/// might wait: allocating and freeing pinned memory, which no captured work uses.
class beside_captures {
  public:
    beside_captures() noexcept { cudaThreadExchangeStreamCaptureMode(&mode_); }
    beside_captures(const beside_captures&) = delete;
    beside_captures& operator=(const beside_captures&) = delete;
    ~beside_captures() { cudaThreadExchangeStreamCaptureMode(&mode_); }

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
