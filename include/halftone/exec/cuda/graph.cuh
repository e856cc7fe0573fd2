// SPDX-License-Identifier: MIT
/// \file
/// Work of one stream as a CUDA graph: what ht::cuda captures (exec/capture.hpp), owned and ready to launch.
///
///     ht::cuda_graph work = device.capture([&] { optimizer.step(grads); });
///     device.replay(work);                                  // any number of times
///
/// A launch of a graph costs the host about as much as that of one kernel, however many kernels it has.
#pragma once

#include <cstddef>
#include <utility>

#include <halftone/exec/cuda/error.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Refers to addresses, and does not keep what lies there.
class cuda_graph {
  public:
    /// Takes a graph over, and brings what the GPU needs of it there, so that the first launch is no slower than
    /// others.
    cuda_graph(cudaGraph_t graph, cudaStream_t stream) {
        std::size_t nodes = 0;
        cudaError_t code = cudaGraphGetNodes(graph, nullptr, &nodes);
        if (code == cudaSuccess) code = cudaGraphInstantiate(&executable_, graph, 0);
        if (code == cudaSuccess) code = cudaGraphUpload(executable_, stream);
        cudaGraphDestroy(graph);  // the executable form stands by itself
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

    /// Kernels, copies and fills in it.
    std::size_t nodes() const { return nodes_; }
    /// Does the graph's work once more, in the stream's order, without waiting. Throws cuda_error.
    void launch(cudaStream_t stream) const {
        detail::cuda_check(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch");
    }

  private:
    // Of a graph under way CUDA keeps what it needs until it is through.
    void clear() noexcept {
        if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
        executable_ = nullptr;
    }

    cudaGraphExec_t executable_ = nullptr;
    std::size_t nodes_ = 0;
};

namespace detail {

/// While it lives, what the stream is given is noted down. Where it ends without finish(), after an exception, what was
/// noted is dropped, and the stream is as before.
class stream_capture {
  public:
    // Of this thread alone: other threads may go on to allocate and to wait, a reader of data for its pinned memory,
    // say. What this thread may not do meanwhile, CUDA refuses all the same.
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
        cudaGetLastError();  // a capture that a refused call has spoilt says so here
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
