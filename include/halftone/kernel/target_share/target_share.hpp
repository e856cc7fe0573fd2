// SPDX-License-Identifier: MIT
/// \file
/// How many of a batch's targets count, and which share of these lies in one of its micro-batches: counted where the
/// targets lie, so that nobody waits for the device.
///
///     kernel::target_share<cpu>::run(device, targets_of_micro, targets_of_batch, &counts);     // counts.share, ...
///
/// Numeric contract: counts are exact. The share is their quotient in double, rounded once: that of one of k
/// micro-batches which count alike is the double 1 / k. It is 0 where no target of the micro-batch counts, also where
/// none of the batch does.
#pragma once

#include <cstdint>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// What counting finds, in the device's memory.
struct target_counts {
    double share = 0;    ///< counted / of
    double counted = 0;  ///< targets of the micro-batch that count
    double of = 0;       ///< targets of the batch that count
};

/// The record of these two counts.
HALFTONE_HD inline target_counts target_counts_of(double counted, double of) {
    return {counted == 0 ? 0 : counted / of, counted, of};
}

/// Which target does not count, as in cross_entropy.
inline constexpr std::int32_t uncounted_target = -100;

/// run(device, targets, of, counts): counts both and writes the result; `of` may be the same targets. Throws shape_error
/// for targets in pieces.
template <class Device>
struct target_share {
    static_assert(sizeof(Device) == 0,
                  "halftone: target_share: the kernels of this device are not included: include <halftone/kernel.hpp> "
                  "for ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

/// Throws shape_error for targets in pieces.
inline void check_targets_of_share(const const_view<std::int32_t, 1>& targets, const const_view<std::int32_t, 1>& of) {
    expect("target_share", "targets", targets, targets.shape());
    expect("target_share", "of", of, of.shape());
}

}  // namespace kernel

/// How many of `targets` and of `of` are not -100, and the first number over the second, to *counts in the device's memory: the
/// share of a batch's loss that a micro-batch has. Both contiguous. Nothing waits. Throws shape_error.
template <class Device>
    requires(detail::kernel_device<Device>)
void target_share(Device& device, const const_view<std::int32_t, 1>& targets, const const_view<std::int32_t, 1>& of,
                  kernel::target_counts* counts) {
    kernel::target_share<Device>::run(device, targets, of, counts);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
