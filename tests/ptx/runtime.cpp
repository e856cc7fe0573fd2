// SPDX-License-Identifier: MIT
/// \file
/// CUDA's runtime, as much of it as halftone calls, over the machine that runs PTX: what nvcc compiled runs where there
/// is no GPU. Programs are linked with this in place of cudart.
///
/// Streams are as late as CUDA allows: nothing runs before something waits for it, so that what is read too early is
/// old. Memory from here begins as NaNs. A kernel that fails says so on stderr, and every later call returns its error.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <set>
#include <utility>

#include "ptx/machine.hpp"

namespace {

using namespace halftone;

struct graph {
    std::vector<std::function<void()>> nodes;
};
struct stream {
    std::deque<std::function<void()>> work;
    std::uint64_t given = 0, done = 0;
    graph* noting = nullptr;
    bool is_spoilt = false;  // by a call that a capture does not take
};
struct event {
    stream* of = nullptr;
    std::uint64_t at = 0;
};
struct allocation {
    std::uint64_t bytes = 0;
    cudaMemoryType type = cudaMemoryTypeDevice;
    bool is_ours = true;
};
struct kernel {
    ptx::module* code = nullptr;
    std::string name;
    std::size_t most_shared = 48 * 1024;
};

constexpr std::size_t most_shared_bytes = 163 * 1024, all_shared_bytes = 164 * 1024;

struct machine {
    std::recursive_mutex mutex;
    std::map<std::uint64_t, allocation> memory;
    std::map<const void*, kernel> kernels;
    std::vector<std::unique_ptr<ptx::module>> modules;
    std::set<stream*> streams;
    stream plain;
    cudaError_t last = cudaSuccess, broken = cudaSuccess;

    const allocation* find(std::uint64_t address, std::uint64_t bytes) {
        auto next = memory.upper_bound(address);
        if (next == memory.begin()) return nullptr;
        --next;
        return address + bytes <= next->first + next->second.bytes ? &next->second : nullptr;
    }
};
machine& all() {
    static machine* const m = new machine;  // outlives what programs destroy at their end
    return *m;
}
using lock = std::lock_guard<std::recursive_mutex>;

cudaError_t result(cudaError_t code) {
    if (code != cudaSuccess) all().last = code;
    return code != cudaSuccess ? code : all().broken;
}

stream& of(cudaStream_t s) { return s == nullptr ? all().plain : *reinterpret_cast<stream*>(s); }
void run_until(stream& s, std::uint64_t ticket) {
    while (s.done < ticket && !s.work.empty()) {
        const auto next = std::move(s.work.front());
        s.work.pop_front();
        ++s.done;
        if (all().broken == cudaSuccess) next();
    }
}
void run_all() {
    for (stream* const s : all().streams) run_until(*s, s->given);
    run_until(all().plain, all().plain.given);
}
cudaError_t give(stream& s, std::function<void()> f) {
    if (s.noting != nullptr) {
        s.noting->nodes.push_back(std::move(f));
    } else {
        s.work.push_back(std::move(f));
        ++s.given;
    }
    return result(cudaSuccess);
}
/// What no capture takes.
bool is_refused(stream& s) {
    if (s.noting == nullptr) return false;
    s.is_spoilt = true;
    return true;
}
bool any_refuses() {
    bool refuses = false;
    for (stream* const s : all().streams) refuses = is_refused(*s) || refuses;
    return refuses;
}

cudaError_t obtain(void** p, std::size_t bytes, cudaMemoryType type) {
    *p = nullptr;
    if (bytes == 0) return result(cudaSuccess);
    void* const memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (memory == nullptr) return result(cudaErrorMemoryAllocation);
    std::memset(memory, 0xff, bytes);
    all().memory[reinterpret_cast<std::uint64_t>(memory)] = {bytes, type, true};
    *p = memory;
    return result(cudaSuccess);
}
cudaError_t release(void* p) {
    if (p == nullptr) return result(cudaSuccess);
    const auto found = all().memory.find(reinterpret_cast<std::uint64_t>(p));
    if (found == all().memory.end() || !found->second.is_ours) return result(cudaErrorInvalidValue);
    std::memset(p, 0xff, found->second.bytes);
    all().memory.erase(found);
    std::free(p);
    return result(cudaSuccess);
}

/// The text of PTX in what nvcc has put into the program; empty: there is none that is not compressed.
std::string ptx_of(const void* wrapper) {
    const auto* at = static_cast<const unsigned char* const*>(wrapper)[1];
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, at + 8, 8);
    std::uint16_t head = 0;
    std::memcpy(&head, at + 6, 2);
    const unsigned char* const end = at + head + bytes;
    for (at += head; at < end;) {
        std::uint16_t kind = 0;
        std::uint32_t entry = 0, compressed = 0;
        std::uint64_t payload = 0;
        std::memcpy(&kind, at, 2);
        std::memcpy(&entry, at + 4, 4);
        std::memcpy(&payload, at + 8, 8);
        std::memcpy(&compressed, at + 16, 4);
        if (kind == 1 && compressed == 0) {
            const auto* const text = reinterpret_cast<const char*>(at + entry);
            return {text, strnlen(text, payload)};
        }
        at += entry + payload;
    }
    return {};
}

