// SPDX-License-Identifier: MIT
/// \file
/// Keys and values in eight bits on the CPU; eight_bit.hpp has the contract and an example.
#pragma once

#include <halftone/kernel/cache_heads/cpu.hpp>
#include <halftone/kernel/cache_heads/eight_bit/reference.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/quantize/cpu.hpp>

#define HALFTONE_BODY <halftone/kernel/cache_heads/eight_bit/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Doubles are converted by the definition, on one thread.
template <>
struct eight_bit_heads<cpu> {
    template <class T>
    static void quantize(cpu& device, const quantize_heads_arguments<T>& a) {
        check_eight_bit_heads(a);
        device.run([&] { cache_heads<cpu>::check_slots("eight_bit_heads", a.slots, a.codes.extent_of(1)); });
        if constexpr (std::is_same_v<T, double>) {
            device.run([&] { reference::quantize_heads(a); });
        } else {
            const auto body = device.select(HALFTONE_EACH_SET(quantize_head<T>));
            const extent heads = a.codes.extent_of(0), slots = a.codes.extent_of(1), head_size = a.codes.extent_of(2);
            const row_partition partition = partition_rows(a.rows.extent_of(0), heads * head_size);
            device.parallel_for(partition.count, [&](extent piece) {
                const extent begin = partition.begin(piece), end = begin + partition.rows_of(piece);
                for (extent t = begin; t < end; ++t) {
                    const T* from = a.rows.data() + t * a.rows.extent_of(1) + a.first_column;
                    extent to = a.slots(t);
                    for (extent h = 0; h < heads; ++h, from += head_size, to += slots)
                        a.scales.data()[to] = body(head_size, from, a.codes.data() + to * head_size);
                }
            });
        }
    }

    template <class T>
    static void dequantize(cpu& device, const dequantize_heads_arguments<T>& a) {
        check_eight_bit_heads(a);
        if constexpr (std::is_same_v<T, double>) {
            device.run([&] { reference::dequantize_heads(a); });
        } else {
            const auto body = device.select(HALFTONE_EACH_SET(dequantize_heads<T>));
            const extent heads = a.codes.extent_of(0), slots = a.codes.extent_of(1), head_size = a.codes.extent_of(2),
                         sequences = a.key_offsets.size() / 2;
            device.parallel_for(heads * sequences, [&](extent index) {
                const extent i = index / heads, first = index % heads * slots + i * a.capacity;
                if (a.query_offsets(2 * i + 1) == a.query_offsets(2 * i)) return;
                body(a.key_offsets(2 * i + 1) - i * a.capacity, head_size, a.codes.data() + first * head_size,
                     a.scales.data() + first, a.heads.data() + first * head_size);
            });
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
