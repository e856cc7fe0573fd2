// SPDX-License-Identifier: MIT
/// \file
/// What a call of the CUDA runtime returns, as an exception that names call, code, file and line.
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

/// Throws cuda_error unless the code is that of success. An error of a kernel comes out of a later call, and of every
/// call from then on: the first one's sentence is the one to read.
inline void cuda_check(cudaError_t code, const char* call, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    if (code == cudaSuccess) return;
    cudaGetLastError();  // told here: who asks CUDA for its last error next must not find it again
    const std::string place(file);
    fail<cuda_error>("cuda: ", call, " gave ", cudaGetErrorName(code), " (", cudaGetErrorString(code), ") at ",
                     place.substr(place.rfind('/') + 1), ":", line);
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