kernel* find_kernel(const void* f) {
    const auto found = all().kernels.find(f);
    return found == all().kernels.end() ? nullptr : &found->second;
}

cudaError_t launch(const void* f, dim3 grid, dim3 block, void** arguments, std::size_t shared, cudaStream_t s) {
    kernel* const k = find_kernel(f);
    if (k == nullptr) return result(cudaErrorInvalidDeviceFunction);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535) return result(cudaErrorInvalidConfiguration);
    if (block.x * block.y * block.z == 0 || block.x * block.y * block.z > 1024) return result(cudaErrorInvalidConfiguration);
    try {
        const ptx::function& code = k->code->named(k->name);
        if (shared > k->most_shared || shared + code.shared_bytes + 1024 > all_shared_bytes) return result(cudaErrorInvalidValue);
        auto how = std::make_shared<ptx::launch>();
        how->grid = {grid.x, grid.y, grid.z};
        how->block = {block.x, block.y, block.z};
        how->shared_bytes = shared;
        how->parameters.resize((code.kernel_parameter_bytes + 7) / 8);
        for (std::size_t p = 0; p < code.parameters.size(); ++p) {
            const ptx::variable& v = code.parameters[p];
            std::memcpy(reinterpret_cast<std::byte*>(how->parameters.data()) + (v.offset & ~ptx::kernel_parameter), arguments[p], v.bytes);
        }
        return give(of(s), [k, how, &code] {
            try {
                run(*k->code, code, *how, [](std::uint64_t address, std::uint64_t bytes) { return all().find(address, bytes) != nullptr; });
            } catch (const ptx::failure& e) {
                std::fprintf(stderr, "kernel: %s\n", e.what());
                all().broken = cudaErrorIllegalAddress;
            }
        });
    } catch (const ptx::failure& e) {
        std::fprintf(stderr, "kernel %s: %s\n", k->name.c_str(), e.what());
        return result(cudaErrorInvalidKernelImage);
    }
}

thread_local struct {
    dim3 grid, block;
    std::size_t shared;
    cudaStream_t stream;
} configuration;

}  // namespace

