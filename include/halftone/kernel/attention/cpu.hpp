// SPDX-License-Identifier: MIT
/// \file
/// Attention on the CPU; attention.hpp has its arguments, its contract and an example. Scratch memory is linear in the
/// number of queries and keys: `workspace_bytes` tells how much of it device.scratch() will hold.
#pragma once

#include <halftone/kernel/attention/backward.hpp>
#include <halftone/kernel/attention/forward.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

template <>
struct attention<cpu> {
    template <class Compute, class T>
    static void forward(cpu& device, const attention_forward<T>& a) {
        forward(device, a, detail::attention_engine_for<Compute, T>(device));
    }

    template <class Compute, class T>
    static void backward(cpu& device, const attention_backward<T>& a) {
        backward(device, a, detail::attention_engine_for<Compute, T>(device));
    }

    template <class Compute, class T>
    static std::size_t workspace_bytes(const cpu& device, const attention_forward<T>& a) {
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.heads * e.queries == 0) return 0;
        return for_all_workers(
            device, detail::attention_forward_layout(e, unit_for<Compute>(device), a.options.mask).scratch.bytes);
    }

    template <class Compute, class T>
    static std::size_t workspace_bytes(const cpu& device, const attention_backward<T>& a) {
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.groups * e.keys == 0) return 0;
        const detail::attention_backward_layout layout(e, unit_for<Compute>(device), a.options.mask);
        return for_all_workers(device, layout.scratch.bytes) +
               round_up(static_cast<std::size_t>(layout.partial_sums()) * sizeof(float), block_alignment);
    }

    /// With products of the caller's choice.
    template <class T>
    static void forward(cpu& device, const attention_forward<T>& a, const detail::attention_engine<T>& engine) {
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.heads * e.queries == 0) return;
        const detail::attention_forward_layout layout(e, engine.unit, a.options.mask);
        device.parallel_for(layout.tasks(), layout.scratch.bytes, detail::attention_forward_task<T>{a, engine, layout});
    }

    template <class T>
    static void backward(cpu& device, const attention_backward<T>& a, const detail::attention_engine<T>& engine) {
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.groups * e.keys == 0) return;
        const detail::attention_backward_layout layout(e, engine.unit, a.options.mask);
        const workspace::lease partials(device.scratch(),
                                        static_cast<std::size_t>(layout.partial_sums()) * sizeof(float));
        const detail::attention_backward_task<T> task{a, engine, layout,
                                                      layout.parts == 1 ? nullptr : partials.as<float>()};
        device.parallel_for(layout.tasks(), layout.scratch.bytes, task);
        if (layout.parts == 1) return;
        device.parallel_for(e.batch * e.groups, [&](extent index) {
            task.store_queries(index / e.groups, index % e.groups,
                               task.partials + index * layout.parts * layout.part_sums());
        });
    }

  private:
    static std::size_t for_all_workers(const cpu& device, std::size_t each) {
        return round_up(each, block_alignment) * static_cast<std::size_t>(device.threads());
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
