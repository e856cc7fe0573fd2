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
    bool is_spoilt = false;  // by a call that cannot be captured
};
struct event {
    stream* of = nullptr;
    std::uint64_t at = 0;
    std::shared_ptr<std::chrono::steady_clock::time_point> time{};  // when it was reached
};
/// A pool of device memory. Whenever something waits, unused memory is returned, down to the threshold.
struct pool {
    std::uint64_t used = 0, reserved = 0, threshold = 0;
    std::uint64_t mapped = 0;  // bytes allocated from the system so far
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

/// The device's architecture: 10 times its compute capability.
int architecture();
/// The shared memory of a multiprocessor, and the most that a block may have.
inline std::size_t all_shared_bytes() { return (architecture() == 90 ? 228 : 164) * std::size_t{1024}; }
inline std::size_t most_shared_bytes() { return all_shared_bytes() - 1024; }

/// The state of the runtime.
struct gpu {
    std::recursive_mutex mutex;
    std::map<std::uint64_t, allocation> memory;
    std::map<const void*, kernel> kernels;
    std::vector<std::unique_ptr<module>> modules;
    std::set<stream*> streams;
    stream plain;  // the legacy stream
    std::set<pool*> pools;
    pool own;  // the device's default pool, which is also the current one
    std::map<std::string, int> calls;  // numbers of calls of expensive functions
    cudaError_t last = cudaSuccess, broken = cudaSuccess;

    /// The beginning and the kind of the allocation that contains this number of bytes from the address on; nullptr if none does.
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

/// The result of a call: its error, or that of an earlier kernel.
cudaError_t result(cudaError_t code);

stream& of(cudaStream_t s);
/// Executes the work of a stream up to a ticket, an earlier value of `given`.
void run_until(stream& s, std::uint64_t ticket);
void run_all();
/// Adds work to a stream, or to the graph that it captures.
cudaError_t give(stream& s, std::function<void()> work);
/// Whether the stream is being captured; the capture is then invalidated. For calls that cannot be captured.
bool is_refused(stream& s);
/// The same for all streams, for calls that may wait for any of them; not if the thread has selected relaxed captures.
bool any_refuses();
/// Whether a stream is being captured for which the legacy stream would have to wait.
bool is_any_blocking_stream_noting();
/// The driver's function of that name for ranges of addresses (cuMemAddressReserve, ...); nullptr if it is none.
void* page_function(const char* symbol);
/// Called when something has waited: pools return the memory that they do not keep.
void trim_pools();

}  // namespace halftone::ptx
