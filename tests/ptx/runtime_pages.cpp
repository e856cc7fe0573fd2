// SPDX-License-Identifier: MIT
/// \file
/// The driver's functions for ranges of addresses that get memory later. Pages that have none cannot be accessed.
#include <cstring>
#include <map>

#include <cuda.h>
#include <sys/mman.h>

#include "ptx/runtime.hpp"

using namespace halftone::ptx;

namespace {

constexpr std::size_t page = std::size_t{2} << 20;

struct mapping {
    std::size_t bytes;
    CUmemGenericAllocationHandle memory;
    bool is_open;  // cuMemSetAccess was called
};
struct address_space {
    std::size_t bytes = 0;
    std::map<std::uint64_t, mapping> mapped{};
};

std::map<std::uint64_t, address_space> spaces;
std::map<CUmemGenericAllocationHandle, std::size_t> memories;
CUmemGenericAllocationHandle next_memory = 1;

address_space* space_of(std::uint64_t at) {
    auto next = spaces.upper_bound(at);
    if (next == spaces.begin()) return nullptr;
    --next;
    return at < next->first + next->second.bytes ? &next->second : nullptr;
}
/// What kernels and copies may access: neighbouring open pages as one allocation.
void tell(std::uint64_t begin, const address_space& s) {
    auto& memory = all().memory;
    memory.erase(memory.lower_bound(begin), memory.lower_bound(begin + s.bytes));
    std::uint64_t end = 0;
    allocation* last = nullptr;
    for (const auto& [at, m] : s.mapped) {
        if (!m.is_open) continue;
        if (last == nullptr || at != end) {
            last = &memory[at];
            *last = {0, cudaMemoryTypeDevice, false};
        }
        last->bytes += m.bytes;
        end = at + m.bytes;
    }
}
std::uint64_t begin_of(const address_space* s) {
    for (const auto& [begin, each] : spaces) {
        if (&each == s) return begin;
    }
    return 0;
}

CUresult device_get(CUdevice* device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult device_attribute(int* value, CUdevice_attribute which, CUdevice) {
    if (which != CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) return CUDA_ERROR_NOT_SUPPORTED;
    *value = 1;
    return CUDA_SUCCESS;
}
CUresult granularity(std::size_t* bytes, const CUmemAllocationProp* what, CUmemAllocationGranularity_flags) {
    if (what->type != CU_MEM_ALLOCATION_TYPE_PINNED || what->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = page;
    return CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* at, std::size_t bytes, std::size_t alignment, CUdeviceptr, unsigned long long) {
    const lock l(all().mutex);
    if (bytes % page != 0 || page % alignment != 0) return CUDA_ERROR_INVALID_VALUE;
    void* const found = mmap(nullptr, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = (reinterpret_cast<CUdeviceptr>(found) + page - 1) / page * page;
    spaces[*at] = {bytes};
    return CUDA_SUCCESS;
}
CUresult free_addresses(CUdeviceptr at, std::size_t bytes) {
    const lock l(all().mutex);
    const auto found = spaces.find(at);
    if (found == spaces.end() || found->second.bytes != bytes || !found->second.mapped.empty())
        return CUDA_ERROR_INVALID_VALUE;
    munmap(reinterpret_cast<void*>(at), bytes);
    spaces.erase(found);
    return CUDA_SUCCESS;
}
CUresult create(CUmemGenericAllocationHandle* memory, std::size_t bytes, const CUmemAllocationProp*, unsigned long long) {
    const lock l(all().mutex);
    if (bytes == 0 || bytes % page != 0) return CUDA_ERROR_INVALID_VALUE;
    *memory = next_memory++;
    memories[*memory] = bytes;
    return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle memory) {
    const lock l(all().mutex);
    return memories.erase(memory) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle memory,
             unsigned long long) {
    const lock l(all().mutex);
    address_space* const s = space_of(at);
    const auto found = memories.find(memory);
    if (s == nullptr || found == memories.end() || found->second != bytes || offset != 0 || at % page != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (const auto& [begin, m] : s->mapped) {
        if (at < begin + m.bytes && begin < at + bytes) return CUDA_ERROR_INVALID_VALUE;
    }
    s->mapped[at] = {bytes, memory, false};
    return CUDA_SUCCESS;
}
CUresult set_access(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count) {
    const lock l(all().mutex);
    address_space* const s = space_of(at);
    if (s == nullptr || count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    const auto found = s->mapped.find(at);
    if (found == s->mapped.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
    auto* const first = reinterpret_cast<void*>(at);
    if (mprotect(first, bytes, PROT_READ | PROT_WRITE) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    std::memset(first, 0xff, bytes);
    found->second.is_open = true;
    tell(begin_of(s), *s);
    return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr at, std::size_t bytes) {
    const lock l(all().mutex);
    address_space* const s = space_of(at);
    const auto found = s == nullptr ? std::map<std::uint64_t, mapping>::iterator{} : s->mapped.find(at);
    if (s == nullptr || found == s->mapped.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
    s->mapped.erase(found);
    mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    tell(begin_of(s), *s);
    return CUDA_SUCCESS;
}

}  // namespace

void* halftone::ptx::page_function(const char* symbol) {
    const std::pair<const char*, void*> known[] = {
        {"cuDeviceGet", reinterpret_cast<void*>(&device_get)},
        {"cuDeviceGetAttribute", reinterpret_cast<void*>(&device_attribute)},
        {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&granularity)},
        {"cuMemAddressReserve", reinterpret_cast<void*>(&reserve)},
        {"cuMemAddressFree", reinterpret_cast<void*>(&free_addresses)},
        {"cuMemCreate", reinterpret_cast<void*>(&create)},
        {"cuMemRelease", reinterpret_cast<void*>(&release)},
        {"cuMemMap", reinterpret_cast<void*>(&map)},
        {"cuMemUnmap", reinterpret_cast<void*>(&unmap)},
        {"cuMemSetAccess", reinterpret_cast<void*>(&set_access)}};
    for (const auto& [name, function] : known) {
        if (std::strcmp(symbol, name) == 0) return function;
    }
    return nullptr;
}
