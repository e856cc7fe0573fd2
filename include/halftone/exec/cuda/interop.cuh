// SPDX-License-Identifier: MIT
/// \file
/// Views of CUDA's own numbers of one and two bytes, which have the same bits as halftone's: nothing is converted or
/// copied.
///
///     __half* weights = ...;                                              // yours, on the GPU
///     const ht::view w(weights, ht::shape<2>{rows, columns});             // ht::view<ht::float16, 2>
///     const ht::view x(std::span<const __nv_bfloat16>(...), ht::shape<2>{rows, columns});
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

template <>
struct stands_for<__half> {
    using type = float16;
};
template <>
struct stands_for<__nv_bfloat16> {
    using type = bfloat16;
};
template <>
struct stands_for<__nv_fp8_e4m3> {
    using type = float8_e4m3;
};
template <>
struct stands_for<__nv_fp8_e5m2> {
    using type = float8_e5m2;
};

static_assert(sizeof(__half) == sizeof(float16) && alignof(__half) == alignof(float16));
static_assert(sizeof(__nv_bfloat16) == sizeof(bfloat16) && alignof(__nv_bfloat16) == alignof(bfloat16));
static_assert(sizeof(__nv_fp8_e4m3) == 1 && alignof(__nv_fp8_e4m3) == 1 && sizeof(__nv_fp8_e5m2) == 1 &&
              alignof(__nv_fp8_e5m2) == 1);

}  // namespace HALFTONE_ABI
}  // namespace halftone
