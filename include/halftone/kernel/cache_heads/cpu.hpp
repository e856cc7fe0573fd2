// SPDX-License-Identifier: MIT
/// \file
/// Copies keys or values into a key-value cache on the CPU; cache_heads.hpp has the contract and an example.
#pragma once

#include <cstring>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/cache_heads/cache_heads.hpp>
#include <halftone/kernel/common/rows/partition.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct cache_heads<cpu> {
    template <class T>
    static void run(cpu& device, const cache_heads_arguments<T>& a) {
        check_cache_heads(a);
        device.run([&] { check_slots("cache_heads", a.slots, a.cache.extent_of(1)); });
        const extent heads = a.cache.extent_of(0), head_size = a.cache.extent_of(2), width = heads * head_size;
        const row_partition partition = partition_rows(a.rows.extent_of(0), width);
        device.parallel_for(partition.count, [&](extent piece) {
            const extent begin = partition.begin(piece), end = begin + partition.rows_of(piece);
            for (extent t = begin; t < end; ++t) {
                const T* from = a.rows.data() + t * a.rows.extent_of(1) + a.first_column;
                T* to = a.cache.data() + a.slots(t) * head_size;
                for (extent h = 0; h < heads; ++h, from += head_size, to += a.cache.extent_of(1) * head_size)
                    std::memcpy(to, from, static_cast<std::size_t>(head_size) * sizeof(T));
            }
        });
    }

    /// Throws argument_error for a slot that is not in [0, count).
    static void check_slots(const char* operation, const const_view<std::int32_t, 1>& slots, extent count) {
        for (extent t = 0; t < slots.size(); ++t) {
            if (slots(t) < 0 || slots(t) >= count)
                fail<argument_error>(operation, ": the slot of row ", t, " is ", slots(t), "; expected 0 to ", count - 1);
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
