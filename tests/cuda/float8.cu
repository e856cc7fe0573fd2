// SPDX-License-Identifier: MIT
/// \file
/// Numbers of one byte compared with CUDA's types, on the host, and their conversions on a GPU.
// compile: each architecture, at most 20 kernels. Instructions convert such numbers from sm_89 on.
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/exec/cuda/interop.cuh>
#include <halftone/number/saturate.hpp>

#include "cuda/device.cuh"
#include "kernel/convert/checks.hpp"

namespace {

namespace ht = halftone;
using ht::float8_e4m3;
using ht::float8_e5m2;

static_assert(std::is_same_v<decltype(ht::view(static_cast<__nv_fp8_e4m3*>(nullptr), ht::shape<1>{1})),
                             ht::view<float8_e4m3, 1>>);
static_assert(std::is_same_v<decltype(ht::view(std::span<const __nv_fp8_e5m2>(), ht::shape<1>{0})),
                             ht::view<const float8_e5m2, 1>>);

/// How many of the floats around every number of 16 bits CUDA's conversion takes elsewhere. It keeps a NaN's payload,
/// or its sign not.
template <class T>
int differences(__nv_fp8_interpretation_t format) {
    int count = 0;
    for (std::uint32_t h = 0; h < 0x10000; ++h) {
        for (const float near : {static_cast<float>(ht::float16::from_bits(static_cast<std::uint16_t>(h))),
                                 static_cast<float>(ht::bfloat16::from_bits(static_cast<std::uint16_t>(h)))}) {
            for (const std::uint32_t ulp : {0u, 1u, ~0u}) {
                const auto x = ht::bit_cast<float>(ht::bit_cast<std::uint32_t>(near) + ulp);
                const auto theirs = T::from_bits(__nv_cvt_float_to_fp8(x, __NV_NOSAT, format));
                const auto stopped = T::from_bits(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, format));
                if (ht::is_nan(x)) {
                    count +=
                        ht::is_nan(theirs) && ht::is_nan(T(x)) && ht::is_nan(stopped) && ht::is_nan(ht::saturate<T>(x))
                            ? 0
                            : 1;
                } else {
                    count += theirs.bits() == T(x).bits() && stopped.bits() == ht::saturate<T>(x).bits() ? 0 : 1;
                }
            }
        }
    }
    for (int code = 0; code < 256; ++code) {
        const auto ours = T::from_bits(static_cast<std::uint8_t>(code));
        const __half theirs(__nv_cvt_fp8_to_halfraw(ours.bits(), format));
        const float x = ours, y = __half2float(theirs);
        count += ht::bit_cast<std::uint32_t>(x) == ht::bit_cast<std::uint32_t>(y) ||
                         (ht::is_nan(x) && ht::is_nan(y))
                     ? 0
                     : 1;
    }
    return count;
}

TEST_CASE("float8: converts as CUDA's functions on the host") {
    CHECK(differences<float8_e4m3>(__NV_E4M3) == 0);
    CHECK(differences<float8_e5m2>(__NV_E5M2) == 0);
}

TEST_CASE_TEMPLATE("cuda: conversion from and to numbers of one byte", M, convert_checks::down_e4m3,
                   convert_checks::up_e5m2) {
    support::waiting_cuda gpu;
    for (const ht::extent count : {1, 7, 63, 4099})
        convert_checks::converts_each<typename M::X, typename M::Y>(gpu, count);
    convert_checks::converts_each<typename M::X, typename M::Y>(gpu, 65536 + 257, 0, 0);
}

TEST_CASE("cuda: conversion that saturates") {
    support::waiting_cuda gpu;
    for (const ht::extent count : {1, 7, 63, 4099}) convert_checks::saturates<ht::bfloat16, float8_e4m3>(gpu, count);
}

}  // namespace
