// SPDX-License-Identifier: MIT
/// \file
/// Memory, copies and fills.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ptx/runtime.hpp"

using namespace halftone::ptx;

namespace {

cudaError_t obtain(void** p, std::size_t bytes, cudaMemoryType type, pool* of = nullptr) {
    *p = nullptr;
    if (bytes == 0) return result(cudaSuccess);
    void* memory = nullptr;
    if (posix_memalign(&memory, 512, bytes) != 0) return result(cudaErrorMemoryAllocation);
    std::memset(memory, 0xff, bytes);
    all().memory[reinterpret_cast<std::uint64_t>(memory)] = {bytes, type, true, of};
    if (of != nullptr) {
        of->used += bytes;
        of->mapped += of->used > of->reserved ? of->used - of->reserved : 0;
        of->reserved = std::max(of->reserved, of->used);
    }
    *p = memory;
    return result(cudaSuccess);
}
cudaError_t release(void* p) {
    if (p == nullptr) return result(cudaSuccess);
    const auto found = all().memory.find(reinterpret_cast<std::uint64_t>(p));
    if (found == all().memory.end() || !found->second.is_ours) return result(cudaErrorInvalidValue);
    std::memset(p, 0xff, found->second.bytes);
    if (found->second.of != nullptr) found->second.of->used -= found->second.bytes;
    all().memory.erase(found);
    std::free(p);
    return result(cudaSuccess);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
    const lock l(all().mutex);
    if (any_refuses()) return result(cudaErrorStreamCaptureUnsupported);
    return obtain(p, bytes, cudaMemoryTypeDevice);
}
/// In a capture CUDA would make this memory part of the graph, which is not supported here, so that the call fails.
cudaError_t cudaMallocFromPoolAsync(void** p, std::size_t bytes, cudaMemPool_t from, cudaStream_t s) {
    const lock l(all().mutex);
    if (is_refused(of(s))) return result(cudaErrorStreamCaptureUnsupported);
    return obtain(p, bytes, cudaMemoryTypeDevice, reinterpret_cast<pool*>(from));
}
cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t s) {
    return cudaMallocFromPoolAsync(p, bytes, reinterpret_cast<cudaMemPool_t>(&all().own), s);
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* made, const cudaMemPoolProps* how) {
    const lock l(all().mutex);
    ++all().calls["cudaMemPoolCreate"];
    if (how->allocType != cudaMemAllocationTypePinned || how->location.type != cudaMemLocationTypeDevice ||
        how->location.id != 0)
        return result(cudaErrorInvalidValue);
    auto* const p = new pool;
    all().pools.insert(p);
    *made = reinterpret_cast<cudaMemPool_t>(p);
    return result(cudaSuccess);
}
/// Allocated memory remains valid, and with it the pool.
cudaError_t cudaMemPoolDestroy(cudaMemPool_t gone) {
    const lock l(all().mutex);
    return all().pools.erase(reinterpret_cast<pool*>(gone)) == 1 ? result(cudaSuccess) : result(cudaErrorInvalidValue);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t of, cudaMemPoolAttr which, void* value) {
    const lock l(all().mutex);
    if (which != cudaMemPoolAttrReleaseThreshold) return result(cudaErrorNotSupported);
    reinterpret_cast<pool*>(of)->threshold = *static_cast<std::uint64_t*>(value);
    return result(cudaSuccess);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t of, std::size_t keeps) {
    const lock l(all().mutex);
    ++all().calls["cudaMemPoolTrimTo"];
    pool& p = *reinterpret_cast<pool*>(of);
    p.reserved = std::max<std::uint64_t>(p.used, std::min<std::uint64_t>(p.reserved, keeps));
    return result(cudaSuccess);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
    *free = *all = std::size_t{1} << 34;
    return result(cudaSuccess);
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t of, cudaMemPoolAttr which, void* value) {
    const lock l(all().mutex);
    const pool& p = *reinterpret_cast<pool*>(of);
    auto& to = *static_cast<std::uint64_t*>(value);
    switch (which) {
        case cudaMemPoolAttrReleaseThreshold:
            return to = p.threshold, result(cudaSuccess);
        case cudaMemPoolAttrReservedMemCurrent:
            return to = p.reserved, result(cudaSuccess);
        case cudaMemPoolAttrUsedMemCurrent:
            return to = p.used, result(cudaSuccess);
        default:
            return result(cudaErrorNotSupported);
    }
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* p, int) {
    return *p = reinterpret_cast<cudaMemPool_t>(&all().own), cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* p, int d) { return cudaDeviceGetMemPool(p, d); }
cudaError_t cudaFree(void* p) {
    const lock l(all().mutex);
    if (any_refuses()) return result(cudaErrorStreamCaptureUnsupported);
    run_all();
    return release(p);
}
/// Memory that was allocated outside of a graph cannot be freed in a capture.
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
    const lock l(all().mutex);
    if (is_refused(of(s))) return result(cudaErrorInvalidValue);
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
    if (any_refuses()) return result(cudaErrorStreamCaptureUnsupported);
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
    const auto* const found = all().find(reinterpret_cast<std::uint64_t>(p), 1);
    a->type = found == nullptr ? cudaMemoryTypeUnregistered : found->second.type;
    a->device = 0;
    return result(cudaSuccess);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t s) {
    const lock l(all().mutex);
    const auto is_pageable = [&](const void* p) {
        return all().find(reinterpret_cast<std::uint64_t>(p), bytes) == nullptr;
    };
    stream& where = of(s);
    if (is_pageable(from)) {  // CUDA stages it
        auto staged =
            std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
        return give(where, [staged, to] { std::memcpy(to, staged->data(), staged->size()); });
    }
    const cudaError_t code = give(where, [to, from, bytes] { std::memmove(to, from, bytes); });
    if (is_pageable(to) && where.noting == nullptr) run_until(where, where.given);
    return result(code);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t s) {
    if (width > to_pitch || width > from_pitch) return result(cudaErrorInvalidValue);
    for (std::size_t row = 0; row < height; ++row) {
        const cudaError_t code =
            cudaMemcpyAsync(static_cast<std::byte*>(to) + row * to_pitch,
                            static_cast<const std::byte*>(from) + row * from_pitch, width, kind, s);
        if (code != cudaSuccess) return code;
    }
    return result(cudaSuccess);
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
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    const cudaError_t code = cudaMemsetAsync(to, value, bytes, nullptr);
    return code == cudaSuccess ? cudaStreamSynchronize(nullptr) : code;
}

}  // extern "C"