extern "C" {

// ---- what nvcc's own code calls

void** __cudaRegisterFatBinary(void* wrapper) {
    const lock l(all().mutex);
    all().modules.push_back(std::make_unique<ptx::module>(ptx_of(wrapper)));
    return reinterpret_cast<void**>(all().modules.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    const lock l(all().mutex);
    auto* const code = reinterpret_cast<ptx::module*>(handle);
    if (code->has(name)) all().kernels.try_emplace(host, kernel{code, name, 48 * 1024});
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, CUstream_st* stream) {
    configuration = {grid, block, shared, stream};
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *static_cast<cudaStream_t*>(stream) = configuration.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* k, const void* f) {
    *k = reinterpret_cast<cudaKernel_t>(const_cast<void*>(f));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void** arguments, std::size_t shared, cudaStream_t s) {
    const lock l(all().mutex);
    return launch(reinterpret_cast<const void*>(k), grid, block, arguments, shared, s);
}
cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, std::size_t shared, cudaStream_t s) {
    const lock l(all().mutex);
    return launch(f, grid, block, arguments, shared, s);
}

// ---- the device

cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int d) { return result(d == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    *p = {};
    std::snprintf(p->name, sizeof p->name, "PTX on the host");
    p->totalGlobalMem = std::size_t{8} << 30;
    p->sharedMemPerBlock = 48 * 1024;
    p->sharedMemPerBlockOptin = most_shared_bytes;
    p->sharedMemPerMultiprocessor = all_shared_bytes;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->major = 8;
    p->multiProcessorCount = 6;
    p->l2CacheSize = 1 << 20;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr a, int) {
    switch (a) {
        case cudaDevAttrComputeCapabilityMajor: *value = 8; break;
        case cudaDevAttrMultiProcessorCount: *value = 6; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 * 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = most_shared_bytes; break;
        case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        default: *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetLastError() {
    const lock l(all().mutex);
    return all().broken != cudaSuccess ? all().broken : std::exchange(all().last, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() { return all().broken != cudaSuccess ? all().broken : all().last; }
const char* cudaGetErrorName(cudaError_t e) { return e == cudaSuccess ? "cudaSuccess" : e == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaError"; }
const char* cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : e == cudaErrorIllegalAddress ? "a kernel has failed" : "refused"; }
cudaError_t cudaFuncSetAttribute(const void* f, cudaFuncAttribute a, int value) {
    const lock l(all().mutex);
    kernel* const k = find_kernel(f);
    if (k == nullptr) return result(cudaErrorInvalidDeviceFunction);
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize) return result(cudaSuccess);
    if (value < 0 || static_cast<std::size_t>(value) > most_shared_bytes) return result(cudaErrorInvalidValue);
    k->most_shared = static_cast<std::size_t>(value);
    return result(cudaSuccess);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* f) {
    const lock l(all().mutex);
    *a = {};
    const kernel* const k = find_kernel(f);
    if (k == nullptr) return result(cudaErrorInvalidDeviceFunction);
    a->ptxVersion = a->binaryVersion = k->code->version();
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void*, int, std::size_t, unsigned) { return *n = 2, cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void*, int, std::size_t) { return *n = 2, cudaSuccess; }

// ---- memory

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
    const lock l(all().mutex);
    if (any_refuses()) return result(cudaErrorStreamCaptureUnsupported);
    return obtain(p, bytes, cudaMemoryTypeDevice);
}
cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t s) {
    const lock l(all().mutex);
    if (is_refused(of(s))) return result(cudaErrorStreamCaptureUnsupported);
    return obtain(p, bytes, cudaMemoryTypeDevice);
}
cudaError_t cudaFree(void* p) {
    const lock l(all().mutex);
    if (any_refuses()) return result(cudaErrorStreamCaptureUnsupported);
    run_all();
    return release(p);
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
    const lock l(all().mutex);
    return give(of(s), [p] { release(p); });
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
    const lock l(all().mutex);
    if (any_refuses()) return result(cudaErrorStreamCaptureUnsupported);
    return obtain(p, bytes, cudaMemoryTypeHost);
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) { return cudaHostAlloc(p, bytes, 0); }
cudaError_t cudaFreeHost(void* p) {
    const lock l(all().mutex);
    run_all();
    return release(p);
}
cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned) {
    const lock l(all().mutex);
    all().memory[reinterpret_cast<std::uint64_t>(p)] = {bytes, cudaMemoryTypeHost, false};
    return result(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
    const lock l(all().mutex);
    *a = {};
    const allocation* const found = all().find(reinterpret_cast<std::uint64_t>(p), 1);
    a->type = found == nullptr ? cudaMemoryTypeUnregistered : found->type;
    a->device = 0;
    return result(cudaSuccess);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t s) {
    const lock l(all().mutex);
    const auto is_pageable = [&](const void* p) { return all().find(reinterpret_cast<std::uint64_t>(p), bytes) == nullptr; };
    stream& where = of(s);
    if (is_pageable(from)) {  // CUDA stages it
        auto staged = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
        return give(where, [staged, to] { std::memcpy(to, staged->data(), staged->size()); });
    }
    const cudaError_t code = give(where, [to, from, bytes] { std::memmove(to, from, bytes); });
    if (is_pageable(to) && where.noting == nullptr) run_until(where, where.given);
    return result(code);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const lock l(all().mutex);
    if (any_refuses()) return result(cudaErrorStreamCaptureUnsupported);
    run_until(all().plain, all().plain.given);
    cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    run_until(all().plain, all().plain.given);
    return result(cudaSuccess);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t s) {
    const lock l(all().mutex);
    if (all().find(reinterpret_cast<std::uint64_t>(to), bytes) == nullptr) return result(cudaErrorInvalidValue);
    return give(of(s), [to, value, bytes] { std::memset(to, value, bytes); });
}

// ---- streams, events, graphs

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
    const lock l(all().mutex);
    auto* const made = new stream;
    all().streams.insert(made);
    *s = reinterpret_cast<cudaStream_t>(made);
    return result(cudaSuccess);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    const lock l(all().mutex);
    stream& gone = of(s);
    run_until(gone, gone.given);  // CUDA lets it end by itself
    return result(cudaSuccess);   // events may name it still
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* d) { return *d = 0, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    const lock l(all().mutex);
    if (is_refused(of(s))) return result(cudaErrorStreamCaptureUnsupported);
    run_until(of(s), of(s).given);
    return result(cudaSuccess);
}
cudaError_t cudaDeviceSynchronize() {
    const lock l(all().mutex);
    if (any_refuses()) return result(cudaErrorStreamCaptureUnsupported);
    run_all();
    return result(cudaSuccess);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
    *e = reinterpret_cast<cudaEvent_t>(new event);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete reinterpret_cast<event*>(e);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    const lock l(all().mutex);
    if (is_refused(of(s))) return result(cudaErrorStreamCaptureUnsupported);
    *reinterpret_cast<event*>(e) = {&of(s), of(s).given};
    return result(cudaSuccess);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    const lock l(all().mutex);
    const event at = *reinterpret_cast<event*>(e);
    if (at.of != nullptr) run_until(*at.of, at.at);
    return result(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    const lock l(all().mutex);
    const event at = *reinterpret_cast<event*>(e);
    return at.of == nullptr || at.of->done >= at.at ? result(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 1, cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    const lock l(all().mutex);
    const event at = *reinterpret_cast<event*>(e);
    if (at.of == nullptr || at.of == &of(s)) return result(cudaSuccess);
    return give(of(s), [at] { run_until(*at.of, at.at); });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    const lock l(all().mutex);
    if (s == nullptr || of(s).noting != nullptr) return result(cudaErrorStreamCaptureUnsupported);
    of(s).noting = new graph;
    of(s).is_spoilt = false;
    return result(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
    const lock l(all().mutex);
    graph* const made = std::exchange(of(s).noting, nullptr);
    *g = nullptr;
    if (made == nullptr) return result(cudaErrorIllegalState);
    if (of(s).is_spoilt) {
        delete made;
        return result(cudaErrorStreamCaptureInvalidated);
    }
    *g = reinterpret_cast<cudaGraph_t>(made);
    return result(cudaSuccess);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t*, std::size_t* n) { return *n = reinterpret_cast<graph*>(g)->nodes.size(), cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long) {
    *e = reinterpret_cast<cudaGraphExec_t>(new graph(*reinterpret_cast<graph*>(g)));
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
    const lock l(all().mutex);
    for (const auto& node : reinterpret_cast<graph*>(e)->nodes) give(of(s), node);
    return result(cudaSuccess);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
    const lock l(all().mutex);
    delete reinterpret_cast<graph*>(e);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    delete reinterpret_cast<graph*>(g);
    return cudaSuccess;
}

}  // extern "C"
