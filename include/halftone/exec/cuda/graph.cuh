// SPDX-License-Identifier: MIT
/// \file
/// An instantiated CUDA graph of work captured from one stream: the result of ht::cuda's capture (exec/capture.hpp).
///
///     ht::cuda_graph work = device.capture([&] { optimizer.step(grads); });
///     device.replay(work);                                  // any number of times
///
/// Launching a graph costs the host about as much as launching one kernel, whatever the number of kernels in it.
#pragma once

#include <cstddef>
#include <utility>

#include <halftone/exec/cuda/error.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Refers to memory by address, and does not keep it alive.
class cuda_graph {
  public:
    /// Takes ownership of a graph, instantiates it and uploads it to the GPU, so that the first launch is as fast as
    /// later ones.
    cuda_graph(cudaGraph_t graph, cudaStream_t stream) {
        std::size_t nodes = 0;
        cudaError_t code = cudaGraphGetNodes(graph, nullptr, &nodes);
        if (code == cudaSuccess) code = cudaGraphInstantiate(&executable_, graph, 0);
        if (code == cudaSuccess) code = cudaGraphUpload(executable_, stream);
        cudaGraphDestroy(graph);  // the instantiated graph does not need it
        nodes_ = nodes;
        if (code != cudaSuccess) {
            clear();
            detail::cuda_check(code, "cudaGraphInstantiate");
        }
    }
    cuda_graph(cuda_graph&& other) noexcept
        : executable_(std::exchange(other.executable_, nullptr)), nodes_(other.nodes_) {}
    cuda_graph& operator=(cuda_graph&& other) noexcept {
        std::swap(executable_, other.executable_);
        std::swap(nodes_, other.nodes_);
        return *this;
    }
    ~cuda_graph() { clear(); }

    /// The number of nodes: kernels, copies and fills.
    std::size_t nodes() const { return nodes_; }
    /// Launches the graph in the stream's order, without waiting. Throws cuda_error.
    void launch(cudaStream_t stream) const {
        detail::cuda_check(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch");
    }

  private:
    // CUDA keeps what a running graph needs until it has finished.
    void clear() noexcept {
        if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
        executable_ = nullptr;
    }

    cudaGraphExec_t executable_ = nullptr;
    std::size_t nodes_ = 0;
};

namespace detail {

/// While an object of this class lives, the stream's work is captured. If it is destroyed without finish(), after an
/// exception, the capture is discarded.
class stream_capture {
  public:
    // Captures in the thread-local mode: other threads may still allocate and wait (a data reader's pinned memory,
    // say). This thread's forbidden calls are rejected by CUDA.
    explicit stream_capture(cudaStream_t stream) : stream_(stream) {
        cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    }
    stream_capture(const stream_capture&) = delete;
    stream_capture& operator=(const stream_capture&) = delete;
    ~stream_capture() {
        if (is_over_) return;
        cudaGraph_t graph = nullptr;
        cudaStreamEndCapture(stream_, &graph);
        if (graph != nullptr) cudaGraphDestroy(graph);
        cudaGetLastError();  // resets the error of a capture that a forbidden call has invalidated
    }

    cuda_graph finish() {
        cudaGraph_t graph = nullptr;
        is_over_ = true;
        cuda_check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
        return {graph, stream_};
    }

  private:
    cudaStream_t stream_;
    bool is_over_ = false;
};

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
