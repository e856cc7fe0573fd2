// SPDX-License-Identifier: MIT
/// \file
/// Counts of a tensor's infinities and NaNs, and the largest magnitude of its other values.
///
///     kernel::count_nonfinite<cpu>::run(device, activations, &found);  // a nonfinite_counts in the device's memory
///
/// Numeric contract: exact counts, and the largest finite magnitude, decided by the values' bits, so that -ffast-math
/// does not affect them. Each value is read once. The host does not wait.
#pragma once

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What the CPU finds in one chunk of values.
struct chunk_magnitude {
    float largest;
    std::int32_t has_nonfinite;  // 1 if a value is not finite
};

}  // namespace detail

namespace kernel {

/// The counts of some values.
struct nonfinite_counts {
    extent positive_infinities = 0, negative_infinities = 0, nans = 0;
    float largest = 0;  ///< largest magnitude of a finite value; 0 if there is none

    /// Adds the counts of other values.
    HALFTONE_HD constexpr void add(const nonfinite_counts& other) {
        positive_infinities += other.positive_infinities;
        negative_infinities += other.negative_infinities;
        nans += other.nans;
        largest = largest < other.largest ? other.largest : largest;
    }
    /// Whether no value was infinite or NaN.
    HALFTONE_HD constexpr bool is_finite() const { return positive_infinities + negative_infinities + nans == 0; }
};

/// run(device, values, counts): overwrites *counts in the device's memory. Values are float, float16 or bfloat16.
/// Throws shape_error for values that are not contiguous.
template <class Device>
struct count_nonfinite {
    static_assert(sizeof(Device) == 0,
                  "halftone: count_nonfinite: the kernels of this device are not included: include <halftone/kernel.hpp> for "
                  "ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

}  // namespace kernel

/// Writes how many of the values are infinite or NaN, and the largest magnitude of the others, to *counts in the
/// device's memory. values: contiguous, of any rank; float, float16 or bfloat16. The host does not wait. It takes no
/// policy. Throws shape_error.
template <class Device, class Values>
    requires(detail::kernel_device<Device> && detail::viewables<Values>)
void count_nonfinite(Device& device, const Values& values, kernel::nonfinite_counts* counts) {
    kernel::count_nonfinite<Device>::run(device, as_view(values), counts);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
