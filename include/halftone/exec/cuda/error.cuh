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

namespace halftone::inline HALFTONE_ABI {

/// A call of CUDA's failed.
struct cuda_error : error {
    using error::error;
};

namespace detail {

inline void cuda_check(cudaError_t code, const char* call, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    if (code == cudaSuccess) return;
    const std::string place(file);
    fail<cuda_error>("cuda: ", call, " gave ", cudaGetErrorName(code), " (", cudaGetErrorString(code), ") at ", place.substr(place.rfind('/') + 1), ":", line);
}

}  // namespace detail

}  // namespace halftone::inline HALFTONE_ABI
