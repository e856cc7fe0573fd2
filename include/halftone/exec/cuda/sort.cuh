// SPDX-License-Identifier: MIT
/// \file
/// Sorting and prefix sums on a GPU: CUB's radix sort and scan, with a context's scratch memory and on its stream.
/// exec/simt/sort.hpp has their contract.
///
/// <halftone/cuda.cuh> includes this header, <halftone/kernel.cuh> does not: include it for gradients of embeddings.
/// CUB costs about a second of compile time for each architecture.
#pragma once

#include <limits>
#include <type_traits>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include <halftone/exec/cuda/cuda.cuh>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Sorts keys of `bits` bits, and values with them, in ascending order. With memory == nullptr it only computes how
/// many bytes it needs.
template <class Key, class Value>
void radix_sort(cuda& device, void* memory, std::size_t& bytes, const Key* keys, Key* sorted_keys, const Value* values,
                Value* sorted_values, extent count, int bits) {
    static_assert(std::is_unsigned_v<Key>);
    constexpr extent most = std::numeric_limits<int>::max();
    if (count > most) fail<argument_error>("sort_pairs: ", count, " pairs; expected at most ", most);
    const current_device here(device.device());
    cuda_check(cub::DeviceRadixSort::SortPairs(memory, bytes, keys, sorted_keys, values, sorted_values,
                                               static_cast<int>(count), 0, bits, device.stream()),
               "cub::DeviceRadixSort::SortPairs");
}
template <class Count>
void scan(cuda& device, void* memory, std::size_t& bytes, Count* counts, extent count) {
    static_assert(std::is_unsigned_v<Count>);
    constexpr extent most = std::numeric_limits<int>::max();
    if (count > most) fail<argument_error>("inclusive_sum: ", count, " counts; expected at most ", most);
    const current_device here(device.device());
    cuda_check(cub::DeviceScan::InclusiveSum(memory, bytes, counts, counts, static_cast<int>(count), device.stream()),
               "cub::DeviceScan::InclusiveSum");
}

}  // namespace detail

/// Bytes of scratch memory that sort_pairs needs with these arguments.
template <class Key, class Value>
std::size_t sort_bytes(cuda& device, const Key* keys, Key* sorted_keys, const Value* values, Value* sorted_values,
                       extent count, int bits) {
    std::size_t bytes = 0;
    if (count > 0) detail::radix_sort(device, nullptr, bytes, keys, sorted_keys, values, sorted_values, count, bits);
    return bytes;
}

/// Throws argument_error for 2^31 pairs or more.
template <class Key, class Value>
void sort_pairs(cuda& device, const Key* keys, Key* sorted_keys, const Value* values, Value* sorted_values,
                extent count, int bits) {
    if (count <= 0) return;
    std::size_t bytes = sort_bytes(device, keys, sorted_keys, values, sorted_values, count, bits);
    const workspace::lease memory(device.scratch(), bytes);
    detail::radix_sort(device, memory.data(), bytes, keys, sorted_keys, values, sorted_values, count, bits);
}

/// Bytes of scratch memory that inclusive_sum needs with these arguments.
template <class Count>
std::size_t inclusive_sum_bytes(cuda& device, Count* counts, extent count) {
    std::size_t bytes = 0;
    if (count > 0) detail::scan(device, nullptr, bytes, counts, count);
    return bytes;
}
/// Throws argument_error for 2^31 counts or more.
template <class Count>
void inclusive_sum(cuda& device, Count* counts, extent count) {
    if (count <= 0) return;
    std::size_t bytes = inclusive_sum_bytes(device, counts, count);
    const workspace::lease memory(device.scratch(), bytes);
    detail::scan(device, memory.data(), bytes, counts, count);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
