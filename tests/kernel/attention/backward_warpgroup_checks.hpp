// SPDX-License-Identifier: MIT
/// \file
/// Tests of attention's gradients by warpgroups, on any device that has warpgroups. The kernels are called by name, also
/// where attention itself would choose others.
///
///     support::check_gradients_by_warpgroups<bfloat16>(device, sizes, support::layout::fused_chunks);
#pragma once

#include <halftone/kernel/attention/device.hpp>

#include "kernel/attention/checks.hpp"

namespace support {

/// The forward pass by the kernel for all GPUs, and the gradients by warpgroups.
template <class T, class Device>
outcome<T> gradients_by_warpgroups_of(const problem<T>& p, Device& device) {
    using namespace ht::kernel::on_device;
    return outcome<T>(p, [&](const auto& forward, const auto& backward) {
        const attention_problem sizes = describe_attention(ht::detail::check_attention(backward), backward.options, {});
        const auto launch = [&]<int Head>(ht::simt::constant<Head>) {
            device.launch(typename attention_tiles<T, Head>::forward{
                vectors_of(forward.q, {}), vectors_of(forward.k, {}), vectors_of(forward.v, {}),
                vectors_of(forward.o, {}), ht::simt::span_of(forward.logsumexp), sizes});
        };
        p.sizes.head_size <= 64 ? launch(ht::simt::constant<64>{}) : launch(ht::simt::constant<128>{});
        gradients_by_warpgroups(device, backward, sizes);
    });
}

/// Within bounds, and the same bits a second time.
template <class T, class Device>
void check_gradients_by_warpgroups(Device& device, const attention_sizes& sizes, layout way,
                                   bounds kind = bounds::telling, double deviation = 1) {
    check_problem<T, T>(sizes, way, kind, deviation, [&](const problem<T>& p, const auto& compare) {
        const outcome<T> got = gradients_by_warpgroups_of(p, device);
        compare(got);
        CHECK(got.same_bits(gradients_by_warpgroups_of(p, device)));
    });
}

/// Small problems of every kind: batch, queries, keys, query heads, key heads, head size.
template <class Device>
void check_all_gradients_by_warpgroups(Device& device) {
    constexpr auto full = ht::attention_mask::full, causal = ht::attention_mask::causal;
    const auto check = [&]<class T>(T, const attention_sizes& sizes, layout way, bounds kind = bounds::telling) {
        check_gradients_by_warpgroups<T>(device, sizes, way, kind);
    };
    constexpr bfloat16 bf16{};
    constexpr float16 fp16{};
    check(bf16, {1, 1, 1, 2, 2, 64, causal}, layout::fused_chunks, bounds::may_hide);
    check(bf16, {1, 200, 200, 1, 1, 64, causal}, layout::fused_chunks);
    check(bf16, {1, 64, 64, 5, 5, 64, full}, layout::fused_chunks);  // one head more than the schedule's group of four
    check(bf16, {2, 40, 70, 4, 2, 64, causal}, layout::heads_first_chunks);
    check(fp16, {2, 20, 65, 1, 1, 40, full}, layout::heads_first_chunks);
    check(bf16, {1, 130, 130, 1, 1, 128, causal}, layout::fused_chunks);
    check(bf16, {1, 3, 140, 2, 1, 128, causal}, layout::heads_first_chunks, bounds::may_hide);
    check(fp16, {1, 30, 70, 1, 1, 72, full}, layout::heads_first_chunks);
}

}  // namespace support
