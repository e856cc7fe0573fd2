// SPDX-License-Identifier: MIT
/// \file
/// What nvcc's own code calls, launches, and what the device is: of sm_80, or what
/// HALFTONE_PTX_ARCHITECTURE says, with few multiprocessors.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "ptx/runtime.hpp"

using namespace halftone::ptx;

namespace {

std::uint32_t from_environment(const char* name, std::uint32_t otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

}  // namespace

int halftone::ptx::architecture() {
    static const auto version = static_cast<int>(from_environment("HALFTONE_PTX_ARCHITECTURE", 80));
    return version;
}

namespace {

/// How well PTX is the device's, as a GPU chooses: the newest that is not newer than itself; that of sm_90a and the like
/// is no other device's at all, and there the best. 0: it cannot run it.
int fitness(std::string_view ptx) {
    const auto at = ptx.find(".target sm_");
    if (at == ptx.npos) return 0;
    ptx = ptx.substr(at + 11);
    const auto digits = ptx.find_first_not_of("0123456789");
    const int version = std::stoi(std::string(ptx.substr(0, digits)));
    const bool is_only_its = digits != ptx.npos && ptx[digits] == 'a';
    return version > architecture() || (is_only_its && version != architecture()) ? 0 : 2 * version + is_only_its;
}

/// The text of PTX in what nvcc has put into the program that is the best for the device; empty: there is none that it
/// can run and that is not compressed.
std::string ptx_of(const void* wrapper) {
    const auto* at = static_cast<const unsigned char* const*>(wrapper)[1];
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, at + 8, 8);
    std::uint16_t head = 0;
    std::memcpy(&head, at + 6, 2);
    const unsigned char* const end = at + head + bytes;
    std::string_view best;
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
            const std::string_view ptx(text, strnlen(text, payload));
            if (fitness(ptx) > fitness(best)) best = ptx;
        }
        at += entry + payload;
    }
    return std::string(best);
}

/// Where the address sanitizer watches every access, kernels may reach all of the program's memory, as some GPUs let them.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool reaches_all_memory = true;
#else
constexpr bool reaches_all_memory = false;
#endif

/// The seed of a launch, different for each; 0 if no seed is requested.
std::uint32_t seed() {
    static std::uint32_t next = from_environment("HALFTONE_PTX_SEED", 0);
    return next == 0 ? 0 : next++;
}

kernel* find_kernel(const void* f) {
    const auto found = all().kernels.find(f);
    return found == all().kernels.end() ? nullptr : &found->second;
}

cudaError_t start(const void* f, dim3 grid, dim3 block, void** arguments, std::size_t shared, cudaStream_t s) {
    kernel* const k = find_kernel(f);
    if (k == nullptr) return result(cudaErrorInvalidDeviceFunction);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535)
        return result(cudaErrorInvalidConfiguration);
    if (block.x * block.y * block.z == 0 || block.x * block.y * block.z > 1024)
        return result(cudaErrorInvalidConfiguration);
    try {
        const function& code = k->code->named(k->name);
        if (shared > k->most_shared || shared + code.shared_bytes + 1024 > all_shared_bytes())
            return result(cudaErrorInvalidValue);
        auto how = std::make_shared<launch>();
        how->grid = {grid.x, grid.y, grid.z};
        how->block = {block.x, block.y, block.z};
        how->shared_bytes = shared;
        how->seed = seed();
        how->parameters.resize((code.kernel_parameter_bytes + 7) / 8);
        for (std::size_t p = 0; p < code.parameters.size(); ++p) {
            const variable& v = code.parameters[p];
            std::memcpy(reinterpret_cast<std::byte*>(how->parameters.data()) + (v.offset & ~kernel_parameter),
                        arguments[p], v.bytes);
        }
        return give(of(s), [k, how, &code] {
            try {
                run(*k->code, code, *how, [](std::uint64_t address) {
                    return reaches_all_memory ? range{0, ~std::uint64_t{0}} : all().around(address);
                });
            } catch (const failure& e) {
                std::fprintf(stderr, "kernel: %s\n", e.what());
                all().broken = cudaErrorIllegalAddress;
            }
        });
    } catch (const failure& e) {
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
    all().modules.push_back(std::make_unique<halftone::ptx::module>(ptx_of(wrapper)));
    return reinterpret_cast<void**>(all().modules.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    const lock l(all().mutex);
    auto* const code = reinterpret_cast<halftone::ptx::module*>(handle);
    if (code->has(name)) all().kernels.try_emplace(host, kernel{code, name, 48 * 1024});
}
char __cudaInitModule(void**) { return 1; }
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
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t s) {
    const lock l(all().mutex);
    return start(reinterpret_cast<const void*>(k), grid, block, arguments, shared, s);
}
cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t s) {
    const lock l(all().mutex);
    return start(f, grid, block, arguments, shared, s);
}
/// Attributes may let a kernel start early or tell how it is to be scheduled: one that starts when all before it is done obeys
/// them. Clusters are another matter, and not of sm_80.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** arguments) {
    const lock l(all().mutex);
    for (unsigned a = 0; a < c->numAttrs; ++a)
        if (c->attrs[a].id == cudaLaunchAttributeClusterDimension) return result(cudaErrorInvalidConfiguration);
    return start(f, c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes, c->stream);
}

