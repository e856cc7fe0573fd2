// SPDX-License-Identifier: MIT
/// \file
/// Sorting and prefix sums on a device, in order with its other work. A device gets them from a library (CUB), not from
/// a kernel of halftone's.
///
///     sort_pairs(device, keys, sorted_keys, rows, sorted_rows, count, 16);      // by the lower 16 bits of the keys
///     inclusive_sum(device, counts, count);             // in place: an inclusive scan
///
/// sort_pairs is stable: pairs of equal keys keep their order, so that the result is deterministic. `keys` are unsigned
/// integers whose bits from the last argument on are zero; `keys` and `values` are unchanged. inclusive_sum adds
/// unsigned integers, modulo their range. Both use only the device's scratch memory, as many bytes as sort_bytes and
/// inclusive_sum_bytes return for the same arguments, and do not wait. Each device defines them in its namespace;
/// ht::cuda's are CUB's (exec/cuda/sort.cuh).
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
/// A device that computes prefix sums.
template <class Device>
concept summing_device = simt_device<Device> && requires(Device& device, simt::word* counts) {
    inclusive_sum(device, counts, extent{1});
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
