// SPDX-License-Identifier: MIT
/// \file
/// Copies keys or values into a key-value cache on devices that run GPU kernels, with one thread per element;
/// cache_heads.hpp has the contract and an example.
#pragma once

#include <halftone/exec/simt/simt.hpp>
#include <halftone/kernel/cache_heads/cache_heads.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <class T>
struct cache_heads_kernel {
    static constexpr int threads = 256;
    static constexpr simt::word shared_bytes = 0;

    simt::global_span<const T> rows;
    simt::global_span<const std::int32_t> slots;
    simt::global_span<T> cache;
    extent first_column, width, head_size, cache_slots, count;  // width: of all heads; count: elements of all tokens

    simt::grid_shape grid() const { return simt::blocks_for(count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (i >= count) return;
        const extent token = i / width, column = i - token * width;
        const extent head = column / head_size, at = column - head * head_size;
        const extent slot = simt.load(slots, token);
        if (slot < 0 || slot >= cache_slots) return;
        simt.store(cache, (head * cache_slots + slot) * head_size + at,
                   simt.load(rows, token * (first_column + width) + first_column + column));
    }
};

}  // namespace on_device

template <simt_device Device>
struct cache_heads<Device> {
    template <class T>
    static void run(Device& device, const cache_heads_arguments<T>& a) {
        check_cache_heads(a);
        const extent heads = a.cache.extent_of(0), head_size = a.cache.extent_of(2), width = heads * head_size;
        const extent count = a.rows.extent_of(0) * width;
        if (count == 0) return;
        device.launch(on_device::cache_heads_kernel<T>{simt::span_of(a.rows), simt::span_of(a.slots), simt::span_of(a.cache),
                                                       a.first_column, width, head_size, a.cache.extent_of(1), count});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
