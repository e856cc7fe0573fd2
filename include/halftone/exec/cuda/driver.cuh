// SPDX-License-Identifier: MIT
/// \file
/// Functions of the CUDA driver, found at run time, so that programs do not link with the driver.
///
///     const auto create = detail::driver_function<decltype(&cuMemCreate)>("cuMemCreate", 10020);
#pragma once

#include <cuda.h>

#include <halftone/exec/cuda/error.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The function as of this version of CUDA (12000: 12.0). Throws cuda_error if the driver has none.
template <class Function>
Function driver_function(const char* name, unsigned version) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    cuda_check(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &result),
               "cudaGetDriverEntryPointByVersion");
#else
    static_cast<void>(version);
    cuda_check(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result), "cudaGetDriverEntryPoint");
#endif
    if (result != cudaDriverEntryPointSuccess) fail<cuda_error>("cuda: the driver has no ", name);
    return reinterpret_cast<Function>(function);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