// ---- the device

/// How often a call was made that takes long; for tests, which name this function weakly.
int halftone_ptx_calls(const char* name) {
    const lock l(all().mutex);
    return all().calls[name];
}
cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int d) { return result(d == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    {
        const lock l(all().mutex);
        ++all().calls["cudaGetDeviceProperties"];
    }
    *p = {};
    std::snprintf(p->name, sizeof p->name, "PTX on the host");
    p->totalGlobalMem = std::size_t{8} << 30;
    p->sharedMemPerBlock = 48 * 1024;
    p->sharedMemPerBlockOptin = most_shared_bytes();
    p->sharedMemPerMultiprocessor = all_shared_bytes();
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->major = architecture() / 10;
    p->minor = architecture() % 10;
    p->multiProcessorCount = 6;
    p->l2CacheSize = 1 << 20;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr a, int) {
    switch (a) {
        case cudaDevAttrComputeCapabilityMajor:
            *value = architecture() / 10;
            break;
        case cudaDevAttrComputeCapabilityMinor:
            *value = architecture() % 10;
            break;
        case cudaDevAttrMultiProcessorCount:
            *value = 6;
            break;
        case cudaDevAttrPageableMemoryAccess:
            *value = reaches_all_memory ? 1 : 0;
            break;
        case cudaDevAttrWarpSize:
            *value = 32;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = 48 * 1024;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = static_cast<int>(most_shared_bytes());
            break;
        case cudaDevAttrMaxGridDimX:
            *value = 0x7fffffff;
            break;
        case cudaDevAttrMaxThreadsPerBlock:
            *value = 1024;
            break;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            *value = 2048;
            break;
        default:
            *value = 0;
    }
    return cudaSuccess;
}
/// What has failed is forgotten; memory stays.
cudaError_t cudaDeviceReset() {
    const lock l(all().mutex);
    all().broken = all().last = cudaSuccess;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetLastError() {
    const lock l(all().mutex);
    return all().broken != cudaSuccess ? all().broken : std::exchange(all().last, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() { return all().broken != cudaSuccess ? all().broken : all().last; }
const char* cudaGetErrorName(cudaError_t code) {
    switch (code) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration:
            return "cudaErrorInvalidConfiguration";
        case cudaErrorInvalidDeviceFunction:
            return "cudaErrorInvalidDeviceFunction";
        case cudaErrorInvalidDevice:
            return "cudaErrorInvalidDevice";
        case cudaErrorInvalidKernelImage:
            return "cudaErrorInvalidKernelImage";
        case cudaErrorIllegalState:
            return "cudaErrorIllegalState";
        case cudaErrorIllegalAddress:
            return "cudaErrorIllegalAddress";
        case cudaErrorNotReady:
            return "cudaErrorNotReady";
        case cudaErrorStreamCaptureUnsupported:
            return "cudaErrorStreamCaptureUnsupported";
        case cudaErrorStreamCaptureInvalidated:
            return "cudaErrorStreamCaptureInvalidated";
        case cudaErrorStreamCaptureImplicit:
            return "cudaErrorStreamCaptureImplicit";
        default:
            return "cudaError";
    }
}
const char* cudaGetErrorString(cudaError_t code) {
    return code == cudaErrorIllegalAddress ? "a kernel has failed, as stderr tells" : cudaGetErrorName(code);
}
cudaError_t cudaFuncSetAttribute(const void* f, cudaFuncAttribute a, int value) {
    const lock l(all().mutex);
    kernel* const k = find_kernel(f);
    if (k == nullptr) return result(cudaErrorInvalidDeviceFunction);
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize) return result(cudaSuccess);
    if (value < 0 || static_cast<std::size_t>(value) > most_shared_bytes()) return result(cudaErrorInvalidValue);
    k->most_shared = static_cast<std::size_t>(value);
    return result(cudaSuccess);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* f) {
    const lock l(all().mutex);
    *a = {};
    const kernel* const k = find_kernel(f);
    if (k == nullptr) return result(cudaErrorInvalidDeviceFunction);
    a->ptxVersion = a->binaryVersion = k->code->version();
    a->numRegs = 32;
    a->maxDynamicSharedSizeBytes = static_cast<int>(k->most_shared);
    try {
        const function& code = k->code->named(k->name);
        a->maxThreadsPerBlock = code.threads_at_most != 0 ? code.threads_at_most : 1024;
        a->sharedSizeBytes = code.shared_bytes;
        a->localSizeBytes = code.local_bytes;
    } catch (const failure& e) {
        std::fprintf(stderr, "kernel %s: %s\n", k->name.c_str(), e.what());
        return result(cudaErrorInvalidKernelImage);
    }
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void*, int, std::size_t, unsigned) {
    return *n = 2, cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void*, int, std::size_t) {
    return *n = 2, cudaSuccess;
}

}  // extern "C"
