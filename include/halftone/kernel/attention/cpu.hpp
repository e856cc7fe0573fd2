// SPDX-License-Identifier: MIT
/// \file
/// Attention on the CPU; attention.hpp has its arguments, its contract and an example. Scratch memory is linear in the
/// number of queries and keys, and follows from shapes and from the length stated of the longest sequence.
#pragma once

#include <halftone/kernel/attention/cpu/backward.hpp>
#include <halftone/kernel/attention/cpu/forward.hpp>
#include <halftone/kernel/attention/cpu/math.hpp>
#include <halftone/kernel/attention/cpu/modified_backward.hpp>
#include <halftone/kernel/attention/cpu/modified_forward.hpp>
#include <halftone/kernel/attention/fp64.hpp>
#include <halftone/kernel/attention/score_mod/fp64.hpp>
#include <halftone/kernel/attention/score_mod/math.hpp>
#include <halftone/kernel/cache_heads/cpu.hpp>  // self_attention over kept keys
#include <halftone/kernel/cache_heads/eight_bit/cpu.hpp>
#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/kernel/map/evaluate.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/kernel/softmax/cpu.hpp>

#define HALFTONE_BODY <halftone/kernel/attention/cpu/mod.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct attention<cpu> {
    static const char* why_not_flash(const detail::attention_extents& e) { return detail::why_not_flash(e); }

    template <class Compute, class T>
    static void forward(cpu& device, const attention_forward<T>& a) {
        forward(device, a, detail::attention_engine_for<Compute, T>(device));
    }

    template <class Compute, class T>
    static void backward(cpu& device, const attention_backward<T>& a) {
        backward(device, a, detail::attention_engine_for<Compute, T>(device));
    }

    /// The forward pass with product units of the caller's choice.
    template <class T>
    static void forward(cpu& device, const attention_forward<T>& a, const detail::attention_engine<T>& engine) {
        const detail::attention_extents whole = detail::check_attention(a), e = partition(a, whole);
        if (a.sequences.are_there()) device.run([&] { detail::check_offsets(a.sequences, whole); });
        if (e.batch * e.heads * e.queries == 0) return;
        const detail::attention_forward_layout layout(e, engine.unit, a.options.mask);
        if (a.sequences.are_there()) {
            const extent parts = detail::attention_forward_layout::most_parts(e);
            device.parallel_for(a.sequences.count() * e.heads * parts, layout.scratch.bytes,
                                detail::packed_attention_forward_task<T>{a, engine, whole, parts});
        } else {
            device.parallel_for(layout.tasks(), layout.scratch.bytes,
                                detail::attention_forward_task<T>{a, engine, layout});
        }
    }

    template <class T>
    static void backward(cpu& device, const attention_backward<T>& a, const detail::attention_engine<T>& engine) {
        const detail::attention_extents whole = detail::check_attention(a), e = partition(a, whole);
        if (a.sequences.are_there()) device.run([&] { detail::check_offsets(a.sequences, whole); });
        if (e.batch * e.groups == 0) return;
        if (e.keys == 0) return device.run([&] { clear(a.dq); });
        const detail::attention_backward_layout layout(e, engine.unit, a.options.mask);
        const workspace::lease lease(device.scratch(),
                                     static_cast<std::size_t>(partial_sums(a, layout)) * sizeof(float));
        float* const partials = layout.parts == 1 ? nullptr : lease.as<float>();
        if (a.sequences.are_there()) {
            const detail::packed_attention_backward_task<T> task{a, engine, layout, whole, partials};
            device.parallel_for(task.tasks(), layout.scratch.bytes, task);
            if (layout.parts == 1) return;
            device.parallel_for(a.sequences.count() * e.groups, [&](extent index) { task.store_queries(index); });
            return;
        }
        const detail::attention_backward_task<T> task{a, engine, layout, partials};
        device.parallel_for(layout.tasks(), layout.scratch.bytes, task);
        if (layout.parts == 1) return;
        device.parallel_for(e.batch * e.groups, [&](extent index) {
            task.store_queries(index / e.groups, index % e.groups,
                               task.partials + index * layout.parts * layout.part_sums());
        });
    }

    /// The forward pass with functions of the scores.
    template <class Compute, class T, class E>
    static void forward(cpu& device, const attention_forward<T>& a, const attention_mod<E>& mod) {
        const detail::attention_mod_expressions<E> expressions(mod.score);
        forward(device, a, detail::attention_engine_for<Compute, T>(device), mod_bodies(device, expressions, mod.dropout));
    }
    template <class Compute, class T, class E>
    static void backward(cpu& device, const attention_backward<T>& a, const attention_mod<E>& mod) {
        const detail::attention_mod_expressions<E> expressions(mod.score);
        backward(device, a, detail::attention_engine_for<Compute, T>(device), mod_bodies(device, expressions, mod.dropout));
    }
    template <class T>
    static void forward(cpu& device, const attention_forward<T>& a, const detail::attention_engine<T>& engine,
                        const detail::attention_mod_bodies& mod) {
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.heads * e.queries == 0) return;
        const detail::modified_forward_layout layout(e, engine.unit);
        device.parallel_for(layout.tasks(), layout.scratch.bytes,
                            detail::modified_attention_forward_task<T>{{a, engine, layout}, mod});
    }
    template <class T>
    static void backward(cpu& device, const attention_backward<T>& a, const detail::attention_engine<T>& engine,
                         const detail::attention_mod_bodies& mod) {
        const detail::attention_extents e = detail::check_attention(a);
        if (e.batch * e.groups == 0) return;
        if (e.keys == 0) return device.run([&] { clear(a.dq); });
        const detail::modified_backward_layout layout(e, engine.unit);
        const workspace::lease lease(device.scratch(), static_cast<std::size_t>(layout.partial_sums()) * sizeof(float));
        const detail::modified_attention_backward_task<T> task{
            {a, engine, layout, layout.parts == 1 ? nullptr : lease.as<float>()}, mod, layout};
        device.parallel_for(layout.tasks(), layout.scratch.bytes, task);
        if (layout.parts == 1) return;
        device.parallel_for(e.batch * e.groups, [&](extent index) {
            task.store_queries(index / e.groups, index % e.groups,
                               task.partials + index * layout.parts * layout.part_sums());
        });
    }

  private:
    template <class E>
    static detail::attention_mod_bodies mod_bodies(const cpu& device, const detail::attention_mod_expressions<E>& e,
                                                   const detail::pair_dropout& dropout) {
        using expressions = detail::attention_mod_expressions<E>;
        return {&e, device.select(HALFTONE_EACH_SET(attention_modify<expressions>)),
                device.select(HALFTONE_EACH_SET(attention_modify_gradients<expressions>)), &expressions::hides,
                dropout};
    }
    /// The extents that determine the layout of scratch memory.
    template <class Arguments>
    static detail::attention_extents partition(const Arguments& a, const detail::attention_extents& e) {
        return a.sequences.are_there() ? detail::longest_sequence(e, a.sequences) : e;
    }
    template <class T>
    static extent partial_sums(const attention_backward<T>& a, const detail::attention_backward_layout& layout) {
        if (!a.sequences.are_there()) return layout.partial_sums();
        return detail::packed_attention_backward_task<T>::partial_sums(layout, a.q.extent_of(1), a.sequences.count());
    }
    /// Results of queries without visible keys.
    template <class T>
    static void clear(const view<T, 4>& v) {
        for (extent i = 0; i < v.extent_of(1); ++i) {
            for (extent head = 0; head < v.extent_of(2); ++head) {
                std::fill_n(detail::vector_at(v, 0, i, head), v.extent_of(3), T(0.0f));
            }
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
