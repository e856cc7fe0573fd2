// SPDX-License-Identifier: MIT
/// \file
/// Whether a stream is being captured into a graph, whoever began it, and how to go on with what has nothing to do with
/// that graph.
///
///     if (const char* who = detail::capture_of(stream)) ...       // "the program captures the stream"
///     const detail::beside_captures here;                         // pinned memory may be taken meanwhile
#pragma once

#include <halftone/exec/cuda/current_device.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// nullptr: what the stream is given is done. Otherwise who has it noted down, as a sentence begins. Asks the driver, and
/// the capture goes on as before. Where CUDA cannot tell, after a failed kernel, say, the calls that follow say so.
inline const char* capture_of(cudaStream_t stream) noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t code = cudaStreamIsCapturing(stream, &status);
    if (code != cudaSuccess) cudaGetLastError();  // the next call must not find it
    if (code == cudaErrorStreamCaptureImplicit)
        return "the program captures a stream that the default stream, which this context was given, waits for";
    return code != cudaSuccess || status == cudaStreamCaptureStatusNone ? nullptr : "the program captures the stream";
}

/// While it lives, calls of this thread that would spoil a capture of somebody's, for they might wait for it, are
/// allowed: taking and giving back pinned memory, which no captured work knows of.
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
