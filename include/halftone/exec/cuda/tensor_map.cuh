// SPDX-License-Identifier: MIT
/// \file
/// Descriptors of matrices (CUtensorMap) by which Hopper's tensor memory accelerator copies tiles, encoded on the host.
///
///     detail::tensor_map_maker maps;
///     const detail::tensor_map map = maps.make(data, columns, rows, leading, 128);
#pragma once

#include <cuda.h>

#include <halftone/exec/cuda/driver.cuh>
#include <halftone/exec/simt/simt.hpp>
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
        tensor_map map;
        const CUresult code = encode(map, data, 2, {inner, {outer, 1, 1}, {leading, 1, 1}}, box_outer);
        if (code != CUDA_SUCCESS) {
            fail<cuda_error>("cuda: cuTensorMapEncodeTiled gave ", static_cast<int>(code), " for ", outer, " lines of ", inner,
                             ", ", leading, " apart");
        }
        return map;
    }
    /// Describes a tensor of four axes: a copy takes 128 bytes of each of box_outer elements of the second axis. All
    /// distances are multiples of 16 bytes.
    template <class T>
    tensor_map make(const T* data, const simt::tile_axes& axes, int box_outer) {
        tensor_map map;
        const CUresult code = encode(map, data, 4, axes, box_outer);
        if (code != CUDA_SUCCESS) {
            fail<cuda_error>("cuda: cuTensorMapEncodeTiled gave ", static_cast<int>(code), " for a tensor of ",
                             axes.extents[2], " x ", axes.extents[1], " x ", axes.extents[0], " x ", axes.inner,
                             " elements");
        }
        return map;
    }

  private:
    using encoder = decltype(&cuTensorMapEncodeTiled);
    template <class T>
    CUresult encode(tensor_map& map, const T* data, int rank, const simt::tile_axes& axes, int box_outer) {
        static_assert(std::is_same_v<T, bfloat16> || std::is_same_v<T, float16> || std::is_same_v<T, float>);
        constexpr CUtensorMapDataType type = std::is_same_v<T, bfloat16>  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                             : std::is_same_v<T, float16> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                                          : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
        if (encode_ == nullptr) encode_ = driver_function<encoder>("cuTensorMapEncodeTiled", 12000);
        cuuint64_t extents[4] = {static_cast<cuuint64_t>(axes.inner)}, strides[3];
        for (int i = 0; i < 3; ++i) {
            extents[i + 1] = static_cast<cuuint64_t>(axes.extents[i]);
            strides[i] = static_cast<cuuint64_t>(axes.distances[i]) * sizeof(T);
        }
        const cuuint32_t box[] = {128 / sizeof(T), static_cast<cuuint32_t>(box_outer), 1, 1}, steps[] = {1, 1, 1, 1};
        return encode_(&map.of_driver, type, static_cast<cuuint32_t>(rank), const_cast<T*>(data), extents, strides, box, steps,
                       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    }
    encoder encode_ = nullptr;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
