// SPDX-License-Identifier: MIT
/// \file
/// Sorting and running sums on a device, in order with its other work: what a device has from a library, not a kernel of
/// ours.
///
///     sort_pairs(device, keys, sorted_keys, rows, sorted_rows, count, 16);      // by the low 16 bits of the keys
///     inclusive_sum(device, counts, count);             // each becomes the sum of all up to it, itself included
///
/// `keys` (unsigned integers, whose bits from the last argument on are zero) and `values` stay as they are; pairs of equal
/// keys stay in their order, so that the result is the same every time. What is summed is unsigned integers, modulo their
/// range. Nothing is allocated beyond the device's scratch memory, of which sort_bytes and inclusive_sum_bytes(the same
/// arguments) tell how many bytes, and nothing waits. Each device has its own in its namespace; ht::cuda's are CUB's
/// (exec/cuda/sort.cuh).
#pragma once

#include <cstdint>

#include <halftone/exec/simt/simt.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A device that sorts pairs.
template <class Device>
concept sorting_device = simt_device<Device> &&
    requires(Device& device, const simt::word* keys, simt::word* sorted_keys, const std::int32_t* values,
             std::int32_t* sorted_values) {
    sort_pairs(device, keys, sorted_keys, values, sorted_values, extent{1}, 32);
};
/// A device that makes running sums.
template <class Device>
concept summing_device = simt_device<Device> && requires(Device& device, simt::word* counts) {
    inclusive_sum(device, counts, extent{1});
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
