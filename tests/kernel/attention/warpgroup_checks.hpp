// SPDX-License-Identifier: MIT
/// \file
/// Attention's forward pass by warpgroups, on any device that has warpgroups, for every kind of problem that its kernels
/// support.
///
///     support::for_each_warpgroup_problem([&](const auto&... one) { support::check_warpgroups<bfloat16>(device, one...); });
#pragma once

#include <halftone/kernel/attention/device/describe.hpp>
#include <halftone/kernel/attention/device/warpgroup_forward.hpp>

#include "kernel/attention/hidden.hpp"

namespace support {

/// The forward pass by the tiling that its sizes choose; the gradients are not computed.
template <class T, class Device>
outcome<T> forward_by_warpgroups(const problem<T>& p, Device& device) {
    return outcome<T>(p, [&](const auto& forward, const auto&) {
        const auto e = ht::detail::check_attention(forward);
        using namespace ht::kernel::on_device;
        const attention_plan plan = plan_attention(case_of<T>(device, e, forward));
        CHECK(plan.best().family == attention_family::wgmma);
        attend_by_warpgroups(device, forward, describe_attention(e, forward.options, {}), plan.best().query_rows);
    });
}
/// The same by one tiling.
template <class T, class Tiling, class Device>
outcome<T> forward_by_tiling(const problem<T>& p, Device& device) {
    return outcome<T>(p, [&](const auto& forward, const auto&) {
        using namespace ht::kernel::on_device;
        attend_by_warpgroups<Device, T, Tiling>(
            device, forward, describe_attention(ht::detail::check_attention(forward), forward.options, {}));
    });
}
template <class T>
bool same_forward(const outcome<T>& a, const outcome<T>& b) {
    return a.o.same_bits(b.o) && a.logsumexp.same_bits(b.logsumexp);
}

/// o and logsumexp are within the bounds of the definition.
template <class T>
void check_forward(const problem<T>& p, const outcome<T>& got, bounds kind) {
    const attention_inputs inputs = p.inputs();
    const attention_results want = attention_by_definition(inputs);
    const attention_results bound = attention_bounds(inputs, want, roundings_of<T, T>());
    comparison o, logsumexp;
    compare(o, exact(got.o.view), want.o, bound.o);
    for (extent i = 0; i < got.logsumexp.size() / 2; ++i) {
        logsumexp.expect(got.sum_of(i, scale_of(p)), want.logsumexp[static_cast<std::size_t>(i)],
                         bound.logsumexp[static_cast<std::size_t>(i)]);
    }
    CHECK_MESSAGE(o.within(), "o: ", o);
    CHECK_MESSAGE(logsumexp.within(), "logsumexp: ", logsumexp);
    if (kind == bounds::telling) CHECK_MESSAGE(o.telling(), "o: ", o);
    CHECK((got.o.memory->intact() && got.logsumexp.intact()));
}
template <class T, class Device>
void check_warpgroups(Device& device, const attention_sizes& sizes, layout way, bounds kind, double deviation = 1) {
    CAPTURE(sizes);
    const problem<T> p(sizes, way, deviation);
    check_forward(p, forward_by_warpgroups(p, device), kind);
}

/// Heads of 64 and of 128, and shorter ones; tiles of queries and blocks of keys that are whole, and that are not; as
/// many keys as queries and more; more blocks of keys than stages; heads that share keys; strides. Batch, queries, keys,
/// query heads, key heads, head size.
template <class Test>
void for_each_warpgroup_problem(const Test& test) {
    constexpr auto full = ht::attention_mask::full, causal = ht::attention_mask::causal;
    test(attention_sizes{1, 1, 1, 2, 2, 64, causal}, layout::fused_chunks, bounds::may_hide);
    test(attention_sizes{2, 17, 17, 2, 2, 16, causal}, layout::fused_chunks, bounds::may_hide);
    test(attention_sizes{1, 130, 130, 1, 1, 64, causal}, layout::fused_chunks, bounds::telling);
    test(attention_sizes{1, 128, 256, 1, 1, 64, full}, layout::heads_first_chunks, bounds::telling);
    test(attention_sizes{2, 65, 300, 4, 2, 40, causal}, layout::heads_first_chunks, bounds::telling);
    test(attention_sizes{1, 130, 130, 1, 1, 128, causal}, layout::fused_chunks, bounds::telling);
    test(attention_sizes{1, 33, 420, 3, 1, 80, full}, layout::heads_first_chunks, bounds::telling);
    test(attention_sizes{1, 200, 260, 2, 1, 128, causal}, layout::heads_first_chunks, bounds::telling);
}

/// A NaN or an infinity in a key or a value changes no bit of the queries that do not see it, and propagates to those that
/// do.
template <class T, class Run>
void check_hidden_forward(const attention_sizes& sizes, const std::vector<extent>& key_times, const Run& run) {
    CAPTURE(sizes);
    problem<T> p(sizes, layout::heads_first_chunks);
    const seen_pairs seen = seen_of(sizes);
    const outcome<T> clean = run(p);
    CHECK(is_finite(clean.o.view));
    const extent batch = sizes.batch - 1, group = sizes.groups - 1, members = sizes.heads / sizes.groups;
    for (const bool of_values : {true, false}) {
        const ht::view<T, 4>& x = of_values ? p.x.v.view : p.x.k.view;
        for (const extent time : key_times) {
            for (const float poison :
                 {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
                T& place = x(batch, time, group, time % sizes.head_size);
                const T before = place;
                place = T(poison);
                const outcome<T> got = run(p);
                place = before;
                extent leaks = 0, lost = 0;
                for (extent b = 0; b < sizes.batch; ++b) {
                    for (extent h = 0; h < sizes.heads; ++h) {
                        for (extent i = 0; i < sizes.queries; ++i) {
                            if (b == batch && h / members == group && seen(i, time)) {
                                lost += std::isnan(poison) && !poison_check<T>::shows(got.o.view, b, i, h) ? 1 : 0;
                                continue;
                            }
                            leaks += poison_check<T>::same(got.o.view, clean.o.view, b, i, h) ? 0 : 1;
                            leaks += got.same_sum(clean, (b * sizes.heads + h) * sizes.queries + i) ? 0 : 1;
                        }
                    }
                }
                CAPTURE(of_values);
                CAPTURE(time);
                CAPTURE(poison);
                CHECK(leaks == 0);
                CHECK(lost == 0);
            }
        }
    }
}

}  // namespace support
