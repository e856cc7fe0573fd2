// SPDX-License-Identifier: MIT
/// \file
/// Throws an exception for a CUDA runtime call that fails, naming call, error code, file and line.
///
///     detail::cuda_check(cudaStreamCreate(&stream), "cudaStreamCreate");
#pragma once

#include <cuda_runtime_api.h>

#include <halftone/error.hpp>

#if CUDART_VERSION < 12040
#error "halftone: needs CUDA 12.4 or newer"
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// A call of CUDA's failed.
struct cuda_error : error {
    using error::error;
};

namespace detail {

/// Throws cuda_error unless the code is cudaSuccess. An error of a kernel is reported by a later call and by every call
/// from then on: read the first one's message.
inline void cuda_check(cudaError_t code, const char* call, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    if (code == cudaSuccess) return;
    cudaGetLastError();  // resets the error: it is reported here, and not by later calls
    const std::string place(file);
    fail<cuda_error>("cuda: ", call, " gave ", cudaGetErrorName(code), " (", cudaGetErrorString(code), ") at ",
                     place.substr(place.rfind('/') + 1), ":", line);
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
