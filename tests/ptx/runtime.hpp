// SPDX-License-Identifier: MIT
/// \file
/// The functions of CUDA's runtime that halftone calls, on the PTX machine: programs compiled by nvcc run without a GPU. They are
/// linked with this library in place of cudart.
///
/// Streams run as late as CUDA allows: work runs only when something waits for it, so that reading a result too early gives an old
/// value. Only the legacy stream and blocking streams are ordered with each other. Memory is initialised with NaNs. A kernel that
/// fails prints a message to stderr, and every later call returns its error.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "ptx/machine.hpp"

namespace halftone::ptx {

struct graph {
    std::vector<std::function<void()>> nodes;
};
struct stream {
    std::deque<std::function<void()>> work;
    std::uint64_t given = 0, done = 0;
    bool is_blocking = false;  // waits for the legacy stream, which waits for it
    graph* noting = nullptr;
    bool is_spoilt = false;  // by a call that a capture does not take
};
struct event {
    stream* of = nullptr;
    std::uint64_t at = 0;
    std::shared_ptr<std::chrono::steady_clock::time_point> time{};  // when it was reached
};
/// Of device memory. What is reserved and not used goes back whenever something waits, down to the threshold.
struct pool {
    std::uint64_t used = 0, reserved = 0, threshold = 0;
    std::uint64_t mapped = 0;  // bytes that came from the system so far
};
struct allocation {
    std::uint64_t bytes = 0;
    cudaMemoryType type = cudaMemoryTypeDevice;
    bool is_ours = true;
    pool* of = nullptr;
};
struct kernel {
    module* code = nullptr;
    std::string name;
    std::size_t most_shared = 48 * 1024;
};

/// What the device is: 10 times its compute capability.
int architecture();
/// Of a multiprocessor, and the most of a block.
inline std::size_t all_shared_bytes() { return (architecture() == 90 ? 228 : 164) * std::size_t{1024}; }
inline std::size_t most_shared_bytes() { return all_shared_bytes() - 1024; }

/// All that the runtime knows.
struct gpu {
    std::recursive_mutex mutex;
    std::map<std::uint64_t, allocation> memory;
    std::map<const void*, kernel> kernels;
    std::vector<std::unique_ptr<module>> modules;
    std::set<stream*> streams;
    stream plain;  // the legacy stream
    std::set<pool*> pools;
    pool own;  // the device's own, which is also the present one
    std::map<std::string, int> calls;  // of those that cost
    cudaError_t last = cudaSuccess, broken = cudaSuccess;

    /// Where an allocation begins that has so many bytes from the address on, and what it is; nullptr: none has.
    const std::pair<const std::uint64_t, allocation>* find(std::uint64_t address, std::uint64_t bytes) {
        auto next = memory.upper_bound(address);
        if (next == memory.begin()) return nullptr;
        --next;
        return address + bytes <= next->first + next->second.bytes ? &*next : nullptr;
    }
    range around(std::uint64_t address) {
        const auto* const found = find(address, 1);
        return found == nullptr ? range{} : range{found->first, found->first + found->second.bytes};
    }
};
gpu& all();
using lock = std::lock_guard<std::recursive_mutex>;

/// What a call returns: its own error, or that of a kernel before it.
cudaError_t result(cudaError_t code);

stream& of(cudaStream_t s);
/// Does what a stream was given up to a ticket: what `given` was.
void run_until(stream& s, std::uint64_t ticket);
void run_all();
/// To a stream, or to the graph that it notes down.
cudaError_t give(stream& s, std::function<void()> work);
/// Whether the stream notes down a graph, which then is spoilt: for what no graph takes.
bool is_refused(stream& s);
/// The same for all streams, for calls that may wait for any of them; not if the thread has selected relaxed captures.
bool any_refuses();
/// Whether a stream notes down a graph that the legacy stream would have to wait for.
bool is_any_blocking_stream_noting();
/// Something has waited: pools give back what they do not keep.
void trim_pools();

}  // namespace halftone::ptx
