// SPDX-License-Identifier: MIT
/// \file
/// Descriptors of matrices (CUtensorMap) by which Hopper's tensor memory accelerator copies tiles, encoded on the host.
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

/// 128 bytes, encoded by the driver and passed to a kernel as an argument.
struct tensor_map {
    CUtensorMap of_driver;
};

/// Encodes tensor maps with the driver's function, which it looks up at first use, without linking with the driver.
class tensor_map_maker {
  public:
    /// Describes `outer` rows of `inner` contiguous elements with leading dimension `leading`. A copy takes 128 bytes
    /// of each of box_outer rows, with 128-byte swizzle and zeros out of bounds. `data` and rows are aligned to 16
    /// bytes. Throws cuda_error if the driver cannot encode it.
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
