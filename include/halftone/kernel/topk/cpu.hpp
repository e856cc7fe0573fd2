// SPDX-License-Identifier: MIT
/// \file
/// The largest numbers of each row on the CPU; topk.hpp has the contract and an example.
#pragma once

#include <algorithm>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/topk/topk.hpp>
#include <halftone/number/in_float.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct topk<cpu> {
    template <class X>
    static void run(cpu& device, const const_view<X, 2>& x, const view<std::int32_t, 2>& indices) {
        using wide = std::conditional_t<std::is_same_v<X, double>, double, float>;
        const extent k = indices.extent_of(1), width = x.extent_of(1);
        device.parallel_for(x.extent_of(0), static_cast<std::size_t>(k) * sizeof(ranked), [&](extent i, std::byte* memory) {
            auto* const heap = reinterpret_cast<ranked*>(memory);
            const X* const row = x.data() + i * x.stride_of(0);
            // The first element of the heap is the one that comes last in the order.
            extent held = 0;
            for (extent j = 0; j < width; ++j) {
                const ranked r{order_of(detail::in_type<wide>(row[j])), static_cast<std::int32_t>(j)};
                if (held < k) {
                    heap[held++] = r;
                    std::push_heap(heap, heap + held, stands_before);
                } else if (r.before(heap[0])) {
                    std::pop_heap(heap, heap + held, stands_before);
                    heap[held - 1] = r;
                    std::push_heap(heap, heap + held, stands_before);
                }
            }
            std::sort_heap(heap, heap + held, stands_before);
            for (extent j = 0; j < k; ++j) indices(i, j) = heap[j].index;
        });
    }

  private:
    static bool stands_before(const ranked& a, const ranked& b) { return a.before(b); }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
