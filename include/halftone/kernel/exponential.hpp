// SPDX-License-Identifier: MIT
/// \file
/// Exponentials and quotients in GPU kernels.
///
///     sum += on_device::exponential<bfloat16>(x - largest);
///
/// Numeric contract: stated at each function; u is 2^-24.
#pragma once

#include <cmath>

#include <halftone/config.hpp>
#include <halftone/number/constants.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// 2^x with a relative error of 4 u; 0 if 2^x is below 2^-126.
HALFTONE_HD HALFTONE_INLINE float power_of_two(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return x < -126.0f ? 0.0f : std::exp2(x);
#endif
}

/// e^x for x of at most about 1, where arguments or results are numbers of T; exactly 1 for 0. For T of 16 bits or
/// fewer it takes two instructions instead of nine, has a relative error of (4 + 2 |x|) u, and is 0 if e^x is below
/// 2^-126. For other T it is std::exp.
template <class T>
HALFTONE_HD HALFTONE_INLINE float exponential(float x) {
    if constexpr (sizeof(T) < sizeof(float)) {
        return power_of_two(x * detail::log2_of_e);
    } else {
        return std::exp(x);
    }
}

/// a / b with a relative error of 3 u; zero for b above 2^126.
HALFTONE_HD HALFTONE_INLINE float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
    return a * inverse;
#else
    return a * (b > 0x1p126f ? 0.0f : 1.0f / b);
#endif
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
