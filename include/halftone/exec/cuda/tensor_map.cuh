// SPDX-License-Identifier: MIT
/// \file
/// What Hopper's tensor memory accelerator has to know of a matrix to copy tiles of it, made on the host.
///
///     detail::tensor_map_maker maps;
///     const detail::tensor_map map = maps.make(data, columns, rows, leading, 128);
#pragma once

#include <cuda.h>

#include <halftone/exec/cuda/error.cuh>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// 128 bytes that the driver fills in and that a kernel takes as an argument.
struct tensor_map {
    CUtensorMap of_driver;
};

/// Makes them with the driver's function, which it finds when first it is needed, without linking with the driver.
class tensor_map_maker {
  public:
    /// Of `outer` lines of `inner` neighbours, `leading` elements apart, of which a copy takes 128 bytes of box_outer lines,
    /// in 128-byte swizzle, zeros beyond the end. `data` and lines lie on multiples of 16 bytes. Throws cuda_error where the
    /// driver cannot.
    template <class T>
    tensor_map make(const T* data, extent inner, extent outer, extent leading, int box_outer) {
        static_assert(std::is_same_v<T, bfloat16> || std::is_same_v<T, float16> || std::is_same_v<T, float>);
        constexpr CUtensorMapDataType type = std::is_same_v<T, bfloat16>  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                             : std::is_same_v<T, float16> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                                          : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
        if (encode_ == nullptr) encode_ = find();
        tensor_map map;
        const cuuint64_t extents[] = {static_cast<cuuint64_t>(inner), static_cast<cuuint64_t>(outer)},
                         strides[] = {static_cast<cuuint64_t>(leading) * sizeof(T)};
        const cuuint32_t box[] = {128 / sizeof(T), static_cast<cuuint32_t>(box_outer)}, steps[] = {1, 1};
        const CUresult code =
            encode_(&map.of_driver, type, 2, const_cast<T*>(data), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                    CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        if (code != CUDA_SUCCESS) {
            fail<cuda_error>("cuda: cuTensorMapEncodeTiled gave ", static_cast<int>(code), " for ", outer, " lines of ", inner,
                             ", ", leading, " apart");
        }
        return map;
    }

  private:
    using encoder = decltype(&cuTensorMapEncodeTiled);
    static encoder find() {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
        cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result),
                   "cudaGetDriverEntryPointByVersion");
#else
        cuda_check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result),
                   "cudaGetDriverEntryPoint");
#endif
        if (result != cudaDriverEntryPointSuccess) fail<cuda_error>("cuda: the driver has no cuTensorMapEncodeTiled");
        return reinterpret_cast<encoder>(function);
    }

    encoder encode_ = nullptr;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
