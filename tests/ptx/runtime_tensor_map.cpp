// SPDX-License-Identifier: MIT
/// \file
/// The driver's function for tensor maps, and how programs that are linked only with the runtime get its address.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <cuda.h>

#include "ptx/runtime.hpp"

using namespace halftone::ptx;

namespace {

/// 0 if the type is not supported here.
cuuint32_t bytes_of(CUtensorMapDataType type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_UINT16:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
            return 2;
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
            return 4;
        default:
            return 0;
    }
}

/// Why the driver rejects it, according to its manual; nullptr if it does not.
const char* objection(const CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, const void* address,
                      const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* steps, CUtensorMapSwizzle swizzle) {
    const auto any = [&](const auto* values, cuuint32_t count, const auto& is_wrong) {
        return std::any_of(values, values + count, is_wrong);
    };
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (map == nullptr || reinterpret_cast<std::uintptr_t>(map) % 64 != 0)
        return "a map that is not aligned to 64 bytes";
    if (rank == 0 || rank > 5) return "a tensor of no axis, or of more than 5";
    if (at == 0 || at % 16 != 0) return "an address that is no multiple of 16";
    if (any(extents, rank, [](cuuint64_t n) { return n == 0 || n > cuuint64_t{1} << 32; }))
        return "an axis of no element, or of more than 2^32";
    if (any(strides, rank - 1, [](cuuint64_t n) { return n % 16 != 0 || n >= cuuint64_t{1} << 40; }))
        return "rows whose distance is no multiple of 16 bytes below 2^40";
    if (any(box, rank, [](cuuint32_t n) { return n == 0 || n > 256; })) return "a box of no element, or more than 256";
    if (any(steps, rank, [](cuuint32_t n) { return n == 0 || n > 8; })) return "steps that are not 1 to 8";
    const cuuint32_t row_bytes = box[0] * bytes_of(type);
    if (row_bytes % 16 != 0) return "rows of a box that are no multiple of 16 bytes";
    if (swizzle == CU_TENSOR_MAP_SWIZZLE_128B && row_bytes > 128)
        return "rows of a box that are longer than its swizzle's 128 bytes";
    return nullptr;
}

/// What the driver supports and this machine does not.
const char* limit(CUtensorMapDataType type, cuuint32_t rank, const cuuint32_t* box, const cuuint32_t* steps,
                  CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapFloatOOBfill fill) {
    if (rank != 2 && rank != 4) return "a tensor of other than 2 or 4 axes";
    if (rank == 4 && (box[2] != 1 || box[3] != 1)) return "a box of more than one along the third axis or the fourth";
    if (bytes_of(type) == 0) return "elements that are neither of 16 bits nor floats";
    if (swizzle != CU_TENSOR_MAP_SWIZZLE_128B || box[0] * bytes_of(type) != tensor_map::row_bytes)
        return "a box other than of rows of 128 bytes in 128-byte swizzle";
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
        std::any_of(steps, steps + rank, [](cuuint32_t n) { return n != 1; }))
        return "elements interleaved, in steps, or not zero beyond the tensor";
    return nullptr;
}

CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                      const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    if (const char* const why = objection(map, type, rank, address, extents, strides, box, steps, swizzle)) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: %s\n", why);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (const char* const why = limit(type, rank, box, steps, interleave, swizzle, fill)) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: the machine for PTX does not know %s\n", why);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    tensor_map made;
    made.address = reinterpret_cast<std::uint64_t>(address);
    made.axes = rank;
    std::copy_n(extents, rank, made.extent);
    std::copy_n(strides, rank - 1, made.pitch);
    made.box_outer = box[1];
    made.element_bytes = bytes_of(type);
    std::memcpy(map, &made, sizeof made);
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

/// The driver of a device before sm_90 has the function, too, but the device fails.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
    void* const of_pages = page_function(symbol);
    const bool is_known = of_pages != nullptr || std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0,
               is_new = of_pages != nullptr || version >= 12000;
    *function = of_pages != nullptr  ? of_pages
                : is_known && is_new ? reinterpret_cast<void*>(&encode_tiled)
                                     : nullptr;
    if (status != nullptr)
        *status = !is_known ? cudaDriverEntryPointSymbolNotFound
                  : is_new  ? cudaDriverEntryPointSuccess
                            : cudaDriverEntryPointVersionNotSufficent;
    return result(*function != nullptr || status != nullptr ? cudaSuccess : cudaErrorSymbolNotFound);
}
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
    return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, status);
}

}  // extern "C"
