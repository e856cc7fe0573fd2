// SPDX-License-Identifier: MIT
/// \file
/// The number of a batch's targets that count in the loss, and the fraction of these that one of its micro-batches has.
/// Computed on the device that holds the targets, so that the host does not wait.
///
///     kernel::target_share<cpu>::run(device, targets_of_micro, targets_of_batch, &counts);     // counts.share, ...
///
/// Numeric contract: counts are exact. The share is their quotient in double, rounded once: for one of k micro-batches
/// with equal counts it is the double 1 / k. It is 0 if no target of the micro-batch counts, even if none of the batch
/// does.
#pragma once

#include <cstdint>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The results of counting, in the device's memory.
struct target_counts {
    double share = 0;    ///< counted / of
    double counted = 0;  ///< targets of the micro-batch that count
    double of = 0;       ///< targets of the batch that count
};

/// The record for these two counts.
HALFTONE_HD inline target_counts target_counts_of(double counted, double of) {
    return {counted == 0 ? 0 : counted / of, counted, of};
}

/// The target that does not count, as in cross_entropy.
inline constexpr std::int32_t uncounted_target = -100;

/// run(device, targets, of, counts): counts both and writes the result; `of` may be the same targets. Throws
/// shape_error for targets that are not contiguous.
template <class Device>
struct target_share {
    static_assert(sizeof(Device) == 0,
                  "halftone: target_share: the kernels of this device are not included: include <halftone/kernel.hpp> "
                  "for ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

/// Throws shape_error for targets that are not contiguous.
inline void check_targets_of_share(const const_view<std::int32_t, 1>& targets, const const_view<std::int32_t, 1>& of) {
    expect("target_share", "targets", targets, targets.shape());
    expect("target_share", "of", of, of.shape());
}

}  // namespace kernel

/// Counts the targets that are not -100 in `targets` and in `of`, and writes both numbers and their quotient to *counts
/// in the device's memory: a micro-batch's share of a batch's loss. Both are contiguous. The host does not wait. Throws
/// shape_error.
template <class Device>
    requires(detail::kernel_device<Device>)
void target_share(Device& device, const const_view<std::int32_t, 1>& targets, const const_view<std::int32_t, 1>& of,
                  kernel::target_counts* counts) {
    kernel::target_share<Device>::run(device, targets, of, counts);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
