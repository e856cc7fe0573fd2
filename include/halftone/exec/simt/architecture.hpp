// SPDX-License-Identifier: MIT
/// \file
/// The properties of a GPU by which kernels' tiles are chosen: its architecture, the shared memory that a block may
/// use, and the number of multiprocessors.
///
///     if (device.architecture().fits<wide_kernel>()) device.launch(wide_kernel{...});
///
/// Every device that launches kernels has `architecture()`. Choices by it depend only on the device's model, so that
/// results have the same bits on all devices of one model.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace simt {

/// Hopper's and Blackwell's data-centre GPUs: 228 KB of shared memory a multiprocessor, of which one block may use 227.
constexpr bool has_228_kb(int version) { return version == 90 || (version >= 100 && version < 120); }

/// The architectures that this file is compiled for: kernels for others are not instantiated. If the compiler does
/// not report them, all architectures.
struct compiled_code {
    bool with_228_kb = true, without_228_kb = true;
};
constexpr compiled_code code_of_this_file() {
#if defined(__CUDA_ARCH_LIST__)
    compiled_code code{false, false};
    for (const int version : {__CUDA_ARCH_LIST__}) (has_228_kb(version / 10) ? code.with_228_kb : code.without_228_kb) = true;
    return code;
#else
    return {};
#endif
}

struct architecture {
    int version;       ///< 10 times the compute capability: 80 is an A100's, 90 an H100's
    int shared_bytes;  ///< the most shared memory that one block may use
    int multiprocessors = 108;
    bool batch_invariant = false;  ///< the bits of a product's row must not depend on how many rows there are

    template <class Kernel>
    constexpr bool fits() const {
        return static_cast<long long>(Kernel::shared_bytes) <= shared_bytes;
    }
    /// Whether two blocks of the kernel fit into a multiprocessor's shared memory.
    template <class Kernel>
    constexpr bool fits_two_blocks() const {
        return 2 * static_cast<long long>(Kernel::shared_bytes) <= shared_bytes;
    }
    /// Whether mma.sync multiplies 8-bit floats natively: on sm_89 and from sm_120 on. On sm_90 to sm_110 it converts
    /// the operands to float16 first.
    constexpr bool has_eight_bit_units() const { return version == 89 || version >= 120; }
};

/// The properties of an architecture (CUDA C++ Programming Guide, technical specifications per compute capability).
constexpr architecture architecture_of(int version) {
    const bool is_middle = version == 80 || version == 87;
    const int multiprocessors = version == 80   ? 108
                                : version == 90 ? 132
                                : version < 90  ? 84
                                                : 148;  // of the usual model
    return {version, (has_228_kb(version) ? 227 : is_middle ? 163 : 99) * 1024, multiprocessors};
}

}  // namespace simt
}  // namespace HALFTONE_ABI
}  // namespace halftone
