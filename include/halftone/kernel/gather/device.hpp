// SPDX-License-Identifier: MIT
/// \file
/// Gathering along an axis on devices that run GPU kernels, by row numbers and the kernels of embeddings; gather.hpp
/// has the contract and an example.
#pragma once

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/embedding/device.hpp>
#include <halftone/kernel/gather/gather.hpp>
#include <halftone/kernel/gather/rows/row_numbers.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <simt_device Device>
struct gather<Device> {
    static void row_numbers(Device& device, const char*, const gather_layout& layout,
                            const const_view<std::int32_t, 1>& index, const view<std::int32_t, 1>& numbers) {
        number_rows(device, layout, index, numbers);
    }

    template <class X, class Y>
    static void forward(Device& device, const const_view<std::int32_t, 1>& numbers, const view<const X, 2>& table,
                        const view<Y, 2>& out) {
        if (out.size() == 0) return;
        if constexpr (std::is_same_v<X, std::int32_t>) {
            fp64::for_each(device, out.size(), 1,
                           chosen_integer{simt::span_of(numbers), simt::span_of(table), simt::span_of(out), out.extent_of(1)});
        } else {
            embedding<Device>::forward(device, embedding_forward<X, Y>{.tokens = numbers, .table = table, .out = out});
        }
    }

    template <class X, class G>
    static void add(Device& device, const const_view<std::int32_t, 1>& numbers, const view<const X, 2>& from,
                    const view<G, 2>& table, write_mode mode) {
        if (table.size() == 0) return;
        embedding<Device>::backward(
            device, embedding_backward<X, G>{.tokens = numbers, .dy = from, .dtable = table, .mode = mode});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
