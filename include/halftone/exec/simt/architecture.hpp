// SPDX-License-Identifier: MIT
/// \file
/// What kernels' tiles are chosen by: the architecture of a GPU, the shared memory that a block may have there, and the
/// number of multiprocessors.
///
///     if (device.architecture().fits<wide_kernel>()) device.launch(wide_kernel{...});
///
/// Every device that launches kernels has `architecture()`. A choice by it is a function of the device's model, so
/// that results have the same bits on any device of one model.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace simt {

/// Datacentres' Hopper and Blackwell: 228 KB of shared memory to a multiprocessor, of which a block may have 227.
constexpr bool has_228_kb(int version) { return version == 90 || (version >= 100 && version < 120); }

/// Of which GPUs this file has code: kernels for others need not be compiled. Where no compiler tells, of all.
struct compiled_code {
    bool with_228_kb = true, with_less = true;
};
constexpr compiled_code code_of_this_file() {
#if defined(__CUDA_ARCH_LIST__)
    compiled_code code{false, false};
    for (const int version : {__CUDA_ARCH_LIST__}) (has_228_kb(version / 10) ? code.with_228_kb : code.with_less) = true;
    return code;
#else
    return {};
#endif
}

struct architecture {
    int version;       ///< 10 times the compute capability: 80 is an A100's, 90 an H100's
    int shared_bytes;  ///< the most that one block may have
    int multiprocessors = 108;

    template <class Kernel>
    constexpr bool fits() const {
        return static_cast<long long>(Kernel::shared_bytes) <= shared_bytes;
    }
    /// Whether two of its blocks have room beside each other.
    template <class Kernel>
    constexpr bool fits_two_blocks() const {
        return 2 * static_cast<long long>(Kernel::shared_bytes) <= shared_bytes;
    }
    /// Matrix units for eight-bit floats that a warp's own instruction reaches: of sm_89 and from sm_120 on. On sm_90
    /// to sm_110 that instruction takes the operands apart and multiplies float16.
    constexpr bool has_eight_bit_units() const { return version == 89 || version >= 120; }
};

/// As NVIDIA's guides have it (CUDA C++ Programming Guide, technical specifications per compute capability).
constexpr architecture architecture_of(int version) {
    const bool is_middle = version == 80 || version == 87;
    const int multiprocessors = version == 80   ? 108
                                : version == 90 ? 132
                                : version < 90  ? 84
                                                : 148;  // the usual model's
    return {version, (has_228_kb(version) ? 227 : is_middle ? 163 : 99) * 1024, multiprocessors};
}

}  // namespace simt
}  // namespace HALFTONE_ABI
}  // namespace halftone
